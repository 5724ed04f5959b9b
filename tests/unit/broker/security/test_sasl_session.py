"""The frames of a connection before, during and after its login."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.api_versions import ApiVersionsRequest
from ottla.protocol.schemas.metadata import MetadataRequest
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import ScramClient
from ottla.security.scram_server import Found, ScramCredential, decoy
from ottla.security.secret import Secret
from tests.unit.broker.security.sasl_peer import DELAY_MS, LOGIN_BYTES_MAX, SaslPeer

SHA_256 = SaslMechanism.SCRAM_SHA_256
CREDENTIAL = ScramCredential.of_password(SHA_256, Secret("secret"), b"salt-of-alice", 4_096)
DONE = b"\0\0\0\x04done"


def is_password(name: str, password: Secret) -> bool:
    return (name, password.reveal()) == ("alice", "secret") or (name, password.reveal()) == ("bob", "hidden")


def find(name: str) -> Found:
    return Found(CREDENTIAL, True) if name == "alice" else decoy(SHA_256, b"cluster", name)


@pytest.fixture
def peer() -> Iterator[SaslPeer]:
    made = SaslPeer(is_password, find, reauthentication_ms_max=60_000)
    yield made
    made.close()


def metadata(peer: SaslPeer) -> bytes:
    return peer.request(ApiKey.METADATA, 1, MetadataRequest())


def log_in(peer: SaslPeer) -> None:
    assert peer.handshake("PLAIN").error_code == ErrorCode.NONE
    answer = peer.authenticate(b"\0alice\0secret")
    assert answer is not None
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 60_000)


def test_client_logs_in_and_is_served_as_its_user(peer: SaslPeer) -> None:
    assert peer.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()) == DONE
    log_in(peer)
    assert (peer.connection.principal, peer.connection.listener_name) == ("User:alice", "SASL")
    assert metadata(peer) == DONE
    assert peer.logins == 1


def test_client_logs_in_by_scram(peer: SaslPeer) -> None:
    scram = ScramClient(SHA_256, "alice", Secret("secret"), "client-nonce")
    peer.handshake("SCRAM-SHA-256")
    challenge = peer.authenticate(scram.first())
    assert challenge is not None
    last = peer.authenticate(scram.final(challenge.auth_bytes))
    assert last is not None
    scram.verify(last.auth_bytes)
    assert peer.connection.principal == "User:alice"


def test_client_logs_in_by_tokens_without_a_head(peer: SaslPeer) -> None:
    assert peer.handshake("PLAIN", version=0).error_code == ErrorCode.NONE
    token = b"\0alice\0secret"
    assert peer.send(len(token).to_bytes(4, "big") + token) == b"\0\0\0\0"
    assert metadata(peer) == DONE


def test_failed_tokens_without_a_head_close_the_connection_without_an_answer(peer: SaslPeer) -> None:
    peer.handshake("PLAIN", version=0)
    assert peer.send(b"\0\0\0\x01x") == b""
    peer.loop.advance(DELAY_MS / 1000)
    assert peer.connection.is_closed
    assert peer.receive() == b""


def test_request_before_the_login_closes_the_connection(peer: SaslPeer) -> None:
    assert metadata(peer) == b""
    assert peer.connection.is_closed
    assert peer.served.keys == []


def test_request_between_handshake_and_login_closes_the_connection(peer: SaslPeer) -> None:
    peer.handshake("PLAIN")
    assert peer.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()) == b""
    assert peer.connection.is_closed
    assert peer.served.keys == []


def test_authentication_without_a_handshake_closes_the_connection(peer: SaslPeer) -> None:
    assert peer.authenticate(b"\0alice\0secret") is None
    assert peer.connection.is_closed


def test_authentication_without_a_handshake_after_the_login_is_an_illegal_state(peer: SaslPeer) -> None:
    log_in(peer)
    answer = peer.authenticate(b"\0alice\0secret")
    assert answer is not None
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert peer.connection.is_closed


def test_request_above_the_bound_of_logins_closes_the_connection_before_it_is_received(peer: SaslPeer) -> None:
    peer.send((LOGIN_BYTES_MAX + 1).to_bytes(4, "big") + b"\0\x11")
    assert peer.connection.is_closed


def test_bound_of_logins_ends_with_the_login(peer: SaslPeer) -> None:
    log_in(peer)
    body = b"\0\x03" + bytes(2 * LOGIN_BYTES_MAX)
    assert peer.send(len(body).to_bytes(4, "big") + body) in (b"", DONE)
    peer.loop.turn()
    assert not peer.connection.is_closed


def test_unknown_mechanism_is_answered_and_closed(peer: SaslPeer) -> None:
    answer = peer.handshake("GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert peer.connection.is_closed


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0secret", b"no message"])
def test_failures_have_one_text_and_one_delay(peer: SaslPeer, token: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    peer.handshake("PLAIN")
    assert peer.authenticate(token) is None
    peer.loop.advance((DELAY_MS - 1) / 1000)
    assert peer.receive() == b""
    peer.loop.advance(0.001)
    answer = peer.response(peer.receive())
    assert answer is not None
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )
    assert peer.connection.is_closed
    assert "wrong" not in str([record.__dict__ for record in caplog.records]).replace("wrong password", "")


def test_requests_after_a_failed_login_are_not_served(peer: SaslPeer) -> None:
    peer.handshake("PLAIN")
    peer.authenticate(b"\0alice\0wrong")
    metadata(peer)
    peer.request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"\0alice\0secret"))
    peer.loop.advance(1)
    assert peer.connection.is_closed
    assert peer.served.keys == []
    assert peer.connection.principal == "User:ANONYMOUS"


def test_login_is_renewed_while_requests_are_served(peer: SaslPeer) -> None:
    log_in(peer)
    peer.clock.advance(59_000)
    log_in(peer)
    peer.clock.advance(59_000)
    assert metadata(peer) == DONE
    assert peer.logins == 1


def test_request_after_the_end_of_the_login_closes_the_connection(peer: SaslPeer) -> None:
    log_in(peer)
    peer.clock.advance(59_999)
    assert metadata(peer) == DONE
    peer.clock.advance(1)
    assert metadata(peer) == b""
    assert peer.connection.is_closed


def test_expired_login_can_still_be_renewed(peer: SaslPeer) -> None:
    log_in(peer)
    peer.clock.advance(61_000)
    log_in(peer)
    assert metadata(peer) == DONE


def test_login_cannot_be_renewed_as_another_user(peer: SaslPeer) -> None:
    log_in(peer)
    peer.handshake("PLAIN")
    peer.authenticate(b"\0bob\0hidden")
    peer.loop.advance(DELAY_MS / 1000)
    answer = peer.response(peer.receive())
    assert answer is not None
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert peer.connection.is_closed
    assert peer.connection.principal == "User:alice"
