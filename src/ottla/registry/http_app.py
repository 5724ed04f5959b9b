"""The registry over HTTP: an ASGI application, which uvicorn serves.

Requests are answered in threads, for the registry blocks: reads in threads that no change and no check waits in.  One
that another registry must write is passed on to it; when that one cannot be reached, this one takes over.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from ottla.broker.security.http_logins import HttpLogins
from ottla.model.errors import OttlaError
from ottla.model.limits import KIB, MIB
from ottla.model.listener import without_mapping
from ottla.observe.events import fields
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.request_rules import check_content_type
from ottla.registry.routes import (
    Match,
    MethodNotAllowed,
    RawText,
    Request,
    changes_something,
    is_known,
    only_reads,
    route,
)
from ottla.registry.service import AnotherWrites, Registry
from ottla.security.http_access import HttpHead, HttpRefused, Peer, Role

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# A record of the topic has about as many at most.
REQUEST_BYTES_MAX: Final = 1 * MIB
# Too large bodies are read and dropped up to here: a client that is cut off while it sends does not see the response.
DROPPED_BYTES_MAX: Final = 16 * MIB
# Of all bodies that are here, or on their way; small ones are taken above it (a connection has one).
BODIES_BYTES_MAX: Final = 32 * MIB
SMALL_BODY_BYTES: Final = 32 * KIB
BODY_WITHIN_S: Final = 20.0
# A request that is passed on so often finds no writer: the registries disagree for the moment.
PASSED_ON_MAX: Final = 3
PASS_ON_WITHIN_S: Final = 20.0
# Of reads, and as many of the others.
WAITING_MAX: Final = 100
THREADS_MAX: Final = 32
_PASSED_HEADER: Final = "x-ottla-passed-on"
# Where a connection of ASGI has it.
CERTIFICATE_PRINCIPAL: Final = "certificate_principal"


class Response(NamedTuple):
    status: int
    body: bytes
    content_type: str = CONTENT_TYPE
    challenges: tuple[str, ...] = ()


class Refused(Exception):
    """The request is answered without the registry, and its connection is closed."""

    def __init__(
        self, status: HTTPStatus, message: str, code: int | None = None, challenges: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.response: Final = failure(status, message, code)._replace(challenges=challenges)


class ClientGone(Exception):
    """The client has left before its request was complete: it has no effect."""


class Received(NamedTuple):
    """A request as it came; `target` is the raw path with its query."""

    method: str
    path: str
    query: str
    body: bytes
    passed_on_count: int
    # The header with the client's credential, for the registry to which the request is passed on.
    authorization: str | None = None

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


class HttpApp:
    """`url` is this registry's own.  `peer_context` returns the TLS of connections to others; None: HTTP without it."""

    def __init__(
        self,
        registry: Registry,
        url: str,
        logins: HttpLogins,
        *,
        peer_context: Callable[[], ssl.SSLContext] | None = None,
        body_within_s: float = BODY_WITHIN_S,
    ) -> None:
        self._registry = registry
        self._url = url
        self._logins = logins
        self._peer_context = peer_context
        self._body_within_s = body_within_s
        self._bodies_bytes = 0
        self._reads = _Lane("reads")
        self._others = _Lane("changes")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = bytearray()
        more = []
        head, peer = _head(scope), _peer(scope)
        changes = changes_something(head.method, head.path)
        try:
            principal = await self._admit(head, peer, Role.WRITE if changes else Role.READ)
            await self._receive(head, receive, body)
            response = await self._respond(_received(scope, head, bytes(body)))
            if changes:
                self._logins.changed(principal, head, peer, response.status)
        except Refused as refused:
            response = refused.response
            more = [(b"connection", b"close")]
        except ClientGone:
            return
        finally:
            self._bodies_bytes -= len(body)
        answered = [
            (b"content-type", response.content_type.encode()),
            (b"content-length", str(len(response.body)).encode()),
            *more,
            *((b"www-authenticate", challenge.encode()) for challenge in response.challenges),
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": answered})
        await send({"type": "http.response.body", "body": response.body})

    async def _respond(self, received: Received) -> Response:
        try:
            match = route(received.method, received.path)
        except (MethodNotAllowed, RegistryError):
            match = None
        if match is None:
            return self.answer(received)
        request = _request(match, received, {})
        if is_known(self._registry, match, request):
            # Known schemas need no thread: those may all wait for the cluster.
            return self.answer(received)
        lane = self._reads if only_reads(match, request) else self._others
        return await lane.run(lambda: self.answer(received))

    async def _admit(self, head: HttpHead, peer: Peer, role: Role) -> str:
        """The principal of a request that may be received.  Raises `Refused`."""
        try:
            principal = await self._logins.admit(head, peer, role)
            check_content_type(head)
        except HttpRefused as refused:
            raise Refused(refused.status, str(refused), refused.code, refused.challenges) from None
        return principal

    async def _receive(self, head: HttpHead, receive: Receive, body: bytearray) -> None:
        """Raises `Refused`, and `ClientGone`; `body` is counted as far as it came."""
        declared = head.header(b"content-length") or "0"
        if declared.isdigit() and int(declared[:20]) > DROPPED_BYTES_MAX:
            raise _too_large()
        try:
            async with asyncio.timeout(self._body_within_s):
                await self._receive_body(receive, body)
        except TimeoutError:
            raise Refused(
                HTTPStatus.REQUEST_TIMEOUT,
                f"HTTP 408 Request Timeout: the body did not arrive within {self._body_within_s:g} s",
            ) from None

    async def _receive_body(self, receive: Receive, body: bytearray) -> None:
        dropped_bytes = 0
        refused: Refused | None = None
        has_more = True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            has_more = message.get("more_body", False)
            if refused is None:
                body += part
                self._bodies_bytes += len(part)
                refused = self._excess(body)
            if refused is not None:
                dropped_bytes += len(part) + len(body)
                self._bodies_bytes -= len(body)
                body.clear()
                if dropped_bytes > DROPPED_BYTES_MAX:
                    break
        if refused is not None:
            raise refused

    def _excess(self, body: bytearray) -> Refused | None:
        if len(body) > REQUEST_BYTES_MAX:
            return _too_large()
        if len(body) > SMALL_BODY_BYTES and self._bodies_bytes > BODIES_BYTES_MAX:
            return Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, "requests with large bodies are being received already: try again"
            )
        return None

    def answer(self, received: Received) -> Response:
        try:
            match = route(received.method, received.path)
            if match is None:
                return failure(HTTPStatus.NOT_FOUND, f"HTTP 404 Not Found: the registry has no {received.path}")
            return self._answer(match, received)
        except MethodNotAllowed:
            return failure(HTTPStatus.METHOD_NOT_ALLOWED, f"HTTP 405 Method Not Allowed: {received.method}")
        except RegistryError as error:
            return failure(error.status, str(error), error.code)
        except OttlaError as error:
            log.warning("request.failed", extra=fields(target=received.target, error=str(error)))
            return failure(
                HTTPStatus.INTERNAL_SERVER_ERROR, f"the topic cannot be used: {error}", RegistryCode.STORE_ERROR
            )
        except Exception:
            # A bug of ours in one request: the others continue.
            log.exception("request.bug", extra=fields(target=received.target))
            return failure(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug of the registry; its log has the trace")

    def _answer(self, match: Match, received: Received) -> Response:
        request = _request(match, received, _object(received.body))
        try:
            return _success(match.handler(self._registry, request))
        except AnotherWrites as another:
            passed = self._pass_on(another.url, received)
        if passed is not None:
            return passed
        self._registry.claim()
        try:
            return _success(match.handler(self._registry, request))
        except AnotherWrites:
            raise RegistryError(
                RegistryCode.FORWARDING_FAILED, "two registries took over at the same time: try again"
            ) from None

    def _pass_on(self, url: str, received: Received) -> Response | None:
        """The answer of the registry that writes; None when it cannot be reached."""
        if received.passed_on_count >= PASSED_ON_MAX:
            raise RegistryError(RegistryCode.FORWARDING_FAILED, "the registries disagree about the writer: try again")
        parts = urlsplit(url)
        if parts.hostname is None or url == self._url:
            return None
        headers = {"Content-Type": CONTENT_TYPE, _PASSED_HEADER: str(received.passed_on_count + 1)}
        if received.authorization is not None:
            headers["Authorization"] = received.authorization
        try:
            connection = self._connection(parts)
        except OttlaError as error:
            raise RegistryError(RegistryCode.FORWARDING_FAILED, str(error)) from None
        try:
            connection.request(received.method, received.target, received.body, headers)
            answer = connection.getresponse()
            return Response(answer.status, answer.read(), answer.getheader("Content-Type", CONTENT_TYPE))
        except (OSError, http.client.HTTPException) as error:
            log.warning("writer.unreachable", extra=fields(url=url, error=str(error)))
            return None
        finally:
            connection.close()

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        """To the registry that writes.  Raises `OttlaError`."""
        assert parts.hostname is not None
        if self._peer_context is None:
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=PASS_ON_WITHIN_S)
        if parts.scheme != "https":
            raise OttlaError(
                "the registry that writes has no TLS, and this one sends it no passwords: let all of a topic have it"
            )
        context = self._peer_context()
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=PASS_ON_WITHIN_S, context=context)


def failure(status: int, message: str, code: int | None = None) -> Response:
    return Response(status, json.dumps({"error_code": status if code is None else code, "message": message}).encode())


def _success(answer: object) -> Response:
    text = answer if isinstance(answer, RawText) else json.dumps(answer, ensure_ascii=False)
    return Response(HTTPStatus.OK, text.encode())


def _request(match: Match, received: Received, body: dict[str, Any]) -> Request:
    pairs = parse_qsl(received.query, keep_blank_values=True)
    repeated: dict[str, list[str]] = {}
    for name, value in pairs:
        repeated.setdefault(name, []).append(value)
    return Request(match.path, dict(pairs), body, repeated)


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryError(
            RegistryCode.INVALID_SCHEMA, f"the body of a request is JSON, and this is not: {error}"
        ) from None
    if not isinstance(found, dict):
        raise RegistryError(RegistryCode.INVALID_SCHEMA, "the body of a request is an object")
    return found


class _Lane:
    """Threads of their own, and as many requests that wait for one as `WAITING_MAX`."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix=name)
        self._waiting_count = 0

    async def run(self, answer: Callable[[], Response]) -> Response:
        if self._waiting_count >= WAITING_MAX:
            return failure(HTTPStatus.SERVICE_UNAVAILABLE, f"{WAITING_MAX} requests are waiting already: try again")
        self._waiting_count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, answer)
        finally:
            self._waiting_count -= 1


def _too_large() -> Refused:
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the request is too large: it may have {REQUEST_BYTES_MAX} bytes",
        RegistryCode.SCHEMA_TOO_LARGE,
    )


def _head(scope: Message) -> HttpHead:
    query = scope["query_string"].decode("latin-1")
    path = scope["raw_path"].decode("latin-1").partition("?")[0]
    return HttpHead(scope["method"], f"{path}?{query}" if query else path, scope["headers"])


def _peer(scope: Message) -> Peer:
    """`principal`: of the client's certificate, which the connection has in its state."""
    host = without_mapping((scope.get("client") or ("",))[0])
    return Peer(host, scope.get("state", {}).get(CERTIFICATE_PRINCIPAL), is_encrypted=scope.get("scheme") == "https")


def _received(scope: Message, head: HttpHead, body: bytes) -> Received:
    passed = head.header(_PASSED_HEADER.encode()) or "0"
    return Received(
        head.method,
        head.path,
        scope["query_string"].decode("latin-1"),
        body,
        int(passed) if passed.isdigit() else PASSED_ON_MAX,
        head.header(b"authorization"),
    )
