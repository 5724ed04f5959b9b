"""`--admin-listen`: `/metrics`, `/healthz` and `/readyz` over HTTP, for Prometheus and for supervisors.

It only reads, and it is bounded: some connections, one GET each, small requests, and a time-out for all of it.  When
all places are taken, or those of one address, the newest connection gets the place of the oldest one that has not sent
its request, else of the oldest: supervisors send theirs with the connection, so `/healthz` answers however many are
silent or read nothing.

With logins `/metrics` needs the role read.  Health is answered to every client, its reasons to those with the role.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from ottla.broker.security.http_logins import HttpLogins
from ottla.broker.security.tls_acceptor import TlsAcceptor, certificate_principal
from ottla.broker.security.tls_server import TlsServer
from ottla.model.errors import WireError
from ottla.model.listener import without_mapping
from ottla.observe.events import fields
from ottla.observe.metrics import CONTENT_TYPE, CollectorRegistry
from ottla.security.http_access import HttpHead, HttpRefused, Peer, Role

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
CONNECTIONS_OF_ADDRESS_MAX: Final = 48
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
    challenges: Sequence[str] = ()


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

    def __init__(
        self,
        listening: socket.socket,
        logins: HttpLogins,
        tls: TlsServer | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`tls`: None for HTTP without it."""
        self.registry: Final = CollectorRegistry()
        self.health: Final = Health()
        self.tls: Final = tls
        self._logins: Final = logins
        self._listening = listening
        self._request_timeout_s = request_timeout_s
        self._server: asyncio.Server | TlsAcceptor | None = None
        # In the order in which they came, with their address; the second has those whose request has not arrived, the
        # third scrapes.
        self._connections: dict[asyncio.Task[None], str] = {}
        self._silent: dict[asyncio.Task[None], None] = {}
        self._scrapes: dict[asyncio.Task[None], None] = {}
        # The role that each needs.
        self._roles: Final[Mapping[str, Role | None]] = {"/metrics": Role.READ, "/healthz": None, "/readyz": None}

    async def start(self) -> None:
        loop = asyncio.get_running_loop()

        def connected() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(REQUEST_BYTES_MAX, loop), self._serve, loop)

        if self.tls is None:
            self._server = await loop.create_server(connected, sock=self._listening)
        else:
            self._server = TlsAcceptor(self._listening, self.tls, connected, self._request_timeout_s)
            self._server.start()
        host, port = self._listening.getsockname()[:2]
        scheme = "http" if self.tls is None else "https"
        log.info("admin.listening", extra=fields(scheme=scheme, host=host, port=port))

    async def stop(self) -> None:
        """Close at once: a request from now on would be for a broker that has stopped."""
        if self._server is not None:
            self._server.close()
        if isinstance(self._server, TlsAcceptor):
            await self._server.wait_closed()
        self._listening.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        host = without_mapping((writer.get_extra_info("peername") or ("",))[0])
        self._make_room(host)
        self._connections[task], self._silent[task] = host, None
        try:
            peer = self._peer(writer, host)
            async with asyncio.timeout(self._request_timeout_s):
                head = await reader.readuntil(_END_OF_HEAD)
            self._silent.pop(task, None)
            response = await self._response(head, peer)
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                writer.write(_encoded(response))
                writer.close()
                await writer.wait_closed()
        except (
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ConnectionError,
            WireError,
        ) as error:
            log.debug("admin.refused", extra=fields(peer=host, error=str(error)))
        finally:
            self._forget(task)
            # A peer that reads nothing keeps neither the socket nor the response.
            writer.transport.abort()

    def _peer(self, writer: asyncio.StreamWriter, host: str) -> Peer:
        """Raises `WireError` for a certificate without a name."""
        if self.tls is None:
            return Peer(host)
        return Peer(host, certificate_principal(self.tls, writer.transport), is_encrypted=True)

    def _make_room(self, host: str) -> None:
        """Of one address first: an address that takes all of its places keeps none from another."""
        of_address = [task for task, each in self._connections.items() if each == host]
        if len(of_address) >= CONNECTIONS_OF_ADDRESS_MAX:
            silent = [task for task in of_address if task in self._silent]
            self._evict(dict.fromkeys(silent or of_address))
        elif len(self._connections) >= CONNECTIONS_MAX:
            self._evict(self._silent or self._connections)

    def _evict(self, tasks: Mapping[asyncio.Task[None], object]) -> None:
        """End the oldest of these connections; its place is free at once."""
        oldest = next(iter(tasks))
        oldest.cancel()
        self._forget(oldest)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task, None)
        self._silent.pop(task, None)
        self._scrapes.pop(task, None)

    async def _response(self, data: bytes, peer: Peer) -> Response:
        try:
            head = HttpHead.parse(data)
            path = head.path
            principal = await self._logins.admit(head, peer, self._roles.get(path, Role.READ))
        except HttpRefused as refused:
            return Response(refused.status, f"{refused}\n", challenges=refused.challenges)
        if head.method != "GET":
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is served\n")
        if path not in self._roles:
            return Response(HTTPStatus.NOT_FOUND, f"there are {', '.join(self._roles)}\n")
        try:
            return await self._serve_path(path, shows_reasons=self._logins.allows(principal, Role.READ))
        except Exception as bug:
            # A bug in a figure: the scrape fails visibly, and the broker serves.
            log.exception("admin.failed")
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, f"a bug: {bug!r}\n")

    async def _serve_path(self, path: str, *, shows_reasons: bool) -> Response:
        if path == "/metrics":
            return await self._metrics()
        problems = self.health.life_problems() if path == "/healthz" else self.health.service_problems()
        return _health_response(problems if shows_reasons or not problems else ["log in to see why"])

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
    head += [f"WWW-Authenticate: {challenge}" for challenge in response.challenges]
    if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET")
    return "\r\n".join([*head, "", ""]).encode() + body
