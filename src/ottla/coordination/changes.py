"""One node that every writer touches, so that one watch tells of every change.

A watch in ZooKeeper is for one node and one time; 10,000 partitions would need 10,000.  So each change that others
cache goes through `Changes.commit`, which sets `/changes` in the same `multi`.  Its version counts the changes, its
data says what the last one was about.  A reader that missed none re-reads just that; one that missed some (watches
coalesce) re-reads all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.coordination.layout import CHANGES
from ottla.coordination.node_json import Fields, encode
from ottla.coordination.tree import Operation, SetNode, Stat, Tree

SUBJECTS_MAX: Final = 200  # a change of more says "everything": the node stays small, and readers lose little


class Mark(NamedTuple):
    """A moment in the history of changes: its number, and what the change that led to it was about (None: much)."""

    version: int
    subjects: tuple[str, ...] | None


class Changes:
    """The writer's side."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    async def commit(self, operations: Sequence[Operation], subjects: Sequence[str]) -> list[Stat | None]:
        """Do all operations or none, and tell everybody who follows.  Subjects are like `topics/orders`.

        Raises what `Tree.multi` raises; `operation_index` counts in `operations`.
        """
        told = list(subjects) if len(subjects) <= SUBJECTS_MAX else None
        touch = SetNode(CHANGES, encode({"version": 1, "subjects": told}))
        results = await self._tree.multi([*operations, touch])
        return results[:-1]


class ChangeFollower:
    """One reader's place in the history of changes, and its watch.

    `on_stale` is called on the event loop when the reader should look again; at most once for each look.
    """

    def __init__(self, tree: Tree, on_stale: Callable[[], None] | None) -> None:
        self._tree = tree
        self._on_stale = on_stale
        self._seen_version: int | None = None
        self._is_watching = False

    async def look(self) -> Mark:
        """Where the tree is now.  The watch is set first, so nothing that comes after goes unnoticed."""
        if self._is_watching or self._on_stale is None:
            node = await self._tree.get(CHANGES)
        else:
            self._is_watching = True
            try:
                node = await self._tree.get(CHANGES, watch=self._on_change)
            except BaseException:
                self._is_watching = False
                raise
        return Mark(node.stat.version, _subjects(node.data))

    def missed(self, mark: Mark) -> tuple[str, ...] | None:
        """What to read again to come from the last settled mark to this one; None is everything."""
        if self._seen_version is None:
            return None
        if mark.version == self._seen_version:
            return ()
        return mark.subjects if mark.version == self._seen_version + 1 else None

    def settle(self, mark: Mark) -> None:
        """Everything up to this mark has been read; without this call the next look still misses it."""
        self._seen_version = mark.version

    def _on_change(self) -> None:
        self._is_watching = False
        if self._on_stale is not None:
            self._on_stale()


def _subjects(data: bytes) -> tuple[str, ...] | None:
    if not data:
        return ()  # as it was laid out
    fields = Fields.parse(CHANGES, data)
    if fields.content.get("subjects") is None:
        return None
    return tuple(fields.texts("subjects"))
