"""Finding records in a log by their time, or the greatest time: in steps, since it may walk through whole segments.

The log may change in each pause.  What is appended or rolled meanwhile is above the limit of the search; when
segments leave the log, or parts of them, the search restarts (`search`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from ottla.model.errors import WireError
from ottla.records.header import LOG_OVERHEAD_BYTES, TIMESTAMP_TYPE_BIT
from ottla.records.record import open_batch, read_record_head
from ottla.runtime.mutex import Mutex
from ottla.runtime.offload import Offload
from ottla.storage.errors import CorruptLog
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.indexes import TimestampOffset
from ottla.storage.segment.segment import STEP_BYTES, Segment
from ottla.storage.segment.segment_list import SegmentList

T = TypeVar("T")

# Larger ones are found as a whole.
_OPENED_BATCH_BYTES_MAX: Final = 16 << 20
_RECORDS_OF_STEP: Final = 128


class _SegmentsLeft(Exception):
    """Segments, or parts of them, are not in the log any more: nothing that a search holds is sure."""


class Guarded:
    """An `Offload` after whose awaits the log has all segments that it had at the start, else `_SegmentsLeft`."""

    __slots__ = ("_departures_count", "_offload", "_segments", "opening")

    def __init__(self, segments: SegmentList, opening: Mutex, offload: Offload) -> None:
        # Is held while a batch is open.
        self.opening = opening
        self._segments = segments
        self._departures_count = segments.departures_count
        self._offload = offload

    async def __call__(self, work: Callable[[], T]) -> T:
        try:
            result = await self._offload(work)
        except Exception:
            # It may have looked for a file that is gone now.
            self._check()
            raise
        self._check()
        return result

    async def pause(self) -> None:
        await self._offload.pause()
        self._check()

    def _check(self) -> None:
        if self._segments.departures_count != self._departures_count:
            raise _SegmentsLeft


Find = Callable[[SegmentList, int, Guarded], Awaitable[TimestampOffset | None]]


async def search(
    segments: SegmentList, log_start_offset: Callable[[], int], opening: Mutex, offload: Offload, find: Find
) -> TimestampOffset | None:
    """Await `find` from the log start on; again when its result, or segments, have left the log meanwhile.

    Of the searches that share `opening` one at a time has a batch in memory.
    """
    while True:
        try:
            found = await find(segments, log_start_offset(), Guarded(segments, opening, offload))
        except _SegmentsLeft:
            await offload.pause()
            continue
        if found is None or found.offset >= log_start_offset():
            return found


async def offset_for_timestamp(
    segments: SegmentList, log_start_offset: int, offload: Guarded, *, timestamp_ms: int, limit_offset: int
) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp_ms` or later, in [log_start_offset, limit_offset)."""
    for segment in tuple(segments):
        if segment.base_offset >= limit_offset:
            return None
        if await _greatest_timestamp(segment, offload) < timestamp_ms:
            continue
        found = await _first_at_or_after(segment, log_start_offset, timestamp_ms, limit_offset, offload)
        if found is not None:
            return found
    return None


async def _greatest_timestamp(segment: Segment, offload: Offload) -> int:
    await offload.pause()
    if segment.max_timestamp_ms is None:
        await segment.load_indexes(offload)
    return segment.greatest_timestamp()[0]


async def _first_at_or_after(
    segment: Segment, log_start_offset: int, timestamp_ms: int, limit_offset: int, offload: Guarded
) -> TimestampOffset | None:
    start_offset = max(await segment.offset_after_older(timestamp_ms, offload), log_start_offset)
    place = await segment.find_in_steps(start_offset, offload)
    if place is None:
        return None
    scan = BatchScan(segment.open(), place[0], segment.size_bytes, HEAD_CHUNK_BYTES)
    pause_at = 0
    for position, head in scan.heads():
        if head[0] >= limit_offset:
            return None
        if head[8] >= timestamp_ms:
            found = await _first_in_batch(segment, position, head, timestamp_ms, start_offset, offload)
            if found is not None:
                return found if found.offset < limit_offset else None
        if position >= pause_at:
            await offload.pause()
            pause_at = position + STEP_BYTES
    if scan.problem is not None:
        raise CorruptLog(segment.log_path, scan.position, start_offset, scan.problem)
    return None


async def _first_in_batch(
    segment: Segment, position: int, head: BatchTuple, timestamp_ms: int, start_offset: int, offload: Guarded
) -> TimestampOffset | None:
    """Search one batch: only this kind of read (ListOffsets by time) opens records.

    A batch that cannot be opened (it was not opened when it was produced), or is very large, is found as a whole, by
    its first offset.
    """
    whole_batch = TimestampOffset(head[8], max(head[0], start_offset), head[2])
    size_bytes = LOG_OVERHEAD_BYTES + head[1]
    if head[5] & TIMESTAMP_TYPE_BIT or size_bytes > _OPENED_BATCH_BYTES_MAX:
        return whole_batch
    async with offload.opening:
        # After a wait the log is read again.
        await offload.pause()
        batch = segment.open().read_at(position, size_bytes)
        try:
            # Decompression and checksum: others run meanwhile.
            opened = partial(open_batch, memoryview(batch), check_crc=True, size_bytes_max=_OPENED_BATCH_BYTES_MAX)
            header, data = await offload(opened)
            at = 0
            for number in range(header.records_count):
                offset, found_ms, _, at = read_record_head(data, at, header)
                if found_ms >= timestamp_ms and offset >= start_offset:
                    return TimestampOffset(found_ms, offset, head[2])
                if number % _RECORDS_OF_STEP == 0:
                    await offload.pause()
        except WireError:
            return whole_batch
    return None


async def offset_of_max_timestamp(
    segments: SegmentList, log_start_offset: int, offload: Guarded, *, limit_offset: int
) -> TimestampOffset | None:
    """The first record that has the greatest timestamp (KIP-734), in [log_start_offset, limit_offset)."""
    greatest_ms = -1
    for segment in tuple(segments):
        if segment.base_offset < limit_offset:
            greatest_ms = max(greatest_ms, await _greatest_timestamp(segment, offload))
    # Batches above the limit may hold the greatest one: then it is found among those below it by a walk.
    while greatest_ms >= 0:
        found = await offset_for_timestamp(
            segments, log_start_offset, offload, timestamp_ms=greatest_ms, limit_offset=limit_offset
        )
        if found is not None:
            return found
        greatest_ms = await _greatest_below(segments, log_start_offset, limit_offset, greatest_ms, offload)
    return None


async def _greatest_below(
    segments: SegmentList, log_start_offset: int, limit_offset: int, below_ms: int, offload: Guarded
) -> int:
    """The greatest batch timestamp under `below_ms` among the batches below the limit and above the log's start."""
    greatest_ms = -1
    for segment in tuple(segments):
        if segment.base_offset >= limit_offset:
            break
        scan = BatchScan(segment.open(), 0, segment.size_bytes, HEAD_CHUNK_BYTES)
        pause_at = 0
        for position, head in scan.heads():
            if head[0] >= limit_offset:
                break
            if head[0] + head[6] >= log_start_offset and head[8] < below_ms:
                greatest_ms = max(greatest_ms, head[8])
            if position >= pause_at:
                await offload.pause()
                pause_at = position + STEP_BYTES
    return greatest_ms
