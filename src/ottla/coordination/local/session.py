"""A session with the tree that another process of this machine holds, as a `coordination.tree.Tree`.

A session is one connection, and is never continued on another.  While its holder cannot be reached it is SUSPENDED, and
its lease holds to the end that the last response gave it; then it is LOST.  Calls that were sent before fail with
`ConnectionLoss`, later ones at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from ottla.coordination.local.messages import (
    RESPONSE_FRAME_BYTES_MAX,
    VERSION,
    FrameReader,
    MalformedMessage,
    Message,
    error_of,
    nodes_of,
    operations_message,
    stats_of,
    understood,
)
from ottla.coordination.local.socket_path import SocketPath
from ottla.coordination.tree import (
    ConnectionLoss,
    Lease,
    Node,
    NoNode,
    Operation,
    SessionLost,
    SessionState,
    SingleWrites,
    Stat,
    TreeError,
    Watch,
    check_path,
    check_size,
)
from ottla.coordination.watch_table import WatchTable
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.session_lease import lease_ms
from ottla.runtime.clock import Clock

READS_PER_REQUEST: Final = 250
RENEWALS_PER_TIMEOUT: Final = 6
# A close waits so long for what was started before, and again for the end of the session.
CLOSE_WITHIN_S: Final = 2.0
OPEN_WITHIN_S: Final = 10.0


class TreeUnreachable(OttlaError):
    """No process serves the tree at the socket, or it does not answer."""

    error_code = ErrorCode.NOT_CONTROLLER
    hint = "the process that started this one holds the tree: it ended, or starts again"


class _Call(NamedTuple):
    """A request without its response.  `on_success` runs as the response is read: before the next message is."""

    path: str
    future: asyncio.Future[Message]
    sent_ms: int
    on_success: Callable[[], None] | None


class LocalSession(SingleWrites, asyncio.Protocol):
    """One session, from `open` to its loss."""

    def __init__(self, lease: Lease | None, clock: Clock) -> None:
        self.session_id = 0
        self.state = SessionState.SUSPENDED
        self.lease = lease or Lease()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(RESPONSE_FRAME_BYTES_MAX)
        self._calls: dict[int, _Call] = {}
        self._calls_count = 0
        self._watches = WatchTable()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._timeout_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Future[Message] | None = None
        self._heard_ms = 0
        self._was_silent = False
        self._closing: asyncio.Task[None] | None = None
        # Set while there is no connection.
        self._disconnected = asyncio.Event()
        self._disconnected.set()

    @classmethod
    async def open(cls, path: Path, timeout_ms: int, *, lease: Lease | None, clock: Clock) -> LocalSession:
        """Connect, and begin a session.  Raises `TreeUnreachable`, `SocketPathTooLong`."""
        session = cls(lease, clock)
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):
                with SocketPath(path).reachable() as address:
                    await session._loop.create_unix_connection(lambda: session, address)
                await session._begin(timeout_ms)
        except BaseException as error:
            session._end()
            await session._disconnected.wait()
            if isinstance(error, TreeError) and not isinstance(error, ConnectionLoss):
                raise TreeUnreachable(f"no session of the tree at {path} begins: {error}", hint=error.hint) from error
            if isinstance(error, OSError | ConnectionLoss):  # TimeoutError is an OSError
                raise TreeUnreachable(f"no process serves the tree at {path}: {error}") from error
            raise
        return session

    async def _begin(self, timeout_ms: int) -> None:
        opened = await self._call("/", {"call": "open", "version": VERSION, "timeout_ms": timeout_ms})
        self.session_id, self._timeout_ms = understood(
            lambda: (int(opened.fields["session_id"]), int(opened.fields["timeout_ms"]))
        )
        self.state = SessionState.CONNECTED
        # The lease begins with a call that is answered: that of a session which exists.
        await self._call("/", {"call": "sync"})
        if self.state is not SessionState.CONNECTED or self._transport is None:
            raise ConnectionLoss("/")  # it ended after the response
        self._renew_regularly()

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        self._require_session()
        check_size(operations)
        for operation in operations:
            check_path(operation.path)
        if not operations:
            return []
        path = operations[0].path
        response = await self._send(path, operations_message(self._next_id(), operations))
        return list(understood(lambda: stats_of(response.fields["stats"])))

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        response = await self._read("get", path, watch, self._watches.watch_data)
        node = nodes_of(response)[0]
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._require_session()
        for path in paths:
            check_path(path)
        nodes: list[Node | None] = []
        while len(nodes) < len(paths):
            chunk = list(paths[len(nodes) : len(nodes) + READS_PER_REQUEST])
            found = nodes_of(await self._call(chunk[0], {"call": "get_many", "paths": chunk}))
            if not 0 < len(found) <= len(chunk):
                raise MalformedMessage(f"a read of {len(chunk)} nodes of the tree is answered with {len(found)}")
            nodes += found
        return nodes

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        response = await self._read("children", path, watch, self._watches.watch_children)
        return list(understood(lambda: response.fields["names"]))

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        response = await self._read("exists", path, watch, self._watches.watch_data)
        (stat,) = understood(lambda: stats_of(response.fields["stats"]))
        return stat if stat is None else Stat(*stat)

    async def sync(self) -> None:
        """The holder reads and writes one table: an answer of it is the present."""
        self._require_session()
        await self._call("/", {"call": "sync"})

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self.state is SessionState.CONNECTED:
            started = [call.future for call in self._calls.values()]
            if started:
                await asyncio.wait(started, timeout=CLOSE_WITHIN_S)
            # The lease ends before the holder learns of the end, and no late response revives it.
            self._timeout_ms = 0
            self._cancel_timer()
            self.lease.end()
            with contextlib.suppress(TimeoutError, OttlaError):
                async with asyncio.timeout(CLOSE_WITHIN_S):
                    await self._call("/", {"call": "close"})
        self._end()
        await self._disconnected.wait()

    async def _read(self, call: str, path: str, watch: Watch | None, register: Callable[[str, Watch], None]) -> Message:
        check_path(path)
        self._require_session(path)
        fields = {"call": call, "path": path}
        if watch is None:
            return await self._call(path, fields)
        return await self._call(path, {**fields, "watch": True}, partial(register, path, watch))

    def _call(
        self, path: str, fields: dict[str, Any], on_success: Callable[[], None] | None = None
    ) -> asyncio.Future[Message]:
        return self._send(path, Message({"id": self._next_id(), **fields}), on_success)

    def _next_id(self) -> int:
        self._calls_count += 1
        return self._calls_count

    def _send(
        self, path: str, message: Message, on_success: Callable[[], None] | None = None
    ) -> asyncio.Future[Message]:
        """Sends it at once: calls reach the holder in the order of their starts."""
        future: asyncio.Future[Message] = self._loop.create_future()
        if self._transport is None or self._transport.is_closing():
            future.set_exception(ConnectionLoss(path))
            return future
        self._calls[message.fields["id"]] = _Call(path, future, self._clock.boottime_ms(), on_success)
        self._transport.write(message.encode())
        return future

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._disconnected.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnected.set()
        self._on_disconnect()
        if exc is not None and not isinstance(exc, ConnectionResetError | BrokenPipeError):
            # The holder runs, and ends the session.
            self._end()

    def data_received(self, data: bytes) -> None:
        self._heard_ms = self._clock.boottime_ms()
        try:
            for message in self._frames.feed(data):
                self._on_message(message)
        except BaseException:
            # The loop closes the connection after an error, and the holder ends the session: the lease ends first.
            self._end()
            raise

    def _on_message(self, message: Message) -> None:
        if "id" in message.fields:
            self._on_response(message)
        elif "fired" in message.fields:
            self._on_fired(understood(lambda: [(str(kind), str(path)) for kind, path in message.fields["fired"]]))
        elif self._closing is None:
            # The holder ended the session: its file failed, or it was silent for too long.
            self._end()

    def _on_response(self, message: Message) -> None:
        call = self._calls.pop(message.fields["id"], None)
        if call is None:
            return
        if self._timeout_ms:
            self.lease.extend(call.sent_ms + lease_ms(self._timeout_ms))
        if "error" in message.fields:
            failure: Exception = error_of(message)
            if not call.future.done():
                call.future.set_exception(failure)
            return
        if call.on_success is not None:
            call.on_success()
        if not call.future.done():
            call.future.set_result(message)

    def _on_fired(self, fired: Sequence[tuple[str, str]]) -> None:
        data = [path for kind, path in fired if kind == "data"]
        children = [path for kind, path in fired if kind == "children"]
        for watch in self._watches.take_for(data, children):
            self._loop.call_soon(watch)

    def _on_disconnect(self) -> None:
        self._transport = None
        self._fail_calls()
        if self.state is SessionState.CONNECTED and self._closing is None:
            self._change(SessionState.SUSPENDED)
            self._cancel_timer()
            left_ms = self.lease.until_ms - self._clock.boottime_ms()
            # The lease may end later by the clock than by the timer: then it is ended here.
            self._timer = self._loop.call_later(max(left_ms, 0) / 1000, self._end)

    def _renew_regularly(self) -> None:
        """Extend the lease, beside calls that wait for the disk; and leave a holder that is silent for a timeout."""
        self._timer = self._loop.call_later(self._timeout_ms / 1000 / RENEWALS_PER_TIMEOUT, self._renew_regularly)
        if self._renewal is None or self._renewal.done():
            self._renewal = self._call("/", {"call": "sync"})
            self._renewal.add_done_callback(_ignore_outcome)
        is_silent = self._clock.boottime_ms() - self._heard_ms > self._timeout_ms
        # A process that was paused has the response already: it is read before the next turn of this timer.
        if is_silent and self._was_silent:
            self._end()
        self._was_silent = is_silent

    def _end(self) -> None:
        """The session is over, or cannot be known to be alive.  The lease ends before the connection does."""
        self.lease.end()
        self._timeout_ms = 0
        self._cancel_timer()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._fail_calls()
        if self.state is not SessionState.LOST:
            self._change(SessionState.LOST)
            for watch in self._watches.take_all():
                self._loop.call_soon(watch)

    def _fail_calls(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.future.done():
                call.future.set_exception(ConnectionLoss(call.path))
                # A caller that was cancelled does not read it: asyncio must not report it as forgotten.
                call.future.exception()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _change(self, state: SessionState) -> None:
        self.state = state
        for listener in self._listeners:
            self._loop.call_soon(partial(listener, state))

    def _require_session(self, path: str = "/") -> None:
        if self.state is SessionState.LOST or self._closing is not None:
            raise SessionLost(path)


def _ignore_outcome(done: asyncio.Future[Message]) -> None:
    """The renewal's response has done its work; a failure shows as a state."""
    if not done.cancelled():
        done.exception()
