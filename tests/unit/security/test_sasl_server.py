"""A connection's logins: which step may follow which, and how long they count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_messages import CLIENT_ACKNOWLEDGES_ERROR, BearerMessage
from ottla.security.sasl_server import (
    Authenticated,
    BearerExchange,
    Continued,
    Exchange,
    LoginRules,
    PlainExchange,
    Rejected,
    SaslLogin,
    VerifiedToken,
)
from ottla.security.secret import Secret

PLAIN, BEARER = SaslMechanism.PLAIN, SaslMechanism.OAUTHBEARER
PASSWORDS = {"alice": "secret", "bob": "hidden"}


def is_password(name: str, password: Secret) -> bool:
    return PASSWORDS.get(name) == password.reveal()


def verify(token: Secret) -> VerifiedToken:
    name, _, lifetime = token.reveal().partition(".")
    if not lifetime:
        raise WireError("no lifetime")
    return VerifiedToken(name, int(lifetime))


def login(reauthentication_ms_max: int = 0) -> SaslLogin:
    exchanges: dict[SaslMechanism, Callable[[], Exchange]] = {
        PLAIN: lambda: PlainExchange(is_password),
        BEARER: lambda: BearerExchange(verify),
    }
    return SaslLogin(LoginRules(exchanges, reauthentication_ms_max))


def bearer(token: str) -> bytes:
    return BearerMessage(Secret(token)).to_bytes()


def test_user_with_its_password_is_logged_in() -> None:
    sasl = login()
    assert sasl.handshake(1, "PLAIN") == (ErrorCode.NONE, ["OAUTHBEARER", "PLAIN"])
    assert not sasl.has_bare_tokens
    assert sasl.authenticate(b"\0alice\0secret", 0) == Authenticated("alice")
    assert (sasl.username, sasl.expires_ms, sasl.lifetime_ms) == ("alice", None, 0)


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0carol\0secret",
        b"\0\0",
        b"\0alice\0",
        b"bob\0alice\0secret",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"",
        b"\xff\xfe",
    ],
)
def test_every_other_token_is_rejected_and_ends_the_exchange(token: bytes) -> None:
    sasl = login()
    sasl.handshake(1, "PLAIN")
    step = sasl.authenticate(token, 0)
    assert isinstance(step, Rejected)
    assert "secret" not in step.reason
    assert not sasl.is_in_exchange
    assert sasl.username is None


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "SCRAM-SHA-256", "PLAIN\0"])
def test_mechanism_that_is_not_enabled_is_answered_with_those_that_are(mechanism: str) -> None:
    sasl = login()
    reply = sasl.handshake(1, mechanism)
    assert reply == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["OAUTHBEARER", "PLAIN"])
    assert not sasl.is_in_exchange


def test_second_handshake_within_an_exchange_is_illegal() -> None:
    sasl = login()
    sasl.handshake(1, "PLAIN")
    assert sasl.handshake(1, "PLAIN").error is ErrorCode.ILLEGAL_SASL_STATE


def test_tokens_follow_without_a_head_after_the_first_version_of_the_handshake() -> None:
    sasl = login()
    sasl.handshake(0, "PLAIN")
    in_exchange = sasl.has_bare_tokens
    sasl.authenticate(b"\0alice\0secret", 0)
    assert (in_exchange, sasl.has_bare_tokens) == (True, False)
    # A login is renewed by requests only.
    assert sasl.handshake(0, "PLAIN").error is ErrorCode.ILLEGAL_SASL_STATE


def test_login_counts_until_the_earlier_of_the_setting_and_the_token() -> None:
    sasl = login(reauthentication_ms_max=5_000)
    sasl.handshake(1, "OAUTHBEARER")
    assert sasl.authenticate(bearer("alice.9000"), 100) == Authenticated("alice", b"", 9_000)
    assert (sasl.lifetime_ms, sasl.expires_ms) == (5_000, 5_100)
    sasl.handshake(1, "OAUTHBEARER")
    sasl.authenticate(bearer("alice.300"), 200)
    assert (sasl.lifetime_ms, sasl.expires_ms) == (300, 500)


def test_token_that_has_expired_is_rejected() -> None:
    sasl = login()
    sasl.handshake(1, "OAUTHBEARER")
    assert isinstance(sasl.authenticate(bearer("alice.0"), 0), Rejected)


def test_login_is_renewed_by_the_same_user_only() -> None:
    sasl = login(5_000)
    sasl.handshake(1, "PLAIN")
    sasl.authenticate(b"\0alice\0secret", 0)
    sasl.handshake(1, "PLAIN")
    assert isinstance(sasl.authenticate(b"\0bob\0hidden", 1), Rejected)
    assert (sasl.username, sasl.expires_ms) == ("alice", 5_000)


def test_login_is_renewed_by_the_same_mechanism_only() -> None:
    sasl = login(5_000)
    sasl.handshake(1, "PLAIN")
    sasl.authenticate(b"\0alice\0secret", 0)
    assert sasl.handshake(1, "OAUTHBEARER").error is ErrorCode.NONE
    assert isinstance(sasl.authenticate(bearer("alice.9000"), 1), Rejected)


def test_invalid_bearer_token_gets_a_status_and_fails_with_the_acknowledgement() -> None:
    sasl = login()
    sasl.handshake(1, "OAUTHBEARER")
    assert sasl.authenticate(bearer("nothing"), 0) == Continued(b'{"status": "invalid_token"}')
    assert isinstance(sasl.authenticate(CLIENT_ACKNOWLEDGES_ERROR, 0), Rejected)


def test_valid_token_after_an_invalid_one_does_not_log_in() -> None:
    sasl = login()
    sasl.handshake(1, "OAUTHBEARER")
    sasl.authenticate(bearer("nothing"), 0)
    assert isinstance(sasl.authenticate(bearer("alice.9000"), 0), Rejected)


def test_bearer_of_another_users_identity_is_rejected() -> None:
    sasl = login()
    sasl.handshake(1, "OAUTHBEARER")
    message = BearerMessage(Secret("alice.9000"), "bob").to_bytes()
    assert isinstance(sasl.authenticate(message, 0), Rejected)
