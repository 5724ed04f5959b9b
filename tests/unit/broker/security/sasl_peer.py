"""A client of a SASL listener, with a socket and a loop that the test turns."""

from __future__ import annotations

import socket
from collections.abc import Callable

from ottla.broker.net.connection import Connection
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.security.sasl_session import LoginServices, SaslSession
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.primitives import RequestBytes
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_server import (
    BearerExchange,
    Exchange,
    LoginRules,
    PlainExchange,
    ScramExchange,
    VerifiedToken,
)
from ottla.security.scram_server import FindCredential
from ottla.security.secret import Secret
from ottla.testing.fake_clock import FakeClock
from tests.unit.broker.turned_loop import TurnedLoop

LOGIN_BYTES_MAX = 65_536
REQUEST_BYTES_MAX = 1 << 20
DELAY_MS = 100


class Served:
    """A router that answers each request with its api key."""

    def __init__(self) -> None:
        self.keys: list[int] = []

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        self.keys.append(int.from_bytes(view[position : position + 2], "big"))
        connection.answer_now(b"\0\0\0\x04done")


class SaslPeer:
    def __init__(
        self,
        is_password: Callable[[str, Secret], bool],
        find: FindCredential | None = None,
        reauthentication_ms_max: int = 0,
        verify: Callable[[Secret], VerifiedToken] | None = None,
    ) -> None:
        self.loop = TurnedLoop()
        self.clock = FakeClock()
        self.served = Served()
        exchanges: dict[SaslMechanism, Callable[[], Exchange]] = {
            SaslMechanism.PLAIN: lambda: PlainExchange(is_password)
        }
        if find is not None:
            exchanges[SaslMechanism.SCRAM_SHA_256] = lambda: ScramExchange(
                SaslMechanism.SCRAM_SHA_256, find, "server-nonce"
            )
        if verify is not None:
            exchanges[SaslMechanism.OAUTHBEARER] = lambda: BearerExchange(verify)
        rules = LoginRules(exchanges, reauthentication_ms_max)
        services = LoginServices(rules, self.served, self.clock.monotonic_ms, self.loop.call_later, DELAY_MS)
        self.logins = 0
        listening = socket.create_server(("127.0.0.1", 0))
        self.socket = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
        listening.close()
        for each in (self.socket, theirs):
            each.setblocking(False)
        session = SaslSession(services, self._on_login)
        self.budget = ReceiveBudget(1 << 24)
        self.connection = Connection(
            theirs, self.loop, session, self.budget, LOGIN_BYTES_MAX, lambda _: None, listener_name="SASL"
        )

    def _on_login(self, connection: Connection) -> None:
        self.logins += 1
        connection.accept_requests(REQUEST_BYTES_MAX)

    def send(self, data: bytes) -> bytes:
        """Send, let the broker work, and return what has come back."""
        self.socket.sendall(data)
        self.loop.turn()
        return self.receive()

    def receive(self) -> bytes:
        try:
            return self.socket.recv(1 << 16)
        except BlockingIOError:
            return b""

    def request(self, api: ApiKey, version: int, request: object) -> bytes:
        return self.send(request_frame(api, version, 7, "client", encode_request(api, version, request)))

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        frame = self.request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism))
        found = _decoded(ApiKey.SASL_HANDSHAKE, version, frame)
        assert isinstance(found, SaslHandshakeResponse)
        return found

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse | None:
        """None: no response yet."""
        frame = self.request(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(token))
        return self.response(frame, version)

    def response(self, frame: bytes, version: int = 2) -> SaslAuthenticateResponse | None:
        found = _decoded(ApiKey.SASL_AUTHENTICATE, version, frame) if frame else None
        assert found is None or isinstance(found, SaslAuthenticateResponse)
        return found

    def close(self) -> None:
        self.connection.close("the test ended")
        self.socket.close()


def _decoded(api: ApiKey, version: int, frame: bytes) -> object:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = read_response_header(api, version, frame, 4, len(frame))
    assert correlation_id == 7
    return decode_response(api, version, memoryview(frame)[position:])
