"""The registry over HTTP: an ASGI application, which uvicorn serves.

Requests are answered in threads, for the registry blocks.  One that another registry must write is passed on to it;
when that one cannot be reached, this one takes over.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ottla.model.errors import OttlaError
from ottla.model.limits import MIB
from ottla.observe.events import fields
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.routes import Match, MethodNotAllowed, RawText, Request, is_known, route
from ottla.registry.service import AnotherWrites, Registry

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# A record of the topic has about as many at most.
REQUEST_BYTES_MAX: Final = 1 * MIB
# A request that is passed on so often finds no writer: the registries disagree for the moment.
PASSED_ON_MAX: Final = 3
PASS_ON_WITHIN_S: Final = 20.0
# Each has a request of up to `REQUEST_BYTES_MAX`.
WAITING_MAX: Final = 100
_PASSED_HEADER: Final = "x-ottla-passed-on"


class Response(NamedTuple):
    status: int
    body: bytes
    content_type: str = CONTENT_TYPE


class Received(NamedTuple):
    """A request as it came; `target` is the raw path with its query."""

    method: str
    path: str
    query: str
    body: bytes
    passed_on_count: int

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


class HttpApp:
    """`url` is this registry's own."""

    def __init__(self, registry: Registry, url: str) -> None:
        self._registry = registry
        self._url = url
        self._waiting_count = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        received = await _receive(scope, receive)
        if received is None:
            response = failure(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too large", RegistryCode.SCHEMA_TOO_LARGE
            )
        else:
            response = await self._respond(received)
        headers = [
            (b"content-type", response.content_type.encode()),
            (b"content-length", str(len(response.body)).encode()),
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _respond(self, received: Received) -> Response:
        if self._is_known(received):
            return self.answer(received)
        if self._waiting_count >= WAITING_MAX:
            return failure(HTTPStatus.SERVICE_UNAVAILABLE, f"{WAITING_MAX} requests are waiting already: try again")
        self._waiting_count += 1
        try:
            return await asyncio.to_thread(self.answer, received)
        finally:
            self._waiting_count -= 1

    def _is_known(self, received: Received) -> bool:
        """Known schemas need no thread: those may all wait for the cluster."""
        try:
            match = route(received.method, received.path)
        except MethodNotAllowed:
            return False
        return match is not None and is_known(self._registry, match, _request(match, received, {}))

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
            # A bug of ours in one request: the others go on.
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
            raise RegistryError(RegistryCode.FORWARDING_FAILED, "the registries disagree about who writes: try again")
        parts = urlsplit(url)
        if parts.hostname is None or url == self._url:
            return None
        headers = {"Content-Type": CONTENT_TYPE, _PASSED_HEADER: str(received.passed_on_count + 1)}
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PASS_ON_WITHIN_S)
        try:
            connection.request(received.method, received.target, received.body, headers)
            answer = connection.getresponse()
            return Response(answer.status, answer.read(), answer.getheader("Content-Type", CONTENT_TYPE))
        except (OSError, http.client.HTTPException) as error:
            log.warning("writer.unreachable", extra=fields(url=url, error=str(error)))
            return None
        finally:
            connection.close()


def failure(status: int, message: str, code: int | None = None) -> Response:
    return Response(status, json.dumps({"error_code": status if code is None else code, "message": message}).encode())


def _success(answer: object) -> Response:
    text = answer if isinstance(answer, RawText) else json.dumps(answer, ensure_ascii=False)
    return Response(HTTPStatus.OK, text.encode())


def _request(match: Match, received: Received, body: dict[str, Any]) -> Request:
    return Request(match.path, dict(parse_qsl(received.query, keep_blank_values=True)), body)


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


async def _receive(scope: Message, receive: Receive) -> Received | None:
    """None: it is larger than we take."""
    body = bytearray()
    goes_on = True
    while goes_on:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        if len(body) > REQUEST_BYTES_MAX:
            return None
        goes_on = message.get("more_body", False)
    passed = dict(scope["headers"]).get(_PASSED_HEADER.encode(), b"0")
    return Received(
        scope["method"],
        scope["raw_path"].decode("latin-1").partition("?")[0],
        scope["query_string"].decode("latin-1"),
        bytes(body),
        int(passed) if passed.isdigit() else PASSED_ON_MAX,
    )
