"""`--admin-listen`: `/metrics`, `/healthz` and `/readyz` over HTTP, for Prometheus and for supervisors.

It only reads, and it is bounded: some connections, one GET each, small requests, and a time-out for all of it.  When
all places are taken the newest connection gets the place of the oldest one that has not sent its request, else of the
oldest: supervisors send theirs with the connection, so `/healthz` answers however many are silent or read nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from ottla.observe.events import fields
from ottla.observe.metrics import CONTENT_TYPE, CollectorRegistry

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
# Of `/metrics` at once, each some megabytes: the oldest ends when another one comes.
SCRAPES_MAX: Final = 4
REQUEST_BYTES_MAX: Final = 8 * 1024
# For the request to arrive.
REQUEST_TIMEOUT_S: Final = 3.0
# For the response to be received: of many metrics it has megabytes.
RESPONSE_TIMEOUT_S: Final = 10.0

_END_OF_HEAD: Final = b"\r\n\r\n"
_PLAIN: Final = "text/plain; charset=utf-8"


class Response(NamedTuple):
    status: HTTPStatus
    body: str
    content_type: str = _PLAIN


class Health:
    """Whether the broker lives, and whether it serves; each problem is a line for people."""

    def __init__(self) -> None:
        # Called at each request: the text of a problem, or None.
        self._life_checks: list[Callable[[], str | None]] = []
        self._service_checks: list[Callable[[], str | None]] = []
        self._not_serving: str | None = "starting"

    def serving(self) -> None:
        """The broker's start is complete."""
        self._not_serving = None

    def stopping(self) -> None:
        self._not_serving = "stopping"

    def add_life_check(self, check: Callable[[], str | None]) -> None:
        """A problem that this process cannot overcome: it should be looked at, and started again."""
        self._life_checks.append(check)

    def add_service_check(self, check: Callable[[], str | None]) -> None:
        """A problem that keeps clients from being served, and may pass."""
        self._service_checks.append(check)

    def life_problems(self) -> list[str]:
        return [problem for check in self._life_checks if (problem := check()) is not None]

    def service_problems(self) -> list[str]:
        found = [] if self._not_serving is None else [self._not_serving]
        found += [problem for check in self._service_checks if (problem := check()) is not None]
        return found + self.life_problems()


class AdminServer:
    """Serves metrics and health on one socket, which is bound already."""

    def __init__(self, listening: socket.socket, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.registry: Final = CollectorRegistry()
        self.health: Final = Health()
        self._listening = listening
        self._request_timeout_s = request_timeout_s
        self._server: asyncio.Server | None = None
        # In the order in which they came; the second has those whose request has not arrived, the third scrapes.
        self._connections: dict[asyncio.Task[None], None] = {}
        self._silent: dict[asyncio.Task[None], None] = {}
        self._scrapes: dict[asyncio.Task[None], None] = {}
        self._paths: Final[Mapping[str, Callable[[], Awaitable[Response]]]] = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._listening, limit=REQUEST_BYTES_MAX)
        host, port = self._listening.getsockname()[:2]
        log.info("admin.listening", extra=fields(host=host, port=port))

    async def stop(self) -> None:
        """Close at once: a request from now on would be for a broker that has stopped."""
        if self._server is not None:
            self._server.close()
        self._listening.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            self._evict(self._silent or self._connections)
        self._connections[task] = self._silent[task] = None
        try:
            async with asyncio.timeout(self._request_timeout_s):
                head = await reader.readuntil(_END_OF_HEAD)
            self._silent.pop(task, None)
            response = await self._response(head)
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                writer.write(_encoded(response))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            log.debug("admin.refused", extra=fields(error=str(error)))
        finally:
            self._forget(task)
            # A peer that reads nothing keeps neither the socket nor the response.
            writer.transport.abort()

    def _evict(self, tasks: Mapping[asyncio.Task[None], None]) -> None:
        """End the oldest of these connections; its place is free at once."""
        oldest = next(iter(tasks))
        oldest.cancel()
        self._forget(oldest)

    def _forget(self, task: asyncio.Task[None]) -> None:
        for tasks in (self._connections, self._silent, self._scrapes):
            tasks.pop(task, None)

    async def _response(self, head: bytes) -> Response:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Response(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1\n")
        if words[0] != "GET":
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is served\n")
        serve = self._paths.get(words[1].partition("?")[0])
        if serve is None:
            return Response(HTTPStatus.NOT_FOUND, f"there are {', '.join(self._paths)}\n")
        try:
            return await serve()
        except Exception as bug:
            # A bug in a figure: the scrape fails visibly, and the broker serves.
            log.exception("admin.failed")
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, f"a bug: {bug!r}\n")

    async def _metrics(self) -> Response:
        task = asyncio.current_task()
        assert task is not None
        if len(self._scrapes) >= SCRAPES_MAX:
            self._evict(self._scrapes)
        self._scrapes[task] = None
        chunks = []
        for chunk in self.registry.chunks():
            chunks.append(chunk)
            # Requests of clients come between two chunks.
            await asyncio.sleep(0)
        return Response(HTTPStatus.OK, "".join(chunks), CONTENT_TYPE)

    async def _healthz(self) -> Response:
        return _health_response(self.health.life_problems())

    async def _readyz(self) -> Response:
        return _health_response(self.health.service_problems())


def _health_response(problems: list[str]) -> Response:
    if not problems:
        return Response(HTTPStatus.OK, "ok\n")
    return Response(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{problem}\n" for problem in problems))


def _encoded(response: Response) -> bytes:
    body = response.body.encode()
    head = [
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET")
    return "\r\n".join([*head, "", ""]).encode() + body
