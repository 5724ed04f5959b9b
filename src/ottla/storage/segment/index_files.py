"""The files of a segment's two indexes: how they are written, and whether what was read belongs to the segment.

Neither has a checksum, so what is read is held against the log before it is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER
from ottla.runtime.disk import Disk, File, read_file, write_fully
from ottla.storage.log_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.segment_search import is_true_entry
from ottla.storage.segment.time_index import TimeIndex

if TYPE_CHECKING:
    from ottla.storage.segment.segment import Segment


def write_index_files(disk: Disk, stem: str, offset_index: OffsetIndex, time_index: TimeIndex) -> list[File]:
    """Write both files as the indexes are now; the open files are returned for the next sync."""
    files: list[File] = []
    try:
        for suffix, content in ((INDEX_SUFFIX, offset_index.to_bytes()), (TIME_INDEX_SUFFIX, time_index.to_bytes())):
            file = disk.open(stem + suffix, create=True)
            files.append(file)
            file.truncate(0)
            write_fully(file, 0, content)
    except OSError:
        for file in files:
            file.close()
        raise
    return files


def read_index_files(disk: Disk, segment: Segment) -> tuple[OffsetIndex, TimeIndex] | None:
    """The indexes as their files have them, None when a file is missing or cannot be an index of this log."""
    index_path, time_index_path = segment.path + INDEX_SUFFIX, segment.path + TIME_INDEX_SUFFIX
    if not disk.exists(index_path) or not disk.exists(time_index_path):
        return None
    segment.open()
    offset_index = OffsetIndex.from_bytes(read_file(disk, index_path), segment.size_bytes)
    time_index = TimeIndex.from_bytes(read_file(disk, time_index_path))
    if offset_index is None or time_index is None or not _ends_right(segment, offset_index, time_index):
        return None
    return offset_index, time_index


def _ends_right(segment: Segment, offset_index: OffsetIndex, time_index: TimeIndex) -> bool:
    """Whether the time index's last entry is true: retention deletes by it."""
    if segment.size_bytes == 0:
        return not len(time_index)
    if len(time_index):
        return is_true_entry(segment, offset_index, time_index, len(time_index) - 1)
    head = segment.open().read_at(0, BATCH_OVERHEAD_BYTES)
    return len(head) == BATCH_OVERHEAD_BYTES and HEADER.unpack_from(head)[8] < 0
