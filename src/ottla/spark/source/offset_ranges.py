"""The division of offset ranges among tasks: pure arithmetic.

Offsets estimate records here.  Compaction and transactions leave gaps, so they are upper bounds of counts; nothing
below reports a count.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.protocol.schema import ZERO_UUID
from ottla.spark.options.offset_spec import Offsets
from ottla.spark.options.read_options import TaskSizes, TriggerLimits

# A Python task costs about 100 ms, in which one reads 100,000 records: smaller ranges share a task.
ROWS_PER_TASK_MIN: Final = 50_000


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[first_offset, end_offset)` of one partition of the topic with this id.

    All zeros: any topic of that name (Apache Kafka before 2.8 has no ids).
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    topic_id: UUID = ZERO_UUID

    @property
    def offsets_count(self) -> int:
        return self.end_offset - self.first_offset


def ranges_between(
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, UUID] = MappingProxyType({}),
) -> list[OffsetRange]:
    """A range for every partition of `end` with offsets; both have the same partitions."""
    return [
        OffsetRange(place.topic, place.partition, first[place], limit, topic_ids.get(place.topic, ZERO_UUID))
        for place, limit in sorted(end.items())
        if limit > first[place]
    ]


def limit_offsets(
    first: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], rows_max: int | None
) -> dict[TopicPartition, int]:
    """Ends with at most `rows_max` offsets in all, in proportion to the backlog of each partition.

    No end is before `first`.  Progress is certain: while there is a backlog, at least one partition advances.
    """
    waiting = {place: max(0, latest[place] - first[place]) for place in latest}
    total = sum(waiting.values())
    if rows_max is None or total <= rows_max:
        return {place: max(latest[place], first[place]) for place in latest}
    shares = {place: rows_max * count // total for place, count in waiting.items()}
    spare = rows_max - sum(shares.values())
    # The rest of the rounding goes to the largest remainders; at most one offset each, so no share exceeds its backlog.
    by_remainder = sorted(waiting, key=lambda place: (-(rows_max * waiting[place] % total), place))
    for place in by_remainder[:spare]:
        shares[place] += 1
    return {place: first[place] + share for place, share in shares.items()}


def plan_tasks(ranges: Sequence[OffsetRange], sizes: TaskSizes) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task: large ones split as `sizes` demands, else small ones combined."""
    if sizes.rows_max is not None or sizes.tasks_min is not None:
        pieces = ranges if sizes.rows_max is None else _cut(ranges, sizes.rows_max)
        return [(part,) for part in _split(pieces, sizes.tasks_min or 1)]
    tasks: list[tuple[OffsetRange, ...]] = []
    small: list[OffsetRange] = []
    for part in ranges:
        if part.offsets_count >= ROWS_PER_TASK_MIN:
            tasks.append((part,))
            continue
        small.append(part)
        if sum(other.offsets_count for other in small) >= ROWS_PER_TASK_MIN:
            tasks.append(tuple(small))
            small = []
    if small:
        tasks.append(tuple(small))
    return tasks


def _cut(ranges: Sequence[OffsetRange], rows_max: int) -> list[OffsetRange]:
    """Pieces of like size with at most `rows_max` offsets."""
    return [piece for part in ranges for piece in _pieces(part, -(-part.offsets_count // rows_max))]


def _split(ranges: Sequence[OffsetRange], tasks_min: int) -> list[OffsetRange]:
    """At least `tasks_min` ranges (unless there are fewer offsets), each cut in proportion to its size."""
    total = sum(part.offsets_count for part in ranges)
    if len(ranges) >= tasks_min or total == 0:
        return list(ranges)
    split: list[OffsetRange] = []
    for part in ranges:
        # Rounded up, so the sum is at least `tasks_min`; no piece is empty.
        split += _pieces(part, min(part.offsets_count, -(-part.offsets_count * tasks_min // total)))
    return split


def _pieces(part: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [part.first_offset + part.offsets_count * piece // count for piece in range(count + 1)]
    return [replace(part, first_offset=first, end_offset=end) for first, end in itertools.pairwise(bounds)]


def limited_ends(
    first: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    limits: TriggerLimits,
    offset_bytes: Mapping[TopicPartition, float],
) -> Offsets:
    """Ends within all limits but `rows_min`.  `offset_bytes`: stored bytes for each offset of a log, on average.

    Progress is certain: while there is a backlog, at least one partition advances.
    """
    waiting = {place: max(0, latest[place] - first[place]) for place in latest}
    if limits.partition_rows_max is not None:
        waiting = {place: min(count, limits.partition_rows_max) for place, count in waiting.items()}
    if limits.bytes_max is not None:
        waiting = _within_bytes(waiting, limits.bytes_max, offset_bytes)
    ends = {place: first[place] + count for place, count in waiting.items()}
    return limit_offsets(first, ends, limits.rows_max)


def is_too_few(
    first: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], limits: TriggerLimits, waited_ms: float
) -> bool:
    """Whether the batch is left for later.  `waited_ms`: since the last one that was not."""
    if limits.rows_min is None or waited_ms >= limits.delay_max_ms:
        return False
    return sum(max(0, latest[place] - first[place]) for place in latest) < limits.rows_min


def _within_bytes(
    waiting: Mapping[TopicPartition, int], bytes_max: int, offset_bytes: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """The same part of each backlog, so that together they have `bytes_max`."""
    total_bytes = sum(count * offset_bytes.get(place, 0.0) for place, count in waiting.items())
    if total_bytes <= bytes_max:
        return dict(waiting)
    parts = {place: int(count * bytes_max / total_bytes) for place, count in waiting.items()}
    if not any(parts.values()):
        # One record is larger than the limit: it is read all the same, or nothing ever would be.
        largest = max(sorted(waiting), key=lambda place: waiting[place])
        parts[largest] = 1
    return parts
