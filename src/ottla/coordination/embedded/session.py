"""A session with the embedded tree: it reads the committed table at once and submits writes to the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ottla.coordination.embedded.node_table import NodeTable, TreeChange
from ottla.coordination.tree import (
    LEASE_FOREVER,
    Lease,
    Node,
    NoNode,
    Operation,
    SessionLost,
    SessionState,
    SingleWrites,
    Stat,
    Watch,
    check_path,
    check_size,
)


class WatchTable:
    """Watches on a node's data (or its creation and deletion) and on its children's names."""

    def __init__(self) -> None:
        self._data: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    def watch_data(self, path: str, watch: Watch) -> None:
        self._data.setdefault(path, {})[watch] = None

    def watch_children(self, path: str, watch: Watch) -> None:
        self._children.setdefault(path, {})[watch] = None

    def take_for(self, change: TreeChange) -> list[Watch]:
        """Removes and returns the watches that a change fires, each once however often it was set."""
        due: dict[Watch, None] = {}
        for path in change.nodes:
            due.update(self._data.pop(path, {}))
        for path in change.children_changed:
            due.update(self._children.pop(path, {}))
        return list(due)

    def take_all(self) -> list[Watch]:
        """Removes and returns every watch: the session is over."""
        due: dict[Watch, None] = {}
        for watches in (*self._data.values(), *self._children.values()):
            due.update(watches)
        self._data.clear()
        self._children.clear()
        return list(due)


class SessionBackend(Protocol):
    """The part of `EmbeddedBackend` that its sessions use."""

    @property
    def committed(self) -> NodeTable:
        """The nodes as of the last durable change."""
        ...

    async def write(self, session_id: int, operations: Sequence[Operation]) -> list[Stat | None]:
        """Apply `operations` for a session, all or none; returns when they are durable and visible."""
        ...

    async def end_session(self, session_id: int) -> None:
        """Remove a session's ephemeral nodes, after all writes that it submitted before."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...


class EmbeddedSession(SingleWrites):
    """`coordination.tree.Tree` on an `EmbeddedBackend`.  Never suspended: it is connected until it is lost."""

    def __init__(self, backend: SessionBackend, session_id: int) -> None:
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
        for watch in self._watches.take_for(change):
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
