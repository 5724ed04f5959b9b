"""Committed offsets of deleted topics get their tombstones in slices, so that the event loop is not blocked.

No client sees the offsets that remain.  Before a group commits or fetches offsets, its own tombstones are written: so
offsets committed for a recreated topic are newer than every tombstone of the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from ottla.groups.group_log import GroupRecord
from ottla.groups.group_table import GroupTable
from ottla.groups.moment import Moment
from ottla.groups.offset_expiry import write_in_batches
from ottla.groups.shard_services import ShardServices
from ottla.model.error_code import ErrorCode

# Written in one slice; some two milliseconds.
TOMBSTONES_PER_SLICE: Final = 250
RETRY_MS: Final = 1_000


class DeletedTopicTombstones:
    """The deleted topics, by the groups that had committed offsets for them."""

    def __init__(self, table: GroupTable, services: ShardServices) -> None:
        self._table: Final = table
        self._services: Final = services
        self._rest: Final[dict[str, set[str]]] = {}
        # Monotonic; None when all is written.
        self.due_ms: int | None = None

    def add(self, topics: Collection[str], moment: Moment) -> None:
        """Visits each group once, whatever it has committed: a tenth of a microsecond each."""
        gone = frozenset(topics)
        for group_id, by_topic in self._table.offsets_by_group():
            if found := by_topic.keys() & gone:
                self._rest.setdefault(group_id, set()).update(found)
        if self._rest:
            self.due_ms = moment.monotonic_ms

    def settle(self, group_id: str, moment: Moment) -> None:
        """Write all remaining tombstones of one group.  Offsets whose tombstones the log refuses stay until they
        expire."""
        topics = self._rest.pop(group_id, None)
        if topics is not None:
            write_in_batches(self._services, self._tombstones(group_id, topics), moment)

    def run(self, moment: Moment) -> None:
        """Write one slice, when it is due."""
        if self.due_ms is None or self.due_ms > moment.monotonic_ms:
            return
        records, taken = self._take_slice()
        self.due_ms = moment.monotonic_ms if self._rest else None
        if records and self._services.write(records, moment) is not ErrorCode.NONE:
            # Harmless to a shard whose disk failed: its deadlines are no longer run.
            self._rest.update(taken)
            self.due_ms = moment.monotonic_ms + RETRY_MS

    def finish(self, moment: Moment) -> None:
        """Write all remaining tombstones at once, before the shard stops."""
        while self.due_ms is not None and self.due_ms <= moment.monotonic_ms:
            self.run(moment)

    def stop(self) -> None:
        self._rest.clear()
        self.due_ms = None

    def _take_slice(self) -> tuple[list[GroupRecord], dict[str, set[str]]]:
        records: list[GroupRecord] = []
        taken: dict[str, set[str]] = {}
        while self._rest and len(records) < TOMBSTONES_PER_SLICE:
            group_id, topics = self._rest.popitem()
            taken[group_id] = topics
            records += islice(self._tombstones(group_id, topics), TOMBSTONES_PER_SLICE - len(records))
        if len(records) == TOMBSTONES_PER_SLICE:
            # The last group may have more offsets; those written now are not found again.
            self._rest[group_id] = topics
        return records, taken

    def _tombstones(self, group_id: str, topics: Iterable[str]) -> Iterator[GroupRecord]:
        for topic in sorted(topics):
            yield from self._table.topic_tombstones(group_id, topic)
