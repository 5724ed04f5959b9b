"""Which segments a log may drop: by time, by size, by what DeleteRecords cut off.

Kafka's rules: a segment's age is that of its greatest timestamp (of the segment itself when no record has one);
by size the oldest are dropped while what is left is still at least the limit.  Only whole segments below the limit
offset are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.storage.log_config import LogConfig
from ottla.storage.segment.segment import Segment


def due_segments_count(
    segments: Sequence[Segment],
    log_start_offset: int,
    log_end_offset: int,
    limit_offset: int,
    config: LogConfig,
    now_ms: int,
) -> int:
    """How many of the oldest segments are due, all of them if that includes an active one that is not empty.

    Raises `CorruptLog` and `OSError`: the age of a closed segment is in its time index.
    """
    left_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for slot, segment in enumerate(segments):
        is_active = slot + 1 == len(segments)
        end_offset = log_end_offset if is_active else segments[slot + 1].base_offset
        if end_offset > limit_offset or (is_active and segment.size_bytes == 0):
            break
        left_bytes -= segment.size_bytes
        if end_offset > log_start_offset and not _is_expired(segment, left_bytes, config, now_ms):
            break
        count += 1
    return count


def _is_expired(segment: Segment, bytes_without: int, config: LogConfig, now_ms: int) -> bool:
    """Whether time or size drops the segment; `bytes_without` are left in the log when it is dropped."""
    if "delete" not in config.cleanup_policy:
        return False
    if config.retention_ms >= 0 and now_ms - _age_from_ms(segment) > config.retention_ms:
        return True
    return config.retention_bytes >= 0 and bytes_without >= config.retention_bytes


def _age_from_ms(segment: Segment) -> int:
    greatest_ms = segment.greatest_timestamp()[0]
    return greatest_ms if greatest_ms >= 0 else segment.created_ms
