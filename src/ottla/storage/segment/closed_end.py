"""Where a closed segment ends, by its last batch: found from the offset index's last entry on, so that a start can ask
every segment of a thousand logs.

Nothing else tells that a file has lost its end: the next segment's name says only where that should have been.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ottla.runtime.disk import Disk, File
from ottla.storage.log_files import INDEX_SUFFIX, LOG_SUFFIX
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan
from ottla.storage.segment.offset_index import ENTRY_BYTES

_ENTRY: Final = struct.Struct(">ii")
_WRONG_ENTRY: Final = None


class ClosedEnd(NamedTuple):
    """The end of the last whole batch: offset (exclusive) and position; `problem` says why the file goes on."""

    end_offset: int
    position: int
    problem: str | None


def closed_end(
    disk: Disk, stem: str, base_offset: int, size_bytes: int, *, has_index: bool, may_have_gaps: bool
) -> ClosedEnd:
    """Read the heads at the end of a `.log` file of `size_bytes`, all of them where the index is of no use.

    Files are closed again: a start does not hold a descriptor for each segment.  Raises `OSError`.
    """
    if not size_bytes:
        return ClosedEnd(base_offset, 0, None)
    entry = _last_entry(disk, stem) if has_index else None
    file = disk.open(stem + LOG_SUFFIX, read_only=True)
    try:
        if entry is not None and 0 < entry[1] < size_bytes:
            last_offset, position = base_offset + entry[0], entry[1]
            found = _walk(file, base_offset, position, last_offset, size_bytes, may_have_gaps=may_have_gaps)
            if found is not _WRONG_ENTRY:
                return found
        found = _walk(file, base_offset, 0, None, size_bytes, may_have_gaps=may_have_gaps)
        assert found is not None
        return found
    finally:
        file.close()


def _last_entry(disk: Disk, stem: str) -> tuple[int, int] | None:
    """(relative last offset, position) of the last batch that the index names."""
    file = disk.open(stem + INDEX_SUFFIX, read_only=True)
    try:
        index_bytes = file.size_bytes()
        if index_bytes < ENTRY_BYTES or index_bytes % ENTRY_BYTES:
            return None
        entry = file.read_at(index_bytes - ENTRY_BYTES, ENTRY_BYTES)
    finally:
        file.close()
    if len(entry) < ENTRY_BYTES:
        return None
    relative_offset, position = _ENTRY.unpack(entry)
    return relative_offset, position


def _walk(
    file: File, base_offset: int, position: int, indexed_offset: int | None, size_bytes: int, *, may_have_gaps: bool
) -> ClosedEnd | None:
    """The end, from the batch at `position` on; None when that is not the one that ends with `indexed_offset`."""
    scan = BatchScan(file, position, size_bytes, HEAD_CHUNK_BYTES)
    end_offset = base_offset
    for at, head in scan.heads():
        if indexed_offset is not None:
            if head[0] + head[6] != indexed_offset:
                return _WRONG_ENTRY
            indexed_offset = None
        elif head[0] < end_offset or (head[0] > end_offset and not may_have_gaps):
            return ClosedEnd(end_offset, at, f"a batch with base offset {head[0]} instead of {end_offset}")
        end_offset = head[0] + head[6] + 1
    if indexed_offset is not None:
        return _WRONG_ENTRY
    return ClosedEnd(end_offset, scan.position, scan.problem)
