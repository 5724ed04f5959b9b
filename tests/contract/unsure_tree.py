"""A tree with a connection that a test can break: a write is applied or not, the caller gets `ConnectionLoss`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.coordination.tree import (
    ConnectionLoss,
    Lease,
    Node,
    Operation,
    SessionState,
    SingleWrites,
    Stat,
    Tree,
    Watch,
)


class UnsureTree(SingleWrites):
    """`Tree` over another: the next `lose_answers` writes are done (or with `drop_writes` not) and never answered."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.lose_answers = 0
        self.drop_writes = False
        self.reads_count = 0

    @property
    def session_id(self) -> int:
        return self._tree.session_id

    @property
    def state(self) -> SessionState:
        return self._tree.state

    @property
    def lease(self) -> Lease:
        return self._tree.lease

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._tree.add_session_listener(listener)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        if self.lose_answers == 0:
            return await self._tree.multi(operations)
        self.lose_answers -= 1
        if not self.drop_writes:
            await self._tree.multi(operations)
        raise ConnectionLoss(operations[0].path)

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        self.reads_count += 1
        return await self._tree.get(path, watch=watch)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self.reads_count += len(paths)
        return await self._tree.get_many(paths)

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        self.reads_count += 1
        return await self._tree.children(path, watch=watch)

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        self.reads_count += 1
        return await self._tree.exists(path, watch=watch)

    async def sync(self) -> None:
        await self._tree.sync()

    async def close(self) -> None:
        await self._tree.close()
