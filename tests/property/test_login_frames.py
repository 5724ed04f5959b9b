"""No frames, in any order, reach the router without a login, break the broker, or take more memory than a login may."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import request_frame
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_server import VerifiedToken
from ottla.security.scram import ScramClient
from ottla.security.scram_server import Found, ScramCredential, decoy
from ottla.security.secret import Secret
from tests.unit.broker.security.sasl_peer import LOGIN_BYTES_MAX, SaslPeer

SHA_256 = SaslMechanism.SCRAM_SHA_256
BEARER = b"n,,\x01auth=Bearer abc.def.ghi\x01\x01"
TOKENS = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"\0alice\0guess", b"n,,n=alice,r=abc", b"c=biws,r=abcserver-nonce,p=AAAA", b""]),
    st.sampled_from([BEARER, b"\x01", b"n,a=admin,\x01auth=Bearer a\x01\x01"]),
)


def handshake(mechanism: str, version: int) -> bytes:
    body = encode_request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism))
    return request_frame(ApiKey.SASL_HANDSHAKE, version, 1, None, body)


def authenticate(token: bytes, version: int) -> bytes:
    body = encode_request(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(token))
    return request_frame(ApiKey.SASL_AUTHENTICATE, version, 1, None, body)


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


FRAMES = st.one_of(
    st.builds(
        handshake,
        st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "", "\0"]),
        st.integers(min_value=0, max_value=1),
    ),
    st.builds(authenticate, TOKENS, st.integers(min_value=0, max_value=2)),
    st.builds(framed, TOKENS),
    st.builds(
        lambda key, version, rest: framed(key.to_bytes(2, "big") + version.to_bytes(2, "big") + rest),
        st.integers(min_value=0, max_value=80),
        st.integers(min_value=0, max_value=20),
        st.binary(max_size=100),
    ),
    st.binary(max_size=100),
)
API_VERSIONS = int(ApiKey.API_VERSIONS)
CREDENTIAL = ScramCredential.of_password(SHA_256, Secret("secret"), b"salt-of-alice", 4_096)


def refuse(token: Secret) -> VerifiedToken:
    raise WireError("the token is not valid")


@contextmanager
def without_failures() -> Iterator[None]:
    """A frame that cannot be read is a warning; an error is a fault of the broker."""
    errors: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(f"{record.getMessage()} {record.exc_info}")

    collector = Collector(logging.ERROR)
    logging.getLogger("ottla").addHandler(collector)
    try:
        yield
    finally:
        logging.getLogger("ottla").removeHandler(collector)
    assert errors == []


def send_all(peer: SaslPeer, frames: list[bytes]) -> None:
    for data in frames:
        try:
            peer.send(data)
        except OSError:
            return
        assert peer.budget.taken_bytes <= LOGIN_BYTES_MAX


@given(st.lists(FRAMES, max_size=8), st.booleans())
def test_frames_without_a_password_reach_no_handler(frames: list[bytes], are_joined: bool) -> None:
    peer = SaslPeer(lambda name, password: False, lambda name: decoy(SHA_256, b"cluster", name), verify=refuse)
    try:
        with without_failures():
            send_all(peer, [b"".join(frames)] if are_joined else frames)
            peer.loop.advance(1)
        assert set(peer.served.keys) <= {API_VERSIONS}
        assert peer.connection.principal == "User:ANONYMOUS"
        assert peer.logins == 0
    finally:
        peer.close()


# A place in a frame, what is written there, and how many bytes that replaces.
CHANGES = st.tuples(st.integers(0, 400), st.binary(max_size=4), st.integers(0, 4))


def changed(data: bytes, change: tuple[int, bytes, int]) -> bytes:
    place, written, replaced_count = change
    place %= len(data)
    return data[:place] + written + data[place + replaced_count :]


@given(
    mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]),
    version=st.integers(0, 1),
    changes=st.dictionaries(st.integers(0, 2), CHANGES, min_size=1),
)
def test_a_login_whose_frames_are_changed_logs_in_no_other_user(
    mechanism: str, version: int, changes: dict[int, tuple[int, bytes, int]]
) -> None:
    def is_password(name: str, password: Secret) -> bool:
        return (name, password.reveal()) == ("alice", "secret")

    def find(name: str) -> Found:
        return Found(CREDENTIAL, True) if name == "alice" else decoy(SHA_256, b"cluster", name)

    def verify(token: Secret) -> VerifiedToken:
        return VerifiedToken("alice", 60_000) if token.reveal() == "abc.def.ghi" else refuse(token)

    scram = ScramClient(SHA_256, "alice", Secret("secret"), "client-nonce")
    # The challenge is known: the nonce of the server is fixed.
    challenge = b"r=client-nonceserver-nonce,s=c2FsdC1vZi1hbGljZQ==,i=4096"
    tokens = {
        "PLAIN": [b"\0alice\0secret"],
        "SCRAM-SHA-256": [scram.first(), scram.final(challenge)],
        "OAUTHBEARER": [BEARER],
    }[mechanism]
    frames = [
        handshake(mechanism, version),
        *(authenticate(token, 2) if version else framed(token) for token in tokens),
    ]
    for with_changes in (False, True):
        peer = SaslPeer(is_password, find, verify=verify)
        try:
            with without_failures():
                sent = frames
                if with_changes:
                    sent = [
                        changed(data, changes[index]) if index in changes else data for index, data in enumerate(frames)
                    ]
                send_all(peer, sent)
                peer.loop.advance(1)
            if with_changes:
                assert peer.connection.principal in ("User:alice", "User:ANONYMOUS")
            else:
                assert peer.connection.principal == "User:alice"
            assert (peer.logins == 1) is (peer.connection.principal == "User:alice")
        finally:
            peer.close()
