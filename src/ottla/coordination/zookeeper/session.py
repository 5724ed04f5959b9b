"""A session with a ZooKeeper, as a `coordination.tree.Tree`.

Calls are started in order.  While the connection is broken they wait, at most a session timeout; those that were
already sent fail with `ConnectionLoss`.

**The lease.**  Only the answer to a *write* extends it, counted from the moment the write was sent: a write is answered
after the leader of the ensemble found the session alive and a majority stored it.  The answer to a ping would prove
less: a server that was cut off from its leader continues to answer pings while the leader expires the session.  So a
session sends an empty write (a check of the chroot) six times per session timeout.

`model.session_lease` has its length and the reason.

**The session** depends on the event loop's progress: the loop beats (`loop_pulse.py`), and kazoo's thread, which would
keep the session of a loop that hangs, sends nothing without a recent beat.  So the session of a process whose loop
hangs ends as that of a paused one does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple, cast

from kazoo.exceptions import ZookeeperError
from kazoo.protocol.serialization import Exists, GetChildren, GetData
from kazoo.protocol.states import KazooState, ZnodeStat

from ottla.coordination.tree import (
    AccessDenied,
    BadVersion,
    CheckNode,
    ConnectionLoss,
    CreateNode,
    DeleteNode,
    Lease,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionLost,
    SessionState,
    SingleWrites,
    Stat,
    TreeError,
    Watch,
    check_path,
    check_size,
    parent_of,
)
from ottla.coordination.zookeeper.access import (
    ConnectString,
    OperationRefused,
    SessionCredentials,
    ZooKeeperDistrusted,
    ZooKeeperRefused,
    ZooKeeperUnreachable,
)
from ottla.coordination.zookeeper.client import LoopPulse, Request, SessionClient
from ottla.coordination.zookeeper.node_access import AccessList, NodeAccess
from ottla.coordination.zookeeper.requests import (
    Call,
    Failure,
    MultiRead,
    MultiWrite,
    ReadAccess,
    RequestQueue,
    WriteAccess,
    full_path,
)
from ottla.coordination.zookeeper.security import UNSECURED, ZooKeeperSecurity
from ottla.model.session_lease import lease_ms
from ottla.observe.events import fields
from ottla.runtime.clock import Clock, SystemClock

READS_PER_REQUEST: Final = 250
RENEWALS_PER_TIMEOUT: Final = 6
# A close waits so long for what was started before, and again for the server to end the session.
CLOSE_WITHIN_S: Final = 2.0

_SUSPENDED_HINT: Final = (
    "start ZooKeeper with its newest data; where that is lost, restore a copy, and restart the brokers after it"
)

log = logging.getLogger(__name__)

_ERRORS: Final[dict[int, type[TreeError]]] = {
    -4: ConnectionLoss,
    -7: ConnectionLoss,  # operation timeout
    -101: NoNode,
    -102: AccessDenied,
    -103: BadVersion,
    -108: NoChildrenForEphemerals,
    -110: NodeExists,
    -111: NotEmpty,
    -112: SessionLost,
    -115: SessionLost,  # authentication failed: the server ends the session
    -118: ConnectionLoss,  # the session moved to another connection
    -122: ConnectionLoss,  # request timeout
}


class _Watcher(NamedTuple):
    """A watch as kazoo keeps it: equal ones of one path are one, and it is called with an event."""

    watch: Watch

    def __call__(self, _event: object) -> None:
        self.watch()


class ZooKeeperSession(SingleWrites):
    """One session, from `open` to its loss; it is never another one.

    `former` is the key of a session that this one continues.
    """

    def __init__(
        self,
        connect: ConnectString,
        timeout_ms: int,
        *,
        security: ZooKeeperSecurity = UNSECURED,
        former: SessionCredentials | None = None,
        lease: Lease | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.state = SessionState.SUSPENDED
        self.lease = lease or Lease()
        self._connect = connect
        self._chroot = connect.chroot
        self._digest = security.digest
        self._access = security.access
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._pulse = LoopPulse(self._clock)
        self._client = SessionClient(
            connect.addresses, timeout_ms, self._on_state, self._pulse, security=security, session=former
        )
        self._requests = RequestQueue(self._client, self._clock, self.lease)
        self._credentials: SessionCredentials | None = None
        self._listeners: list[Callable[[SessionState], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Future[Any] | None = None
        self._overdue: Call | None = None
        # Since when no server continues the session; None while one does.
        self._suspended_ms: int | None = None
        # Whether it was ahead of the servers when that was reported.
        self._reported: bool | None = None
        self._changed = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    async def open(self, within_ms: int) -> None:
        """Connect, make the chroot if it is missing, and write once: reads see all that was committed before.

        Raises `ZooKeeperUnreachable`, `ZooKeeperRefused`.  Without success it must be closed.
        """
        async with self._within(within_ms):
            self._beat()
            self._client.start_async()
            while not await self._try_to_begin():
                continue  # the connection broke

    async def resume(self, within_ms: int) -> bool:
        """Take the `former` session over, to close it; False if it has ended.

        Raises `ZooKeeperUnreachable`.
        """
        async with self._within(within_ms):
            self._beat()
            self._client.start_async()
            await self._wait_for_state()
        return self.state is SessionState.CONNECTED

    @asynccontextmanager
    async def _within(self, within_ms: int) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(within_ms / 1000):
                yield
        except TimeoutError:
            found = self._client.problem
            problem = f"no ZooKeeper gave a session at {self._connect} within {within_ms} ms: {found.text}"
            if found.is_distrust:
                raise ZooKeeperDistrusted(problem, hint=found.hint) from None
            raise ZooKeeperUnreachable(problem.removesuffix(": "), hint=found.hint) from None

    async def _wait_for_state(self) -> None:
        while self.state is SessionState.SUSPENDED:
            self._changed.clear()
            await self._changed.wait()

    async def _try_to_begin(self) -> bool:
        await self._wait_for_state()
        try:
            await self._make_chroot()
            await self.sync()
        except ConnectionLoss:
            return False
        except SessionLost as error:
            if self._client.is_refused:
                problem = f"ZooKeeper at {self._connect} refuses the digest credentials"
                raise ZooKeeperRefused(f"{problem} of {self._digest.user!r}" if self._digest else problem) from error
            raise ZooKeeperUnreachable(f"the session with ZooKeeper at {self._connect} is over") from error
        except AccessDenied as error:
            user = "anyone" if self._digest is None else f"the user {self._digest.user!r}"
            raise ZooKeeperRefused(f"ZooKeeper at {self._connect}: {error.path} is closed to {user}") from error
        return True

    @property
    def session_id(self) -> int:
        assert self._credentials is not None, "the session was never opened"
        return self._credentials.session_id

    @property
    def credentials(self) -> SessionCredentials:
        """The key of this session: with it `ZooKeeperBackend.end_session` ends it from another process."""
        assert self._credentials is not None, "the session was never opened"
        return self._credentials

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the servers granted."""
        return self._client.negotiated_timeout_ms

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        self._require_session()
        for index, operation in enumerate(operations):
            _check(operation, index)
        if not operations:
            return []
        check_size(operations)
        return await self._write(operations, self._chroot)

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        data, stat = await self._read(GetData(self._full(path), _watcher(watch)), path)
        return Node(data or b"", _stat(stat))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._require_session()
        for path in paths:
            check_path(path)
        chunks = [paths[start : start + READS_PER_REQUEST] for start in range(0, len(paths), READS_PER_REQUEST)]
        nodes: list[Node | None] = []
        for part in await asyncio.gather(*[self._read_chunk(chunk, self._chroot) for chunk in chunks]):
            nodes += part
        return nodes

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._read(GetChildren(self._full(path), _watcher(watch)), path)
        return sorted(names)

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        stat: ZnodeStat | None = await self._read(Exists(self._full(path), _watcher(watch)), path)
        return None if stat is None else _stat(stat)

    async def access_of(self, path: str) -> AccessList:
        """Who may do what with a node.  Raises `NoNode`, `AccessDenied`."""
        return cast("AccessList", await self._read(ReadAccess(path, self._chroot), path))

    async def protect(self, path: str) -> Stat:
        """Give a node the rights that it would have if this session created it.  Raises `NoNode`, `AccessDenied`."""
        check_path(path)
        self._require_session(path)
        request = WriteAccess(path, self._chroot, self._access(path))
        return cast("Stat", await self._ask(request, path, is_write=True))

    async def sync(self) -> None:
        """A write of nothing: when it is answered, this session's server has applied all that came before it.

        ZooKeeper's own `sync` reaches the leader alone, which may have lost its majority without knowing it yet.
        """
        self._require_session()
        await self._write([CheckNode("/")], self._chroot)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self.state is SessionState.CONNECTED:
            with suppress(TimeoutError):  # a server that is silent will expire the session
                await asyncio.wait_for(self._requests.wait_until_idle(), CLOSE_WITHIN_S)
        # The lease ends before the server learns of the end, and no late answer revives it.
        self._requests.end(SessionLost)
        self.lease.end()
        dropping = self._loop.call_later(CLOSE_WITHIN_S, self._client.drop_connection)
        try:
            await self._loop.run_in_executor(None, self._client.release)
        finally:
            dropping.cancel()
            self._end()
            if self._beating is not None:
                self._beating.cancel()

    def _beat(self) -> None:
        """Until the session is closed: a close needs kazoo's thread, too."""
        self._pulse.beat()
        self._beating = self._loop.call_later(self.timeout_ms / 1000 / RENEWALS_PER_TIMEOUT, self._beat)

    async def _make_chroot(self) -> None:
        names = self._chroot.split("/")[1:]
        paths = ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]
        for path, node in zip(paths, await self._read_chunk(paths, "", skip_closed=True) if paths else [], strict=True):
            if node is None:
                try:
                    # The consumers read the tree's root; what is above it is only passed.
                    await self._write([CreateNode(path)], "", access=lambda _: self._access("/"))
                except NodeExists:
                    continue  # another broker was faster

    async def _write(
        self, operations: Sequence[Operation], chroot: str, *, access: NodeAccess | None = None
    ) -> list[Stat | None]:
        path = operations[0].path
        results = await self._ask(MultiWrite(operations, chroot, access or self._access), path, is_write=True)
        if results and isinstance(results[0], Failure):
            raise _failure(operations, results[0])
        return list(results)

    async def _read(self, request: Request, path: str) -> Any:
        check_path(path)
        self._require_session(path)
        return await self._ask(request, path)

    def _read_chunk(
        self, paths: Sequence[str], chroot: str, *, skip_closed: bool = False
    ) -> Awaitable[list[Node | None]]:
        """The nodes in one request, started at once.

        A node that may not be read raises, or counts as empty with `skip_closed`.
        """
        answer = self._requests.submit(MultiRead(paths, chroot), paths[0])
        return self._nodes_of(paths, answer, skip_closed=skip_closed)

    async def _nodes_of(
        self, paths: Sequence[str], answer: asyncio.Future[Any], *, skip_closed: bool
    ) -> list[Node | None]:
        nodes: list[Node | None] = []
        for path, found in zip(paths, await self._answer(answer, paths[0]), strict=True):
            if not isinstance(found, int):
                nodes.append(found)
            elif skip_closed and _ERRORS.get(found) is AccessDenied:
                nodes.append(Node(b"", Stat(0, 0, 0, 0, 0, 0)))
            else:
                raise _error_of(found, path)
        return nodes

    async def _ask(self, request: Request, path: str, *, is_write: bool = False) -> Any:
        return await self._answer(self._requests.submit(request, path, is_write=is_write), path)

    async def _answer(self, answer: asyncio.Future[Any], path: str) -> Any:
        """Its errors as those of a tree."""
        try:
            return await answer
        except ZookeeperError as error:
            raise _error_of(error.code, path) from error

    def _full(self, path: str) -> str:
        return full_path(self._chroot, path)

    def _require_session(self, path: str = "/") -> None:
        if self.state is SessionState.LOST or self._closing is not None:
            raise SessionLost(path)

    def _on_state(self, state: KazooState) -> None:
        if self.state is SessionState.LOST:
            return
        if state == KazooState.CONNECTED:
            self._credentials = self._client.credentials or self._credentials
            self._suspended_ms = self._reported = None
            self._client.is_ahead = False
            self._requests.open(lease_ms(self.timeout_ms))
            self._change(SessionState.CONNECTED)
            self._renew_regularly()
        elif state == KazooState.SUSPENDED:
            self._requests.hold()
            if self.state is SessionState.CONNECTED:
                self._suspended_ms = self._clock.boottime_ms()
            self._change(SessionState.SUSPENDED)
        else:
            self._end()
            if self._closing is None:
                self._closing = self._loop.create_task(self._close())

    def _end(self) -> None:
        """The session is over, or cannot be known to be alive."""
        if self.state is SessionState.LOST:
            return
        self.lease.end()
        if self._timer is not None:
            self._timer.cancel()
        self._requests.end(SessionLost)
        self._change(SessionState.LOST)

    def _change(self, state: SessionState) -> None:
        if state is self.state:
            return
        self.state = state
        self._changed.set()
        for listener in self._listeners:
            self._loop.call_soon(partial(listener, state))

    def _renew_regularly(self) -> None:
        """Extend the lease, leave a server that is silent, and give up calls that waited for too long."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self.timeout_ms / 1000 / RENEWALS_PER_TIMEOUT, self._renew_regularly)
        now_ms = self._clock.boottime_ms()
        self._requests.fail_waiting(now_ms - self.timeout_ms)
        if self.state is not SessionState.CONNECTED:
            self._report_suspension(now_ms)
            return
        oldest = self._requests.oldest()
        if oldest is not None and now_ms - oldest.sent_ms > self.timeout_ms // 2:
            # A process that was paused has the answer already: it is read before the next turn of this timer.
            if oldest is self._overdue:
                self._client.drop_connection()
            self._overdue = oldest
        elif self._renewal is None or self._renewal.done():
            self._renewal = self._requests.submit(
                MultiWrite([CheckNode("/")], self._chroot, self._access), "/", is_write=True
            )
            self._renewal.add_done_callback(_ignore_outcome)

    def _report_suspension(self, now_ms: int) -> None:
        """When a server that knew the session would have ended it: waiting alone may not help any more.

        Once, and again when the servers are back without what this session has seen.
        """
        if self._suspended_ms is None or now_ms - self._suspended_ms <= self.timeout_ms:
            return
        is_ahead = self._client.is_ahead
        if self._reported is None or (is_ahead and not self._reported):
            self._reported = is_ahead
            facts = fields(
                connect=str(self._connect),
                timeout_ms=self.timeout_ms,
                problem=self._client.problem.text,
                hint=_SUSPENDED_HINT,
            )
            log.error("session.not_continued", extra=facts)


def _check(operation: Operation, index: int) -> None:
    """What the server would refuse in another way, or not at all."""
    check_path(operation.path)
    if operation.path == "/" and isinstance(operation, DeleteNode):
        raise NotEmpty("/", operation_index=index)
    if operation.path == "/" and isinstance(operation, CreateNode):
        raise NodeExists("/", operation_index=index)


def _failure(operations: Sequence[Operation], failure: Failure) -> TreeError:
    operation = operations[failure.operation_index]
    error = _ERRORS.get(failure.code)
    is_orphan = error is NoNode and isinstance(operation, CreateNode)
    path = parent_of(operation.path) if is_orphan else operation.path
    return _error_of(failure.code, path, failure.operation_index)


def _error_of(code: int, path: str, operation_index: int | None = None) -> TreeError:
    kind = _ERRORS.get(code)
    if kind is None:
        return OperationRefused(path, operation_index=operation_index, hint=f"its error code is {code}")
    return kind(path, operation_index=operation_index)


def _watcher(watch: Watch | None) -> _Watcher | None:
    return None if watch is None else _Watcher(watch)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.ctime, stat.numChildren)


def _ignore_outcome(done: asyncio.Future[Any]) -> None:
    """The renewal's answer has done its work; a failure shows as a state."""
    if not done.cancelled():
        done.exception()
