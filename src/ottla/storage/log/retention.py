"""Which segments a log may drop: by time, by size, by what DeleteRecords cut off.

Kafka's rules: a segment's age is that of its greatest timestamp (of the segment itself when no record has one);
by size the oldest go while what is left is still at least the limit.  Only whole segments below the limit offset go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.errors import OffsetOutOfRange
from ottla.storage.log.log_reader import place_of

if TYPE_CHECKING:
    from ottla.storage.log.log import Log
    from ottla.storage.segment.segment import Segment


def delete_old_segments(log: Log, now_ms: int, limit_offset: int) -> int:
    """Take out the oldest segments that are due; see `Log.delete_old_segments`."""
    if log.failure is not None or log.is_swapping:
        return 0
    count = _due_count(log, now_ms, limit_offset)
    if count == len(log.segments):
        # The active segment is due too: an empty one takes its place.
        log.roll(now_ms)
        count = min(count, len(log.segments) - 1)
    if count == 0:
        return 0
    _take_out(log, count)
    return count


def delete_records_before(log: Log, offset: int) -> None:
    """See `Log.delete_records_before`."""
    if offset > log.stable_end or offset < 0:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.stable_end)
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.host.log_start_moved(log)


def _take_out(log: Log, count: int) -> None:
    """The log starts behind its first `count` segments now; their files are removed later."""
    removed = log.segments.remove_first(count)
    log.removed_segments += removed
    log.log_start_offset = max(log.log_start_offset, log.segments.first.base_offset)
    # They may have been rolled and not flushed yet, and remembered places may point into them.
    log.unsynced.forget([segment.file for segment in removed])
    log.places.forget()
    log.places.set_stable(*place_of(log, log.stable_end))
    log.host.log_start_moved(log)
    log.note("segments_deleted", count=count, log_start_offset=log.log_start_offset)


def _due_count(log: Log, now_ms: int, limit_offset: int) -> int:
    """How many of the oldest segments may go, all of them if that includes a non-empty active one."""
    left_bytes = log.size_bytes
    count = 0
    segments = list(log.segments)
    for slot, segment in enumerate(segments):
        end_offset = segments[slot + 1].base_offset if slot + 1 < len(segments) else log.log_end_offset
        is_active = slot + 1 == len(segments)
        if end_offset > limit_offset or (is_active and segment.size_bytes == 0):
            break
        if not _is_due(log, segment, end_offset, left_bytes, now_ms):
            break
        left_bytes -= segment.size_bytes
        count += 1
    return count


def _is_due(log: Log, segment: Segment, end_offset: int, left_bytes: int, now_ms: int) -> bool:
    if end_offset <= log.log_start_offset:
        return True
    config = log.config
    if "delete" not in config.cleanup_policy:
        return False
    if config.retention_ms >= 0 and now_ms - _age_from_ms(segment) > config.retention_ms:
        return True
    return config.retention_bytes >= 0 and left_bytes - segment.size_bytes >= config.retention_bytes


def _age_from_ms(segment: Segment) -> int:
    greatest_ms = segment.greatest_timestamp()[0]
    return greatest_ms if greatest_ms >= 0 else segment.created_ms
