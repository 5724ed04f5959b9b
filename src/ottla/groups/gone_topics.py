"""Committed offsets of topics that are gone get their tombstones a slice at a time, so that the event loop goes on.

Nobody sees those that are left.  Before a group commits, or asks for what it has committed, its own are written: so
what is committed for a topic made anew under an old name is newer than every tombstone of the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from ottla.groups.group_log import GroupRecord
from ottla.groups.group_table import GroupTable
from ottla.groups.ledger import Ledger
from ottla.groups.moment import Moment
from ottla.groups.offset_expiry import write_in_batches
from ottla.model.error_code import ErrorCode

# Written in one go; some two milliseconds.
TOMBSTONES_PER_SLICE: Final = 250
RETRY_MS: Final = 1_000


class GoneTopics:
    """The topics that are gone, by the groups that had committed to them by then."""

    def __init__(self, table: GroupTable, ledger: Ledger) -> None:
        self._table: Final = table
        self._ledger: Final = ledger
        self._rest: Final[dict[str, set[str]]] = {}
        # Monotonic; None when nothing is left to write.
        self.due_ms: int | None = None

    def add(self, topics: Collection[str], moment: Moment) -> None:
        """Looks at each group once, whatever it has committed: a tenth of a microsecond each."""
        gone = frozenset(topics)
        for group_id, by_topic in self._table.offsets_by_group():
            if found := by_topic.keys() & gone:
                self._rest.setdefault(group_id, set()).update(found)
        if self._rest:
            self.due_ms = moment.monotonic_ms

    def settle(self, group_id: str, moment: Moment) -> None:
        """Write all that is left of one group.  Offsets whose tombstones the log refuses stay until they expire."""
        topics = self._rest.pop(group_id, None)
        if topics is not None:
            write_in_batches(self._ledger, self._tombstones(group_id, topics), moment)

    def run(self, moment: Moment) -> None:
        """One slice, when it is time."""
        if self.due_ms is None or self.due_ms > moment.monotonic_ms:
            return
        records, taken = self._take_slice()
        self.due_ms = moment.monotonic_ms if self._rest else None
        if records and self._ledger.write(records, moment) is not ErrorCode.NONE:
            # Harmless to a shard whose disk failed under it: nothing looks at its times any more.
            self._rest.update(taken)
            self.due_ms = moment.monotonic_ms + RETRY_MS

    def finish(self, moment: Moment) -> None:
        """Write all that is left, at once: there is no later."""
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
            # The last one may have more: what is written of it now is not found again.
            self._rest[group_id] = topics
        return records, taken

    def _tombstones(self, group_id: str, topics: Iterable[str]) -> Iterator[GroupRecord]:
        for topic in sorted(topics):
            yield from self._table.topic_tombstones(group_id, topic)
