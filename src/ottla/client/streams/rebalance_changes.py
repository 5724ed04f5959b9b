"""Changes of an assignment that the user's code has not been notified of yet.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from ottla.model.identifiers import TopicPartition


class Changes(NamedTuple):
    """In the order of their notices: a partition may be lost and assigned again."""

    lost: list[TopicPartition]
    revoked: list[TopicPartition]
    assigned: list[TopicPartition]


class PendingChanges:
    """One notice at most for each partition and kind.  An assignment that ends before its notice is never announced."""

    __slots__ = ("_assigned", "_lost", "_revoked")

    def __init__(self) -> None:
        self._lost: set[TopicPartition] = set()
        self._revoked: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()

    def __bool__(self) -> bool:
        return bool(self._lost or self._revoked or self._assigned)

    def has_notice_of(self, partition: TopicPartition) -> bool:
        """Whether the user's code has to be notified of its assignment, or of the end of that."""
        return partition in self._assigned or partition in self._revoked

    def on_assigned(self, partition: TopicPartition) -> None:
        self._assigned.add(partition)

    def on_revoked(self, partition: TopicPartition) -> bool:
        """Whether the user's code must be notified: it knows of the assignment."""
        if partition in self._assigned:
            self._assigned.remove(partition)
            return False
        self._revoked.add(partition)
        return True

    def on_over(self, partition: TopicPartition, *, was_revoked: bool) -> None:
        """The assignment has ended: it is lost where the user's code knows of it, and was not notified of its end."""
        if was_revoked:
            if partition in self._revoked:
                self._revoked.remove(partition)
                self._lost.add(partition)
        elif partition in self._assigned:
            self._assigned.remove(partition)
        else:
            self._lost.add(partition)

    def take(self) -> Changes:
        changes = Changes(sorted(self._lost), sorted(self._revoked), sorted(self._assigned))
        for each in (self._lost, self._revoked, self._assigned):
            each.clear()
        return changes
