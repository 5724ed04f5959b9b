"""Calls of one API to other brokers, in which everything that waits for a broker is sent at once.

Each broker has a few connections at the inter-broker listener, with one request in flight on each.  After an error,
also a time-out, the connection is closed before anything is sent again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.replicas.peer_connection import (
    PeerAddress,
    PeerConnection,
    PeerError,
    PeerSecurity,
    PeerUnreachable,
)
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import NodeId
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_response, encode_request

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")

CONNECT_TIMEOUT_MS: Final = 5_000
_RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024
# Of one request.
_ITEMS_MAX: Final = 1_000


class Peer(Protocol):
    """An open connection to another broker; see `PeerConnection`."""

    async def call(self, api: ApiKey, version: int, body: Buffer, timeout_ms: int) -> memoryview: ...

    def close(self) -> None: ...


class Peers(Protocol):
    """The other brokers."""

    async def connect(self, node_id: NodeId, api: ApiKey, version: int) -> Peer:
        """A new connection to a broker that has this version.  Raises `PeerError`."""
        ...


class RegisteredPeers(NamedTuple):
    """`Peers`.  `address_of`: where a live one listens for others; None for one that is not live."""

    node_id: NodeId
    address_of: Callable[[NodeId], tuple[str, int] | None]
    security: PeerSecurity

    async def connect(self, node_id: NodeId, api: ApiKey, version: int) -> PeerConnection:
        address = self.address_of(node_id)
        if address is None:
            raise PeerUnreachable(f"broker {node_id} is not registered")
        connection = await PeerConnection.open(
            PeerAddress(*address),
            f"ottla-transactions-{self.node_id}",
            timeout_ms=CONNECT_TIMEOUT_MS,
            response_bytes_max=_RESPONSE_BYTES_MAX,
            security=self.security,
        )
        try:
            await connection.require(api, version, CONNECT_TIMEOUT_MS)
        except BaseException:
            connection.close()
            raise
        return connection


class PeerApi(NamedTuple, Generic[T]):
    """One kind of calls.

    `key_of`: of two items with one key the second waits for the answer to the first.  `request_of` makes the request of
    some items; `on_answer` takes them with the response, `on_failed` with why there is none.
    """

    api: ApiKey
    version: int
    connections_max: int
    timeout_ms: int
    key_of: Callable[[T], Hashable]
    request_of: Callable[[Sequence[T]], object]
    on_answer: Callable[[Sequence[T], Any], None]
    on_failed: Callable[[Sequence[T], OttlaError], None]


class _Calls(Generic[T]):
    """Those to one broker."""

    __slots__ = ("idle", "in_flight", "running_count", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[T] = deque()
        self.in_flight: set[Hashable] = set()
        self.idle: list[Peer] = []
        self.running_count = 0


class PeerCalls(Generic[T]):
    """Every method runs on the event loop's thread."""

    def __init__(self, peers: Peers, loop: asyncio.AbstractEventLoop, api: PeerApi[T]) -> None:
        self._others = peers
        self._loop = loop
        self._api = api
        self._peers: dict[NodeId, _Calls[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def send(self, node_id: NodeId, item: T) -> None:
        """Send it with the next request to this broker; it is in one call of `on_answer` or `on_failed` later."""
        peer = self._peers.get(node_id)
        if peer is None:
            peer = self._peers[node_id] = _Calls()
        peer.waiting.append(item)
        self._start(node_id, peer)

    async def stop(self) -> None:
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for peer in self._peers.values():
            for connection in peer.idle:
                connection.close()

    def _start(self, node_id: NodeId, peer: _Calls[T]) -> None:
        if not self._is_stopped and peer.running_count < self._api.connections_max:
            peer.running_count += 1
            task = self._loop.create_task(self._run(node_id, peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, node_id: NodeId, peer: _Calls[T]) -> None:
        """Send what waits, until nothing does."""
        try:
            while items := self._take(peer):
                try:
                    await self._call(node_id, peer, items)
                finally:
                    peer.in_flight.difference_update(map(self._api.key_of, items))
        finally:
            peer.running_count -= 1

    def _take(self, peer: _Calls[T]) -> list[T]:
        taken: list[T] = []
        left: list[T] = []
        while peer.waiting and len(taken) < _ITEMS_MAX:
            item = peer.waiting.popleft()
            key = self._api.key_of(item)
            if key in peer.in_flight:
                left.append(item)
            else:
                peer.in_flight.add(key)
                taken.append(item)
        peer.waiting.extendleft(reversed(left))
        return taken

    async def _call(self, node_id: NodeId, peer: _Calls[T], items: Sequence[T]) -> None:
        api = self._api
        connection: Peer | None = None
        try:
            connection = peer.idle.pop() if peer.idle else await self._others.connect(node_id, api.api, api.version)
            request: Buffer = encode_request(api.api, api.version, api.request_of(items))
            body = await connection.call(api.api, api.version, request, api.timeout_ms)
            response = decode_response(api.api, api.version, body)
        except (PeerError, WireError) as error:
            if connection is not None:
                connection.close()
            api.on_failed(items, error)
            return
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        peer.idle.append(connection)
        api.on_answer(items, response)
