"""No frames, in any order, reach the router without a login, or break the broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api import ApiKey
from ottla.protocol.frame import request_frame
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram_server import Found, decoy
from ottla.security.secret import Secret
from tests.unit.broker.security.sasl_peer import SaslPeer

TOKENS = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"\0alice\0guess", b"n,,n=alice,r=abc", b"c=biws,r=abcserver-nonce,p=AAAA", b""]),
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
        st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI", "", "\0"]),
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


@given(st.lists(FRAMES, max_size=8), st.booleans())
def test_frames_without_a_password_reach_no_handler(frames: list[bytes], are_joined: bool) -> None:
    asked: list[str] = []

    def is_password(name: str, password: Secret) -> bool:
        asked.append(name)
        return False

    def find(name: str) -> Found:
        return decoy(SaslMechanism.SCRAM_SHA_256, b"cluster", name)

    peer = SaslPeer(is_password, find)
    try:
        for data in [b"".join(frames)] if are_joined else frames:
            try:
                peer.send(data)
            except OSError:
                break
        peer.loop.advance(1)
        assert set(peer.served.keys) <= {API_VERSIONS}
        assert peer.connection.principal == "User:ANONYMOUS"
        assert peer.logins == 0
    finally:
        peer.close()
