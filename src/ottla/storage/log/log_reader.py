"""Finding and reading in a log's segments: by offset (the paper's section 3.1), by time, by the greatest time.

Nothing here keeps state: the log passes its segments and the ends that bound a reader.
"""

from __future__ import annotations

from typing import Final

from ottla.model.errors import WireError
from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER, LOG_OVERHEAD_BYTES, TIMESTAMP_TYPE_BIT
from ottla.records.record import decode_batch
from ottla.runtime.disk import FileRun
from ottla.storage.errors import CorruptLog
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_list import SegmentList
from ottla.storage.segment.time_index import TimestampOffset

# A look-up by time blocks the event loop while it opens a batch.
_OPENED_BATCH_BYTES_MAX: Final = 16 << 20


def run_between(
    segments: SegmentList,
    segment: Segment,
    position: int,
    limit_segment: Segment,
    limit_position: int,
    start_offset: int,
    size_bytes_max: int,
    whole_first_batch: bool,
) -> FileRun | None:
    """The run from a batch's place, which holds `start_offset`, to the limit's place or the end of its segment.

    A segment that ends at the start is passed over.  See `Log.read` for the sizes.
    """
    end_position = limit_position if segment is limit_segment else segment.size_bytes
    while position >= end_position and segment is not limit_segment:
        following = segments.after(segment)
        if following is None:
            return None
        segment, position = following, 0
        segment.open()
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


def place_of(segments: SegmentList, offset: int, log_end_offset: int, may_have_gaps: bool) -> tuple[Segment, int]:
    """The segment and position of the batch that holds `offset`, or of the next one after a gap.

    At the log end it is the active segment's end.  Raises `CorruptLog` when no batch holds it and none may be missing.
    """
    if offset >= log_end_offset:
        return segments.active, segments.active.size_bytes
    segment = segments[segments.slot_for(offset)]
    found = segment.find(offset)
    if (found is None or found[1][0] > offset) and not may_have_gaps:
        # Heads are not covered by the batch's checksum, and files can be lost: no reader may skip it silently.
        position = segment.size_bytes if found is None else found[0]
        raise CorruptLog(segment.log_path, position, offset, "no batch holds this offset")
    return (segment, segment.size_bytes) if found is None else (segment, found[0])


def _batch_size_bytes(segment: Segment, position: int, offset: int) -> int:
    head = segment.open().read_at(position, BATCH_OVERHEAD_BYTES)
    if len(head) < BATCH_OVERHEAD_BYTES:
        raise CorruptLog(segment.log_path, position, offset, "the file ends inside the head of a batch")
    length_bytes: int = HEADER.unpack_from(head)[1]
    return LOG_OVERHEAD_BYTES + length_bytes


def offset_for_timestamp(
    segments: SegmentList, log_start_offset: int, timestamp_ms: int, limit_offset: int
) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp_ms` or later, in [log_start_offset, limit_offset)."""
    for segment in segments:
        if segment.base_offset >= limit_offset:
            return None
        if segment.greatest_timestamp()[0] < timestamp_ms:
            continue
        found = _first_at_or_after(segment, log_start_offset, timestamp_ms, limit_offset)
        if found is not None:
            return found
    return None


def _first_at_or_after(
    segment: Segment, log_start_offset: int, timestamp_ms: int, limit_offset: int
) -> TimestampOffset | None:
    start_offset = max(segment.offset_after_older(timestamp_ms), log_start_offset)
    place = segment.find(start_offset)
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
    """Search one batch: only this kind of read (ListOffsets by time) opens records.

    A batch that cannot be opened (it was not opened when it was produced), or is very large, is found as a whole, by
    its first offset.
    """
    whole_batch = TimestampOffset(head[8], max(head[0], start_offset), head[2])
    if head[5] & TIMESTAMP_TYPE_BIT:
        return whole_batch
    batch = segment.open().read_at(position, LOG_OVERHEAD_BYTES + head[1])
    try:
        records = decode_batch(memoryview(batch), size_bytes_max=_OPENED_BATCH_BYTES_MAX)
    except WireError:
        return whole_batch
    for record in records:
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, head[2])
    return None


def offset_of_max_timestamp(
    segments: SegmentList, log_start_offset: int, limit_offset: int
) -> TimestampOffset | None:  # fmt: skip
    """The first record that has the greatest timestamp (KIP-734), in [log_start_offset, limit_offset)."""
    greatest_ms = -1
    for segment in segments:
        if segment.base_offset < limit_offset:
            greatest_ms = max(greatest_ms, segment.greatest_timestamp()[0])
    # Batches above the limit may hold the greatest one: then it is found among those below it by a walk.
    while greatest_ms >= 0:
        found = offset_for_timestamp(segments, log_start_offset, greatest_ms, limit_offset)
        if found is not None:
            return found
        greatest_ms = _greatest_below(segments, log_start_offset, limit_offset, greatest_ms)
    return None


def _greatest_below(segments: SegmentList, log_start_offset: int, limit_offset: int, below_ms: int) -> int:
    """The greatest batch timestamp under `below_ms` among the batches below the limit and above the log's start."""
    greatest_ms = -1
    for segment in segments:
        if segment.base_offset >= limit_offset:
            break
        scan = BatchScan(segment.open(), 0, segment.size_bytes, HEAD_CHUNK_BYTES)
        for _, head in scan.heads():
            if head[0] >= limit_offset:
                break
            if head[0] + head[6] >= log_start_offset and head[8] < below_ms:
                greatest_ms = max(greatest_ms, head[8])
    return greatest_ms
