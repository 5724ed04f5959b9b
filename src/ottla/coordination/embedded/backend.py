"""The embedded backend: sessions of this process over one tree file.

One batch is in flight at a time.  While the writer thread commits it, later requests wait; then all waiting ones are
checked in order against the staged table and form the next batch: group commit without a timer.  When the commit is
done, the change reaches the committed table, watches are called and futures resolved, in this order, on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from ottla.coordination.embedded.errors import (
    NOTHING_IN_IT,
    TreeStoreError,
    TreeStoreFailed,
    TreeStoreFull,
    TreeStoreLost,
)
from ottla.coordination.embedded.journal import Journal, JournalEntry, entry_of
from ottla.coordination.embedded.node_table import NodeTable, Origin, Staging, TreeChange
from ottla.coordination.tree import (
    LEASE_FOREVER,
    NO_OWNER,
    DeleteNode,
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
from ottla.runtime.clock import Clock, SystemClock


class EmbeddedSession(SingleWrites):
    """`coordination.tree.Tree` on an `EmbeddedBackend`.  Never suspended: it is connected until it is lost."""

    def __init__(self, backend: EmbeddedBackend, session_id: int) -> None:
        self.session_id = session_id
        self.state = SessionState.CONNECTED
        self.lease = Lease(LEASE_FOREVER)
        self._backend = backend
        self._watches = WatchTable()
        self._listeners: list[Callable[[SessionState], None]] = []

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        self._require_session()
        check_size(operations)
        return await self._backend.write(self.session_id, operations)

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        node = self._read(path)
        if node is None:
            raise NoNode(path)
        if watch is not None:
            self._watches.watch_data(path, watch)
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return [self._read(path) for path in paths]

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        if self._read(path) is None:
            raise NoNode(path)
        if watch is not None:
            self._watches.watch_children(path, watch)
        return sorted(self._backend.committed.children(path))

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        node = self._read(path)
        if watch is not None:
            self._watches.watch_data(path, watch)
        return None if node is None else node.stat

    async def sync(self) -> None:
        """Reads see the committed table, which all sessions share: there is nothing to wait for."""
        self._require_session()

    async def close(self) -> None:
        if self.state is not SessionState.LOST:
            await self._backend.end_session(self.session_id)

    def call_watches(self, change: TreeChange) -> None:
        """The change is committed and readable: call the watches that it fires."""
        for watch in self._watches.take_for(change.nodes, change.children_changed):
            self._backend.call_soon(watch)

    def end(self) -> None:
        """The session is over and its ephemeral nodes are gone."""
        if self.state is SessionState.LOST:
            return
        self.state = SessionState.LOST
        self.lease.end()
        for listener in self._listeners:
            self._backend.call_soon(partial(listener, SessionState.LOST))
        for watch in self._watches.take_all():
            self._backend.call_soon(watch)

    def _read(self, path: str) -> Node | None:
        self._require_session(path)
        check_path(path)
        return self._backend.committed.read(path)

    def _require_session(self, path: str = "/") -> None:
        if self.state is SessionState.LOST:
            raise SessionLost(path)


# A commit that raises the ceiling reserves this many change ids; a crash skips at most as many, of 2^63.
ZXID_BLOCK: Final = 65_536


class _Outcome(NamedTuple):
    zxid: int
    results: list[Stat | None]


class _Write(NamedTuple):
    """A request in the queue.  `session_id` is `NO_OWNER` for the start of a session."""

    session_id: int
    operations: Sequence[Operation]
    ends_session: bool
    future: asyncio.Future[_Outcome]


class _Batch(NamedTuple):
    change: TreeChange
    entry: JournalEntry
    done: list[tuple[_Write, _Outcome]]
    failed: list[tuple[_Write, TreeError | ValueError]]


class EmbeddedBackend:
    """An open tree file and its sessions.  Belongs to the event loop that opened it."""

    def __init__(
        self, journal: Journal, table: NodeTable, zxid_ceiling: int, thread: ThreadPoolExecutor, clock: Clock
    ) -> None:
        self.committed = table
        self._staging = Staging(table.copy())
        self._journal = journal
        self._thread = thread
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # Every id up to the ceiling may have been used before a crash, so the next one is above it.
        self._zxid = zxid_ceiling
        self._zxid_ceiling = zxid_ceiling
        self._waiting: deque[_Write] = deque()
        self._is_busy = False
        self._is_closed = False
        self._sessions: dict[int, EmbeddedSession] = {}
        self._failure: TreeStoreError | None = None

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        clock: Clock | None = None,
        may_be_new: bool = True,
        make_room: Callable[[], bool] | None = None,
        is_synced: bool = True,
    ) -> EmbeddedBackend:
        """Open or make the tree file at `path`; its directory must exist.  Raises `TreeStoreError`: `TreeStoreLost`
        when it is not there and `may_be_new` is not given.  `make_room`, `is_synced`: see `Journal`.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tree-journal")

        def load() -> tuple[Journal, NodeTable, int]:
            journal = Journal.open(path, may_be_new=may_be_new, make_room=make_room, is_synced=is_synced)
            try:
                table, ceiling = journal.load()
                if len(table) == 1 and not may_be_new:
                    raise TreeStoreLost(path, NOTHING_IN_IT)
                return journal, table, ceiling
            except BaseException:
                journal.close()
                raise

        loading = thread.submit(load)
        try:
            journal, table, ceiling = await asyncio.wrap_future(loading)
        except BaseException:
            thread.shutdown(wait=True)
            if not loading.cancelled() and loading.exception() is None:
                loading.result()[0].close()  # the caller was cancelled while it was being opened
            raise
        return cls(journal, table, ceiling, thread, clock or SystemClock())

    async def connect(self) -> EmbeddedSession:
        """Start a session.  Its id is a change id, and so is never used again."""
        if self._is_closed:
            raise SessionLost("/")
        session_id = (await self._submit(NO_OWNER, ())).zxid
        session = EmbeddedSession(self, session_id)
        self._sessions[session_id] = session
        return session

    async def write(self, session_id: int, operations: Sequence[Operation]) -> list[Stat | None]:
        """Apply `operations` for a session, all or none; returns when they are durable and visible."""
        return (await self._submit(session_id, operations)).results

    async def end_session(self, session_id: int) -> None:
        """Remove a session's ephemeral nodes, after all writes that it submitted before."""
        if session_id in self._sessions:
            await self._submit(session_id, (), ends_session=True)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    async def close(self) -> None:
        """End all sessions, finish accepted requests, close the file and the thread."""
        self._is_closed = True
        try:
            for session in list(self._sessions.values()):
                await session.close()
        finally:
            try:
                await self._loop.run_in_executor(self._thread, self._journal.close)
            finally:
                self._thread.shutdown(wait=True)

    @property
    def commits_count(self) -> int:
        return self._journal.commits_count

    def _submit(
        self, session_id: int, operations: Sequence[Operation], *, ends_session: bool = False
    ) -> asyncio.Future[_Outcome]:
        future: asyncio.Future[_Outcome] = self._loop.create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
        else:
            self._waiting.append(_Write(session_id, operations, ends_session, future))
            self._commit_soon()
        return future

    def _commit_soon(self) -> None:
        """Start the next batch after this turn of the loop, so that other submissions of the turn join it."""
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._commit_waiting)

    def _commit_waiting(self) -> None:
        writes = list(self._waiting)
        self._waiting.clear()
        try:
            batch = self._stage(writes)
            if batch.entry.is_empty:
                self._finish(batch)
        except BaseException as bug:
            self._fail_permanently(writes, bug)  # no caller may wait for an answer that cannot come
            raise
        if batch.entry.is_empty:
            self._is_busy = False
            self._commit_soon()
        else:
            committing = self._loop.run_in_executor(self._thread, self._journal.commit, batch.entry)
            committing.add_done_callback(lambda done: self._on_committed(writes, batch, done))

    def _stage(self, writes: Sequence[_Write]) -> _Batch:
        done: list[tuple[_Write, _Outcome]] = []
        failed: list[tuple[_Write, TreeError | ValueError]] = []
        now_ms = self._clock.now_ms()
        ended: set[int] = set()
        for write in writes:
            self._zxid += 1
            try:
                if write.session_id in ended or write.session_id not in {NO_OWNER, *self._sessions}:
                    raise SessionLost(write.operations[0].path if write.operations else "/")
                results = self._staging.apply(self._operations_of(write), Origin(write.session_id, self._zxid, now_ms))
            except (TreeError, ValueError) as error:
                # Reported with the batch: an earlier write in it may have caused the failure.
                failed.append((write, error))
                continue
            done.append((write, _Outcome(self._zxid, results)))
            if write.ends_session:
                ended.add(write.session_id)
        change = self._staging.summary()
        ceiling = self._zxid + ZXID_BLOCK if self._zxid > self._zxid_ceiling else None
        return _Batch(change, entry_of(change, self.committed, ceiling), done, failed)

    def _operations_of(self, write: _Write) -> Sequence[Operation]:
        if not write.ends_session:
            return write.operations
        return [DeleteNode(path) for path in self._staging.table.ephemerals_of(write.session_id)]

    def _on_committed(self, writes: Sequence[_Write], batch: _Batch, committed: asyncio.Future[None]) -> None:
        error = committed.exception()
        if error is None:
            try:
                self._finish(batch)
            except BaseException as bug:
                self._fail_permanently(writes, bug)
                raise
        elif isinstance(error, TreeStoreFull):
            self._undo(writes, error)
        else:
            self._fail_permanently(writes, error)
        self._is_busy = False
        self._commit_soon()

    def _finish(self, batch: _Batch) -> None:
        self._staging.commit()
        self.committed.apply(batch.change)
        if batch.entry.zxid_ceiling is not None:
            self._zxid_ceiling = batch.entry.zxid_ceiling
        for session in self._sessions.values():
            session.call_watches(batch.change)
        for write, outcome in batch.done:
            if write.ends_session:
                self._sessions.pop(write.session_id).end()
            if not write.future.done():
                write.future.set_result(outcome)
        for write, error in batch.failed:
            _fail(write.future, error)

    def _undo(self, writes: Sequence[_Write], error: TreeStoreFull) -> None:
        """Nothing of the batch reached the file.  Only the end of a session is tried again: it needs no room."""
        self._staging.roll_back()
        for write in reversed(writes):
            if write.ends_session:
                self._waiting.appendleft(write)
            else:
                _fail(write.future, error)

    def _fail_permanently(self, writes: Sequence[_Write], error: BaseException) -> None:
        """The outcome is unknown: a later acknowledgement could contradict the file, so there are none."""
        self._failure = error if isinstance(error, TreeStoreError) else TreeStoreFailed(self._journal.path, repr(error))
        for write in (*writes, *self._waiting):
            _fail(write.future, self._failure)
        self._waiting.clear()
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()


def _fail(future: asyncio.Future[_Outcome], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
