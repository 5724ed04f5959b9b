from __future__ import annotations

import pytest

from ottla.coordination.zookeeper.access import USER_BYTES_MAX, DigestCredentials, SessionCredentials
from ottla.model.errors import ConfigError


def test_user_and_password_are_read_and_a_password_may_have_colons() -> None:
    assert DigestCredentials.parse("ottla:s:ecret") == ("ottla", "s:ecret")
    assert DigestCredentials.parse("ottla:s:ecret").credential == "ottla:s:ecret"


@pytest.mark.parametrize("text", ["", "secret", ":secret", "ottla:", "u" * (USER_BYTES_MAX + 1) + ":secret"])
def test_what_cannot_be_used_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigError) as failure:
        DigestCredentials.parse(text)
    assert "secret" not in str(failure.value)


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(DigestCredentials("ottla", "secret"))
    assert "secret" not in repr(SessionCredentials(7, b"secret"))
