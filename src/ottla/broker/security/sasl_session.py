"""The requests of one connection of a SASL listener: the session serves logins, and once the client is logged in the
router serves all others."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.broker.net.connection import Connection, Router
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.observe.events import fields, frequent
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.frame import LENGTH_PREFIX, RequestHeader, read_request_header, response_frame
from ottla.protocol.messages import decode_request, encode_response
from ottla.protocol.primitives import RequestBytes
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.sasl_server import Authenticated, Continued, LoginRules, Rejected, SaslLogin

log = logging.getLogger(__name__)

_API_KEY: Final = struct.Struct(">h")
_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
_AUTHENTICATE: Final = int(ApiKey.SASL_AUTHENTICATE)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)


class LoginServices(NamedTuple):
    """What the logins of a listener share."""

    rules: LoginRules
    router: Router
    now_ms: Callable[[], int]
    # Calls back after a time in seconds.
    call_later: Callable[[float, Callable[[], None]], object]
    failure_delay_ms: int


class SaslSession:
    """Serves the requests of one connection (`connection.Router`)."""

    __slots__ = ("_login", "_on_login", "_services", "_was_logged_in")

    def __init__(self, services: LoginServices, on_login: Callable[[Connection], None]) -> None:
        """`on_login` is called at the first login."""
        self._services: Final = services
        self._on_login: Final = on_login
        self._login: Final = SaslLogin(services.rules)
        self._was_logged_in = False

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        try:
            login = self._login
            if login.has_bare_tokens:
                self._bare_token(connection, bytes(view[position:end]))
                return
            (key,) = _API_KEY.unpack_from(buffer, position)
            if key in (_HANDSHAKE, _AUTHENTICATE):
                self._login_request(connection, view, position, end)
                return
            if login.username is None:
                # Versions are requested before the handshake, or never.
                if key != _API_VERSIONS or login.is_in_exchange:
                    raise WireError(f"API key {key} before the login")
            elif login.expires_ms is not None and self._services.now_ms() >= login.expires_ms:
                log.info("login.expired", extra=frequent(peer=connection.peer_name, principal=connection.principal))
                connection.close("the login has expired")
                return
        except WireError as error:
            connection.refuse(str(error))
            return
        self._services.router.route(connection, buffer, view, position, end)

    def _login_request(self, connection: Connection, view: memoryview, position: int, end: int) -> None:
        header = read_request_header(view, position, end)
        api = ApiKey(header.api_key)
        if header.api_version not in API_VERSIONS[api]:
            raise WireError(f"{api.name} version {header.api_version} is not offered")
        connection.client_id = header.client_id
        request = decode_request(api, header.api_version, bytes(view[header.body_position : end]))
        if isinstance(request, SaslHandshakeRequest):
            self._handshake(connection, header, request.mechanism)
        else:
            assert isinstance(request, SaslAuthenticateRequest)
            self._authenticate(connection, header, bytes(request.auth_bytes))

    def _handshake(self, connection: Connection, header: RequestHeader, mechanism: str) -> None:
        reply = self._login.handshake(header.api_version, mechanism)
        response = SaslHandshakeResponse(reply.error, list(reply.mechanisms))
        frame = _frame(ApiKey.SASL_HANDSHAKE, header, response)
        if reply.error:
            facts = {"peer": connection.peer_name, "mechanism": mechanism, "offered": ",".join(reply.mechanisms)}
            log.warning("login.failed", extra=frequent(error=reply.error.name, **facts))
            self._end(connection, frame, f"SaslHandshake: {reply.error.name}", 0)
            return
        if self._login.has_bare_tokens:
            connection.accept_tokens()
        connection.answer_now(frame)

    def _authenticate(self, connection: Connection, header: RequestHeader, token: bytes) -> None:
        login = self._login
        if not login.is_in_exchange:
            if login.username is None:
                raise WireError("SaslAuthenticate before SaslHandshake")
            response = SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate before SaslHandshake")
            self._end(connection, _frame(ApiKey.SASL_AUTHENTICATE, header, response), "ILLEGAL_SASL_STATE", 0)
            return
        step = login.authenticate(token, self._services.now_ms())
        if isinstance(step, Rejected):
            self._report(connection, step)
            response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, self._refusal())
            frame = _frame(ApiKey.SASL_AUTHENTICATE, header, response)
            self._end(connection, frame, "the login failed", self._services.failure_delay_ms)
            return
        lifetime_ms = 0
        if isinstance(step, Authenticated):
            self._log_in(connection, step)
            lifetime_ms = login.lifetime_ms
        response = SaslAuthenticateResponse(ErrorCode.NONE, None, step.token, lifetime_ms)
        connection.answer_now(_frame(ApiKey.SASL_AUTHENTICATE, header, response))

    def _bare_token(self, connection: Connection, token: bytes) -> None:
        step = self._login.authenticate(token, self._services.now_ms())
        if isinstance(step, Rejected):
            self._report(connection, step)
            # This version of the protocol has no error: the connection ends.
            self._end(connection, b"", "the login failed", self._services.failure_delay_ms)
            return
        if isinstance(step, Authenticated):
            self._log_in(connection, step)
        else:
            assert isinstance(step, Continued)
        connection.answer_now(LENGTH_PREFIX.pack(len(step.token)) + step.token)

    def _log_in(self, connection: Connection, step: Authenticated) -> None:
        connection.authenticate(f"User:{step.username}")
        if not self._was_logged_in:
            self._was_logged_in = True
            self._on_login(connection)
        facts = fields(peer=connection.peer_name, principal=connection.principal, mechanism=self._login.mechanism)
        log.debug("login.succeeded", extra=facts)

    def _report(self, connection: Connection, step: Rejected) -> None:
        facts = {"peer": connection.peer_name, "client_id": connection.client_id, "user": step.username}
        log.warning(
            "login.failed",
            extra=frequent(
                **facts, mechanism=self._login.mechanism, listener=connection.listener_name, error=step.reason
            ),
        )

    def _refusal(self) -> str:
        mechanism = self._login.mechanism
        return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"

    def _end(self, connection: Connection, frame: bytes, reason: str, delay_ms: int) -> None:
        """Answer after a time, and close."""
        answer = connection.park(exclusive=True)

        def finish() -> None:
            if not connection.is_closed:
                answer.complete((frame,) if frame else ())
                connection.end(reason)
                connection.send_ready()

        if delay_ms:
            self._services.call_later(delay_ms / 1000, finish)
        else:
            finish()


def _frame(api: ApiKey, header: RequestHeader, response: object) -> bytes:
    body = encode_response(api, header.api_version, response)
    return response_frame(api, header.api_version, header.correlation_id, body)
