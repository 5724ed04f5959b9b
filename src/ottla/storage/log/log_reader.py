"""Finding and reading in a log: by offset (the paper's section 3.1), by time, by the greatest time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.model.errors import WireError
from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER, LOG_OVERHEAD_BYTES, TIMESTAMP_TYPE_BIT
from ottla.records.record import decode_batch
from ottla.runtime.disk import FileRun
from ottla.storage.errors import CorruptLog, OffsetOutOfRange
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_search import find, offset_behind_older
from ottla.storage.segment.time_index import TimestampOffset

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

# A look-up by time holds up everybody while it opens a batch.
_LOOKED_INTO_BYTES_MAX: Final = 16 << 20


def read(
    log: Log, start_offset: int, limit_offset: int, size_bytes_max: int, whole_first_batch: bool
) -> FileRun | None:
    """See `Log.read`."""
    if not log.log_start_offset <= start_offset <= log.log_end_offset:
        raise OffsetOutOfRange(start_offset, log.log_start_offset, log.log_end_offset)
    if log.failure is not None and limit_offset > log.flushed_end:
        # What was written but not flushed may be lost already (a failed sync drops pages): never show it.
        limit_offset = log.flushed_end
    if start_offset >= limit_offset:
        return None
    segment, position = _start_place(log, start_offset)
    limit_segment, limit_position = _limit_place(log, limit_offset)
    end_position = limit_position if segment is limit_segment else segment.size_bytes
    while position >= end_position and segment is not limit_segment:
        following = log.segments.after(segment)
        if following is None:
            return None
        segment, position = following, 0
        file = segment.open()
        end_position = limit_position if segment is limit_segment else segment.size_bytes
    if position >= end_position:
        return None
    file = segment.open()
    length_bytes = end_position - position
    if length_bytes > size_bytes_max:
        first_bytes = _batch_size_bytes(segment, position, start_offset)
        if first_bytes <= size_bytes_max:
            length_bytes = size_bytes_max
        elif whole_first_batch:
            length_bytes = first_bytes
        else:
            return None
    return FileRun(file, position, length_bytes)


def _start_place(log: Log, offset: int) -> tuple[Segment, int]:
    if offset == log.places.appended_offset:
        return log.segments.active, log.places.appended_position
    place = log.places.find(offset)
    return place_of(log, offset) if place is None else place


def _limit_place(log: Log, limit_offset: int) -> tuple[Segment, int]:
    if limit_offset >= log.log_end_offset:
        active = log.segments.active
        return active, active.size_bytes
    if limit_offset == log.stable_end:
        return log.places.stable_segment, log.places.stable_position
    return place_of(log, limit_offset)


def place_of(log: Log, offset: int) -> tuple[Segment, int]:
    """The segment and position of the batch that holds `offset`, or of the next one behind a gap.

    At the log end it is the active segment's end.
    """
    if offset >= log.log_end_offset:
        return log.segments.active, log.segments.active.size_bytes
    segment = log.segments[log.segments.slot_for(offset)]
    found = find(segment, offset)
    if (found is None or found[1][0] > offset) and not log.config.may_have_gaps:
        # Heads are not covered by the batch's checksum, and files can go: a reader must not pass over it in silence.
        position = segment.size_bytes if found is None else found[0]
        raise CorruptLog(segment.log_path, position, offset, "no batch holds this offset")
    return (segment, segment.size_bytes) if found is None else (segment, found[0])


def _batch_size_bytes(segment: Segment, position: int, offset: int) -> int:
    head = segment.open().read_at(position, BATCH_OVERHEAD_BYTES)
    if len(head) < BATCH_OVERHEAD_BYTES:
        raise CorruptLog(segment.log_path, position, offset, "the file ends inside the head of a batch")
    length_bytes: int = HEADER.unpack_from(head)[1]
    return LOG_OVERHEAD_BYTES + length_bytes


def offset_for_timestamp(log: Log, timestamp_ms: int, limit_offset: int) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp_ms` or later, from the log's start on."""
    for segment in log.segments:
        if segment.base_offset >= limit_offset:
            return None
        if segment.greatest_timestamp()[0] < timestamp_ms:
            continue
        found = _first_at_or_after(log, segment, timestamp_ms, limit_offset)
        if found is not None:
            return found
    return None


def _first_at_or_after(log: Log, segment: Segment, timestamp_ms: int, limit_offset: int) -> TimestampOffset | None:
    start_offset = max(offset_behind_older(segment, timestamp_ms), log.log_start_offset)
    place = find(segment, start_offset)
    if place is None:
        return None
    scan = BatchScan(segment.open(), place[0], segment.size_bytes, HEAD_CHUNK_BYTES)
    for position, head in scan.heads():
        if head[0] >= limit_offset:
            return None
        if head[8] < timestamp_ms:
            continue
        found = _first_in_batch(segment, position, head, timestamp_ms, start_offset)
        if found is not None:
            return found if found.offset < limit_offset else None
    if scan.problem is not None:
        raise CorruptLog(segment.log_path, scan.position, start_offset, scan.problem)
    return None


def _first_in_batch(
    segment: Segment, position: int, head: BatchTuple, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """Look into one batch: this is the only reading that opens records (ListOffsets by time).

    A batch that cannot be opened (nobody opened it when it was produced), or holds very much, is found as a whole, by
    its first offset.
    """
    whole_batch = TimestampOffset(head[8], max(head[0], start_offset), head[2])
    if head[5] & TIMESTAMP_TYPE_BIT:
        return whole_batch
    batch = segment.open().read_at(position, LOG_OVERHEAD_BYTES + head[1])
    try:
        records = decode_batch(memoryview(batch), size_bytes_max=_LOOKED_INTO_BYTES_MAX)
    except WireError:
        return whole_batch
    for record in records:
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, head[2])
    return None


def offset_of_max_timestamp(log: Log, limit_offset: int) -> TimestampOffset | None:
    """The first record that has the greatest timestamp (KIP-734)."""
    greatest_ms = -1
    for segment in log.segments:
        if segment.base_offset < limit_offset:
            greatest_ms = max(greatest_ms, segment.greatest_timestamp()[0])
    # Batches above the limit may hold the greatest one: then it is found among those below it by a walk.
    while greatest_ms >= 0:
        found = offset_for_timestamp(log, greatest_ms, limit_offset)
        if found is not None:
            return found
        greatest_ms = _greatest_below(log, limit_offset, greatest_ms)
    return None


def _greatest_below(log: Log, limit_offset: int, below_ms: int) -> int:
    """The greatest batch timestamp under `below_ms` among the batches below the limit and above the log's start."""
    greatest_ms = -1
    for segment in log.segments:
        if segment.base_offset >= limit_offset:
            break
        segment.open()
        scan = BatchScan(segment.open(), 0, segment.size_bytes, HEAD_CHUNK_BYTES)
        for _, head in scan.heads():
            if head[0] >= limit_offset:
                break
            if head[0] + head[6] >= log.log_start_offset and head[8] < below_ms:
                greatest_ms = max(greatest_ms, head[8])
    return greatest_ms
