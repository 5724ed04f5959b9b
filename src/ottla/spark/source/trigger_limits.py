"""The ends of a micro-batch under the limits of its options.  Pure: averages and times are passed in."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.model.identifiers import TopicPartition
from ottla.spark.options.offset_spec import Offsets
from ottla.spark.options.read_limits import TriggerLimits
from ottla.spark.source.offset_ranges import limit_offsets


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
