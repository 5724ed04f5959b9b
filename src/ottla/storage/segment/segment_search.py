"""Finding batches in one segment, from the nearest index entry on.

No checksum covers an index or a batch's base offset: a wrong entry is found when it is used, and then the indexes are
rebuilt from the log; an offset that does not follow from the one before is damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.storage.errors import CorruptLog
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.time_index import TimeIndex

if TYPE_CHECKING:
    from ottla.storage.segment.segment import Segment

# How far behind its last entry a time index is checked against the log when it is read.
_LOOK_BEHIND_BYTES: Final = 64 * 1024

_NO_HEAD: Final[BatchTuple] = (0,) * 13
_BAD_INDEX: Final = (-1, _NO_HEAD)
_NOTHING: Final = (-2, _NO_HEAD)


def find(segment: Segment, offset: int) -> tuple[int, BatchTuple] | None:
    """(position, head) of the first batch that ends at or above `offset`; None when all end below it."""
    found = _find_from_index(segment, segment.indexes()[0], offset)
    if found is _BAD_INDEX:
        found = _find_from_index(segment, segment.rebuild_indexes()[0], offset)
        assert found is not _BAD_INDEX
    return None if found == _NOTHING else found


def _find_from_index(segment: Segment, offset_index: OffsetIndex, offset: int) -> tuple[int, BatchTuple]:
    file = segment.open()
    slot = offset_index.slot_for(offset - segment.base_offset)
    position = offset_index.positions[slot] if slot >= 0 else 0
    indexed_last = segment.base_offset + offset_index.relative_offsets[slot] if slot >= 0 else -1
    scan = BatchScan(file, position, segment.size_bytes, HEAD_CHUNK_BYTES)
    next_offset = segment.base_offset
    for at, head in scan.heads():
        last_offset = head[0] + head[6]
        if indexed_last >= 0:
            if last_offset != indexed_last:
                return _BAD_INDEX
            indexed_last = -1
        elif head[0] != next_offset and (head[0] < next_offset or not segment.may_have_gaps):
            # Each batch follows from the one before.
            raise CorruptLog(segment.log_path, at, next_offset, f"base offset {head[0]} where {next_offset} must stand")
        if last_offset >= offset:
            return at, head
        next_offset = last_offset + 1
    if scan.problem is not None:
        if indexed_last >= 0:
            return _BAD_INDEX
        raise CorruptLog(segment.log_path, scan.position, offset, scan.problem)
    return _NOTHING


def end_below(segment: Segment, offset: int) -> int:
    """Where the last batch ends (exclusive) that is wholly below `offset`; the base offset when there is none."""
    offset_index = segment.indexes()[0]
    slot = offset_index.slot_for(offset - 1 - segment.base_offset)
    end_offset = _end_below(segment, offset, offset_index.positions[slot] if slot >= 0 else 0)
    if slot >= 0 and end_offset <= segment.base_offset + offset_index.relative_offsets[slot]:
        # The entry was wrong: it names a batch below `offset`.
        return _end_below(segment, offset, 0)
    return end_offset


def _end_below(segment: Segment, offset: int, position: int) -> int:
    end_offset = segment.base_offset
    for _, head in BatchScan(segment.open(), position, segment.size_bytes, HEAD_CHUNK_BYTES).heads():
        if head[0] + head[6] >= offset:
            break
        end_offset = head[0] + head[6] + 1
    return end_offset


def offset_behind_older(segment: Segment, timestamp_ms: int) -> int:
    """An offset before which every record is older than `timestamp_ms`, as far on as the time index tells."""
    offset_index, time_index = segment.indexes()
    slot = time_index.slot_for(timestamp_ms)
    if slot >= 0 and not is_true_entry(segment, offset_index, time_index, slot):
        time_index = segment.rebuild_indexes()[1]
        slot = time_index.slot_for(timestamp_ms)
    return segment.base_offset + time_index.relative_offsets[slot] + 1 if slot >= 0 else segment.base_offset


def is_true_entry(segment: Segment, offset_index: OffsetIndex, time_index: TimeIndex, slot: int) -> bool:
    """Whether an entry of the time index names a batch of its timestamp; nothing greater follows the last soon."""
    offset = segment.base_offset + time_index.relative_offsets[slot]
    timestamp_ms = time_index.timestamps_ms[slot]
    position, head = _find_from_index(segment, offset_index, offset)
    if position < 0 or head[0] + head[6] != offset or head[8] != timestamp_ms:
        return False
    if slot + 1 == len(time_index):
        for at, following in BatchScan(segment.open(), position, segment.size_bytes, HEAD_CHUNK_BYTES).heads():
            if following[8] > timestamp_ms:
                return False
            if at - position > _LOOK_BEHIND_BYTES:
                break
    return True
