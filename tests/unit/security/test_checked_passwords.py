from __future__ import annotations

from ottla.security.checked_passwords import RIGHT_FOR_MS, RIGHT_MAX, WRONG_FOR_MS, WRONG_MAX, CheckedPasswords
from ottla.security.secret import Secret


def entry(checked: CheckedPasswords, username: str = "alice", password: str = "secret", state: bytes = b"1") -> bytes:
    return checked.entry(username, Secret(password), state)


def test_result_counts_for_its_time() -> None:
    checked = CheckedPasswords(b"key")
    assert checked.find(entry(checked), 0) is None
    checked.add(entry(checked), 0, is_right=True)
    assert checked.find(entry(checked), RIGHT_FOR_MS - 1) is True
    assert checked.find(entry(checked), RIGHT_FOR_MS) is None
    checked.add(entry(checked, password="wrong"), 0, is_right=False)
    assert checked.find(entry(checked, password="wrong"), WRONG_FOR_MS - 1) is False
    assert checked.find(entry(checked, password="wrong"), WRONG_FOR_MS) is None


def test_result_is_that_of_the_user_the_password_and_the_credential() -> None:
    checked = CheckedPasswords(b"key")
    checked.add(entry(checked), 0, is_right=True)
    for other in (entry(checked, "bob"), entry(checked, password="Secret"), entry(checked, state=b"2")):
        assert checked.find(other, 0) is None
    # Where one part ends and the next starts counts, too.
    assert entry(checked, "a", "bc") != entry(checked, "ab", "c")
    assert entry(CheckedPasswords(b"another")) != entry(checked)


def test_guesses_push_out_no_right_password() -> None:
    checked = CheckedPasswords(b"key")
    checked.add(entry(checked), 0, is_right=True)
    for number in range(WRONG_MAX + 5):
        checked.add(entry(checked, password=str(number)), 0, is_right=False)
    assert checked.find(entry(checked), 0) is True
    assert checked.find(entry(checked, password="0"), 0) is None
    assert checked.find(entry(checked, password="5"), 0) is False


def test_memory_is_bounded_and_the_oldest_result_is_forgotten_first() -> None:
    checked = CheckedPasswords(b"key")
    for number in range(RIGHT_MAX + 1):
        checked.add(entry(checked, str(number)), 0, is_right=True)
    assert checked.find(entry(checked, "0"), 0) is None
    assert checked.find(entry(checked, "1"), 0) is True
