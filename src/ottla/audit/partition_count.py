"""The broker's count of one partition: a pure function of its log, so that no record counts twice or is left out.

The log is counted in stretches.  A stretch starts where the last one ended and ends where its batches make it end, so
every process that counts from the same place gets the same stretches, counts and names of counters: a broker that was
restarted, a new leader, even two that believe to lead.  The message of one replaces that of another by the offset that
its count has reached.

Counts are published before their place is committed; a place is committed with the counts of its stretch.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.audit.count import BROKER, NO_TOPIC_ID, AuditMessage, Count, CountKey, Report, ReportKey, UnconfirmedMessages
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.windows import Window

# A stretch ends with the batch that reaches so many offsets, or so many windows: its counts fit into what a commit may
# carry (`offset.metadata.max.bytes` is 4096).
STRETCH_OFFSETS: Final = 1_000_000
STRETCH_WINDOWS: Final = 48
_COUNTERS: Final = UUID("b6a0f9f4-0d6c-4f2e-9a3a-9a5e0f6f7a10")


class BatchPlace(NamedTuple):
    """Where a count continues: at `next_offset`, in the stretch that started at `first_offset`.

    `restart` counts how often the log was found shorter than what was counted: stretches after that are other ones.
    """

    first_offset: int
    next_offset: int
    restart: int = 0


class _Cell(NamedTuple):
    records: int
    late_records: int
    last_seen_ms: int


class PartitionCount:
    """Adds up batches in the log's order; the caller publishes `unsent`, and then commits `place`."""

    def __init__(self, partition: TopicPartition, topic_id: UUID, window_ms: int, place: BatchPlace) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.place = place
        self._window_ms = window_ms
        self._cells: dict[int, _Cell] = {}
        self._changed: set[int] = set()
        self._unconfirmed = UnconfirmedMessages()

    def add(self, counts: Mapping[int, int], next_offset: int, now_ms: int) -> None:
        """A batch that ends before `next_offset` has so many records in the windows that start at these times."""
        assert next_offset > self.place.next_offset, "batches are counted in the log's order"
        for start_ms, records in counts.items():
            known = self._cells.get(start_ms, _Cell(0, 0, now_ms))
            late_records = records if now_ms >= start_ms + self._window_ms else 0
            self._cells[start_ms] = _Cell(known.records + records, known.late_records + late_records, now_ms)
            self._changed.add(start_ms)
        first_offset = self.place.first_offset
        self.place = self.place._replace(next_offset=next_offset)
        if next_offset - first_offset >= STRETCH_OFFSETS or len(self._cells) >= STRETCH_WINDOWS:
            self._end_stretch(next_offset)

    def skip(self, next_offset: int) -> None:
        """Records before `next_offset` cannot be counted: they were deleted, or cannot be read."""
        self._end_stretch(next_offset)

    def begin_again(self, next_offset: int) -> None:
        """The log is shorter than what was counted: records that come at these offsets are other ones."""
        self._end_stretch(next_offset)
        self.place = self.place._replace(restart=self.place.restart + 1)

    def unsent(self) -> list[AuditMessage]:
        self._keep_changed()
        return list(self._unconfirmed)

    def confirm(self, messages: list[AuditMessage]) -> None:
        self._unconfirmed.confirm(messages)

    def report(self, until_ms: int, partitions_count: int, *, has_ended: bool = False) -> Report:
        """Everything that was in the log at `until_ms` is counted; the topic has so many partitions."""
        key = ReportKey(BROKER, self._counter("partition"), self.partition.topic, self.topic_id)
        # By time: brokers take over from each other, and have nothing else in common.
        return Report(key, max(0, 2 * until_ms + has_ended), until_ms, has_ended, partitions_count)

    def _end_stretch(self, next_offset: int) -> None:
        self._keep_changed()
        self._cells.clear()
        self.place = self.place._replace(first_offset=next_offset, next_offset=next_offset)

    def _keep_changed(self) -> None:
        instance = self._counter(f"{self.place.first_offset}/{self.place.restart}")
        for start_ms in sorted(self._changed):
            key = CountKey(BROKER, instance, self.partition.topic, self.topic_id, Window(start_ms, self._window_ms))
            sequence = self.place.next_offset - self.place.first_offset
            self._unconfirmed.keep([Count(key, sequence, *self._cells[start_ms])])
        self._changed.clear()

    def _counter(self, what: str) -> UUID:
        return uuid.uuid5(_COUNTERS, f"{self.partition.topic}/{self.topic_id}/{self.partition.partition}/{what}")

    def to_metadata(self) -> str:
        """What is committed beside `place.next_offset`; below 4096 bytes."""
        cells = [[start_ms // self._window_ms, *cell] for start_ms, cell in sorted(self._cells.items())]
        topic_id = "" if self.topic_id == NO_TOPIC_ID else self.topic_id.hex
        fields = [topic_id, self._window_ms, self.place.first_offset, self.place.restart, cells]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_commit(
        cls, partition: TopicPartition, topic_id: UUID, window_ms: int, next_offset: int, metadata: str
    ) -> PartitionCount | None:
        """The count that was committed; None where it was one of another topic of this name.

        With windows of another size it continues, as another stretch.  Raises WireError for other commits.
        """
        try:
            id_text, size_ms, first_offset, restart, cells = json.loads(metadata)
            found_id = UUID(id_text) if id_text else NO_TOPIC_ID
            found = {int(window) * int(size_ms): _Cell(*map(int, cell)) for window, *cell in cells}
            place = BatchPlace(int(first_offset), next_offset, int(restart))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise WireError(f"the committed place of the count of {partition} cannot be read: {error}") from None
        if found_id != topic_id:
            return None
        if size_ms != window_ms:
            return cls(partition, topic_id, window_ms, place._replace(first_offset=next_offset))
        count = cls(partition, topic_id, window_ms, place)
        count._cells = found
        return count
