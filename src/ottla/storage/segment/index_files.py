"""The files of a segment's two indexes.

Neither has a checksum, so the segment checks what was read against its log before it uses it.
"""

from __future__ import annotations

from ottla.runtime.disk import Disk, read_file, write_fully
from ottla.storage.log_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.time_index import TimeIndex


def write_index_files(disk: Disk, stem: str, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
    """Write both files as the indexes are now, without a sync."""
    for suffix, content in ((INDEX_SUFFIX, offset_index.to_bytes()), (TIME_INDEX_SUFFIX, time_index.to_bytes())):
        file = disk.open(stem + suffix, create=True)
        try:
            file.truncate(0)
            write_fully(file, 0, content)
        finally:
            file.close()


def read_index_files(disk: Disk, stem: str, log_bytes: int) -> tuple[OffsetIndex, TimeIndex] | None:
    """Both indexes; None when a file is missing or cannot be an index of a `.log` file of `log_bytes`."""
    index_path, time_index_path = stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX
    if not disk.exists(index_path) or not disk.exists(time_index_path):
        return None
    offset_index = OffsetIndex.from_bytes(read_file(disk, index_path), log_bytes)
    time_index = TimeIndex.from_bytes(read_file(disk, time_index_path))
    return None if offset_index is None or time_index is None else (offset_index, time_index)
