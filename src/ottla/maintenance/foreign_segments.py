"""Segments that cannot be of the log in whose directory they are: their first batch says so."""

from __future__ import annotations

from ottla.records.header import BatchHeader
from ottla.runtime.disk import Disk
from ottla.storage.log_files import base_offsets_in, segment_file_name
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan


def foreign_segments(disk: Disk, directory: str) -> list[str]:
    """The names of segments whose first batch lies outside of the offsets that their place gives them, or is none.

    A log that is written meanwhile may show its newest one.  Raises `OSError`.
    """
    bases = base_offsets_in(disk.list_directory(directory))
    ends: list[int | None] = [*bases[1:], None][: len(bases)]
    return [
        segment_file_name(base)
        for base, end in zip(bases, ends, strict=True)
        if not _may_be_own(disk, f"{directory}/{segment_file_name(base)}", base, end)
    ]


def _may_be_own(disk: Disk, path: str, base_offset: int, end_offset: int | None) -> bool:
    file = disk.open(path, read_only=True)
    try:
        size_bytes = file.size_bytes()
        if not size_bytes:
            return True
        scan = BatchScan(file, 0, size_bytes, HEAD_CHUNK_BYTES)
        first = next(scan.heads(), None)
    finally:
        file.close()
    if first is None:
        # A torn write at the very end of a log: recovery cuts it.
        return end_offset is None
    header = BatchHeader._make(first[1])
    # Compaction may have taken what came before it, so it may begin later than its name.
    return base_offset <= header.base_offset and (end_offset is None or header.next_offset <= end_offset)
