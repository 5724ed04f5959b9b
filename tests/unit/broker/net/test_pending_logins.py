"""How many connections may be without a login, and for how long."""

from __future__ import annotations

from ottla.broker.net.listener import PendingLimits, PendingLogins

LIMITS = PendingLimits(pending_max=4, per_address_max=2, sweeps_max=3)


def test_further_connection_of_an_address_closes_the_oldest_of_that_address() -> None:
    pending = PendingLogins[str](LIMITS)
    assert [pending.add(each, "a", 0) for each in ("a1", "a2")] == [None, None]
    assert pending.add("b1", "b", 0) is None
    assert pending.add("a3", "a", 0) == "a1"


def test_further_connection_of_any_address_closes_the_oldest_of_all() -> None:
    pending = PendingLogins[str](LIMITS)
    assert [pending.add(each, each, 0) for each in "abcd"] == [None] * 4
    assert pending.add("e", "e", 0) == "a"


def test_connection_that_is_logged_in_leaves_its_place() -> None:
    pending = PendingLogins[str](LIMITS)
    for each in "abcd":
        pending.add(each, "x" if each in "ab" else each, 0)
    pending.remove("a")
    pending.remove("a")
    assert pending.add("e", "x", 0) is None
    assert list(pending) == ["b", "c", "d", "e"]


def test_login_has_the_time_that_its_handshake_left() -> None:
    pending = PendingLogins[str](LIMITS)
    pending.add("handshake", "a", 10)
    pending.replace("handshake", "connection")
    assert list(pending.overdue(13)) == []
    assert list(pending.overdue(14)) == ["connection"]
    pending.add("second", "a", 14)
    assert pending.add("third", "a", 14) == "connection"
