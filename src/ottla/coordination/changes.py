"""One node that every writer updates, so that one watch reports every change.

A watch in ZooKeeper covers one node and fires once; 10,000 partitions would need 10,000.  So each change that others
cache goes through `Changes.commit`, which sets `/changes` in the same `multi`.  Its version counts the changes, its
data names the subjects of the last one.  A reader that missed no change re-reads only those; one that missed some
(watches coalesce) re-reads all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.coordination.layout import CHANGES
from ottla.coordination.node_json import Fields, encode
from ottla.coordination.tree import Operation, SetNode, Stat, Tree

SUBJECTS_MAX: Final = 200  # a change of more has no list: the node stays small, and readers re-read everything


class Mark(NamedTuple):
    """A point in the sequence of changes: its number, and the subjects of the change that led to it (None: all)."""

    version: int
    subjects: tuple[str, ...] | None


class Changes:
    """The writer's side."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    async def commit(self, operations: Sequence[Operation], subjects: Sequence[str]) -> list[Stat | None]:
        """Apply all operations or none, and notify every follower.  Subjects are like `topics/orders`.

        Raises what `Tree.multi` raises; `operation_index` counts in `operations`.
        """
        told = list(subjects) if len(subjects) <= SUBJECTS_MAX else None
        touch = SetNode(CHANGES, encode({"version": 1, "subjects": told}))
        results = await self._tree.multi([*operations, touch])
        return results[:-1]


class ChangeFollower:
    """One reader's position in the sequence of changes, and its watch.

    `on_stale` is called on the event loop when the reader should `look` again; at most once for each look.
    """

    def __init__(self, tree: Tree, on_stale: Callable[[], None] | None) -> None:
        self._tree = tree
        self._on_stale = on_stale
        self._seen_version: int | None = None
        self._is_watching = False

    async def look(self) -> Mark:
        """The tree's current mark.  The watch is set first, so no later change is missed."""
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
        """The subjects to re-read between the last settled mark and this one; None is everything."""
        if self._seen_version is None:
            return None
        if mark.version == self._seen_version:
            return ()
        return mark.subjects if mark.version == self._seen_version + 1 else None

    def settle(self, mark: Mark) -> None:
        """Everything up to this mark has been read; without this call `missed` reports it again."""
        self._seen_version = mark.version

    def _on_change(self) -> None:
        self._is_watching = False
        if self._on_stale is not None:
            self._on_stale()


def _subjects(data: bytes) -> tuple[str, ...] | None:
    if not data:
        return ()  # as `lay_out` made it
    fields = Fields.parse(CHANGES, data)
    if fields.content.get("subjects") is None:
        return None
    return tuple(fields.texts("subjects"))
