"""The holder's side: gives sessions of its embedded tree to other processes, over a Unix socket.

**Sessions.**  A session is one connection.  It ends when the connection does: then its process has ended, or has given
its lease up before; after an error of the connection the server waits for the lease's end first.  It also ends when
nothing arrived for a session timeout: a process that is paused keeps its connection, and its ephemeral nodes must not
stay with it.

**Leases.**  A session's holder counts its lease from the moment it sent a request that was answered; the server counts
the timeout from the receipt, which is later (`model.session_lease`).  A server that was paused itself read nothing
meanwhile: it adds its own pause to every session before it ends one.

**After a crash** of the server, ephemeral nodes are gone with its memory, and holders of leases that it gave may still
act.  So a server that finds the mark of one that did not end its sessions waits until the last of those leases must
have ended, and only then accepts connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from ottla.coordination.embedded.backend import EmbeddedBackend, EmbeddedSession
from ottla.coordination.local.messages import (
    REQUEST_FRAME_BYTES_MAX,
    VERSION,
    FrameReader,
    MalformedMessage,
    Message,
    error_message,
    nodes_message,
    operations_of,
    understood,
)
from ottla.coordination.local.socket_path import SocketPath
from ottla.model.errors import OttlaError
from ottla.model.session_lease import lease_ms
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk, read_file, replace_file

# ZooKeeper's bounds of a session timeout are like these.  After a crash the next server waits for the longest lease.
SESSION_TIMEOUT_MS_MIN: Final = 500
SESSION_TIMEOUT_MS_MAX: Final = 60_000
LOOK_INTERVAL_MS: Final = 100
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"

log = logging.getLogger(__name__)


class SessionsMark:
    """A file that exists while sessions may hold leases: of this server, or of one that crashed."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._exists = disk.exists(path)
        self._timeout_ms = 0

    def lease_left_ms(self) -> int:
        """For how long leases that a former server gave may hold from now on; 0 where none does.

        A start of the machine ended all of their holders.
        """
        if not self._exists:
            return 0
        try:
            content = json.loads(read_file(self._disk, self._path))
            return 0 if content["boot_id"] != _boot_id() else lease_ms(int(content["timeout_ms"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("tree_server.mark_unreadable", extra=fields(path=self._path, error=str(error)))
            return lease_ms(SESSION_TIMEOUT_MS_MAX)

    def put(self, timeout_ms: int) -> None:
        """Before a session of this timeout begins.  Raises `OSError`."""
        if timeout_ms <= self._timeout_ms:
            return
        replace_file(self._disk, self._path, json.dumps({"timeout_ms": timeout_ms, "boot_id": _boot_id()}).encode())
        self._exists = True
        # Last: a mark that was not written must not count.
        self._timeout_ms = timeout_ms

    def remove(self) -> None:
        """No session is left."""
        if self._exists:
            self._disk.remove(self._path)
            self._exists = False


class TreeServer:
    """Serves `backend` at a socket; the caller owns the backend, and closes it after the server.

    `mark_path` names the file of `SessionsMark`; only one server may use it, and the socket, at a time.
    """

    def __init__(
        self,
        backend: EmbeddedBackend,
        socket_path: Path,
        mark_path: str,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._path: Final = SocketPath(socket_path)
        self._mark: Final = SessionsMark(disk, mark_path)
        self._clock: Final = clock
        self._shared: Final = _Shared(backend, self._mark, clock)
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looked_ms = 0

    async def start(self) -> None:
        """Accept connections, at once or after the leases of a former server.

        Raises `SocketPathTooLong`, `OSError`.
        """
        left_ms = self._mark.lease_left_ms()
        if left_ms:
            log.warning("tree_server.awaits_leases", extra=fields(wait_ms=left_ms))
            await asyncio.sleep(left_ms / 1000)
        loop = asyncio.get_running_loop()
        with self._path.reachable() as path:
            # One that a crash left; this process holds the lock of the directory.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listening.bind(path)
                # Before it listens, and so before any connection.
                os.chmod(path, 0o600)
                self._server = await loop.create_unix_server(self._connection, sock=listening)
            except BaseException:
                listening.close()
                raise
        self._looked_ms = self._clock.boottime_ms()
        self._look_later()

    async def close(self) -> None:
        """Accept no connection, and end all of them.  Sessions that are still there may hold leases: the next server
        waits for these."""
        if self._timer is not None:
            self._timer.cancel()
        # A connection that was accepted in this turn of the loop gets no session.
        self._shared.is_closing = True
        is_free = not self._shared.connections
        if self._server is not None:
            self._server.close()
            with self._path.reachable() as path, contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        await asyncio.gather(*(connection.end() for connection in list(self._shared.connections)))
        if self._server is not None:
            await self._server.wait_closed()
        if is_free and self._server is not None:
            self._mark.remove()

    def _connection(self) -> _Connection:
        return _Connection(self._shared)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_MS / 1000, self._look)

    def _look(self) -> None:
        now_ms = self._clock.boottime_ms()
        late_ms = now_ms - self._looked_ms - 2 * LOOK_INTERVAL_MS
        self._looked_ms = now_ms
        for connection in list(self._shared.connections):
            if late_ms > 0:
                # What arrived while this process was paused is not read yet.  Only what is beyond a usual delay counts
                # as a pause: on a machine that is always late sessions must end, too.  A session's process sends six
                # times in a timeout, so that and this delay are less than the shortest timeout.
                connection.extend(late_ms, now_ms)
            if connection.is_silent(now_ms):
                log.warning("tree_server.session_expired", extra=fields(session_id=connection.session_id))
                connection.drop()
        self._look_later()


class _Shared:
    """What all connections of a server have in common."""

    def __init__(self, backend: EmbeddedBackend, mark: SessionsMark, clock: Clock) -> None:
        self.backend: Final = backend
        self.mark: Final = mark
        self.clock: Final = clock
        self.connections: Final[set[_Connection]] = set()
        self.is_closing = False


class _Connection(asyncio.Protocol):
    """One process's connection, and the session that it has from its first message on."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        # Until the first message has the session's.
        self._timeout_ms = SESSION_TIMEOUT_MS_MAX
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._session: EmbeddedSession | None = None
        self._frames = FrameReader(REQUEST_FRAME_BYTES_MAX)
        self._seen_ms = shared.clock.boottime_ms()
        # The watches of this session, by kind and path: setting one again makes no second one.
        self._watches: dict[tuple[str, str], Callable[[], None]] = {}
        self._fired: list[tuple[str, str]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._disconnected = asyncio.Event()
        # The connection was broken from here, or by an error: the other end may hold its lease.
        self._is_broken = False
        self._is_awaited = asyncio.Event()

    @property
    def session_id(self) -> int | None:
        return None if self._session is None else self._session.session_id

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self._seen_ms > self._timeout_ms

    def extend(self, paused_ms: int, now_ms: int) -> None:
        """The server could not read for so long."""
        self._seen_ms = min(now_ms, self._seen_ms + paused_ms)

    def drop(self) -> None:
        """End the connection, and with it the session."""
        if self._transport is not None:
            self._transport.abort()
        self._end_soon()

    async def end(self) -> None:
        """Return when the connection and the session are over."""
        self._is_awaited.set()
        self.drop()
        if self._ending is not None:
            await self._ending
        await self._disconnected.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._shared.is_closing:
            self._transport.abort()
        self._shared.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnected.set()
        # A reset is the other end's, too: unread bytes were there when it closed.
        if exc is not None and not isinstance(exc, ConnectionResetError | BrokenPipeError):
            self._is_broken = True
        self._end_soon()

    def data_received(self, data: bytes) -> None:
        self._seen_ms = self._shared.clock.boottime_ms()
        try:
            for message in self._frames.feed(data):
                self._start(message)
        except MalformedMessage as error:
            self._break_off(error)

    def _break_off(self, error: MalformedMessage) -> None:
        log.warning("tree_server.malformed", extra=fields(error=str(error)))
        self._is_broken = True
        self.drop()

    def _start(self, message: Message) -> None:
        """Calls of a session take effect in their order: each task runs to its first wait in the order of its start."""
        task = self._loop.create_task(self._respond(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, message: Message) -> None:
        try:
            call_id, path = understood(lambda: (int(message.fields["id"]), str(message.fields.get("path", "/"))))
            try:
                response = await self._result(call_id, path, message)
            except (OttlaError, ValueError) as error:
                if isinstance(error, MalformedMessage):
                    raise
                failure = error if isinstance(error, OttlaError) else OttlaError(str(error))
                response = error_message(call_id, path, failure)
        except MalformedMessage as error:
            self._break_off(error)
        except Exception:
            # No request may wait for a response that cannot come.
            log.exception("tree_server.bug")
            self._is_broken = True
            self.drop()
        else:
            self._send(response)

    async def _result(self, call_id: int, path: str, message: Message) -> Message:
        call = understood(lambda: message.fields["call"])
        if call == "open":
            return await self._open(call_id, message)
        session = self._session
        if session is None:
            raise MalformedMessage(f"the first message of a tree's connection is {call!r}")
        match call:
            case "multi":
                return Message({"id": call_id, "stats": await session.multi(operations_of(message))})
            case "get":
                return nodes_message(call_id, [await session.get(path, watch=self._watch("data", path, message))])
            case "get_many":
                paths = understood(lambda: [str(each) for each in message.fields["paths"]])
                return nodes_message(call_id, await session.get_many(paths))
            case "children":
                names = await session.children(path, watch=self._watch("children", path, message))
                return Message({"id": call_id, "names": names})
            case "exists":
                stat = await session.exists(path, watch=self._watch("data", path, message))
                return Message({"id": call_id, "stats": [stat]})
            case "sync":
                await session.sync()
                return Message({"id": call_id})
            case "close":
                await session.close()
                return Message({"id": call_id})
        raise MalformedMessage(f"a message of a tree's connection has the call {call!r}")

    async def _open(self, call_id: int, message: Message) -> Message:
        version, wanted_ms = understood(lambda: (message.fields["version"], int(message.fields["timeout_ms"])))
        if self._session is not None or self._shared.is_closing:
            raise MalformedMessage("a connection of the tree opens a second session, or one of a server that closes")
        if version != VERSION:
            raise OttlaError(f"its messages are of version {VERSION}, and {version} was demanded")
        self._timeout_ms = min(max(wanted_ms, SESSION_TIMEOUT_MS_MIN), SESSION_TIMEOUT_MS_MAX)
        try:
            self._shared.mark.put(self._timeout_ms)
        except OSError as error:
            raise OttlaError(f"the file that marks its sessions cannot be written: {error}") from error
        session = await self._shared.backend.connect()
        session.add_session_listener(lambda _: self._write(Message({"ended": True})))
        if self._ending is not None:
            await session.close()
        self._session = session
        return Message({"id": call_id, "session_id": session.session_id, "timeout_ms": self._timeout_ms})

    def _watch(self, kind: str, path: str, message: Message) -> Callable[[], None] | None:
        if not message.fields.get("watch"):
            return None
        return self._watches.setdefault((kind, path), lambda: self._on_change(kind, path))

    def _on_change(self, kind: str, path: str) -> None:
        """One commit calls all of its watches in one turn of the loop: they are one message after it."""
        self._watches.pop((kind, path), None)
        if not self._fired:
            self._loop.call_soon(self._send_fired)
        self._fired.append((kind, path))

    def _send_fired(self) -> None:
        if self._fired:
            fired, self._fired = self._fired, []
            self._write(Message({"fired": fired}))

    def _send(self, response: Message) -> None:
        # A response shows the tree after these changes: their watches come first.
        self._send_fired()
        self._write(response)

    def _write(self, message: Message) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(message.encode())

    def _end_soon(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        try:
            # Writes that were received before are applied.
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._is_broken and self._session is not None:
                await self._await_lease()
            if self._session is not None:
                await self._session.close()
        except OttlaError as error:
            # The tree's file failed: it ended all sessions.
            log.warning("tree_server.session_not_ended", extra=fields(error=str(error)))
        finally:
            self._shared.connections.discard(self)

    async def _await_lease(self) -> None:
        """Until the lease that the other end may hold is over; not when the server closes, whose mark stays."""
        left_ms = self._seen_ms + lease_ms(self._timeout_ms) - self._shared.clock.boottime_ms()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_awaited.wait(), max(left_ms, 0) / 1000)


def _boot_id() -> str:
    """Of this run of the machine; empty where the system has none."""
    try:
        return Path(BOOT_ID).read_text().strip()
    except OSError:
        return ""
