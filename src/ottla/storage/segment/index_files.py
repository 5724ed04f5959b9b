"""The files of a segment's two indexes, and the bounded cache of indexes in memory.

Neither has a checksum, so the segment checks what was read against its log before it uses it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

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


def remove_index_files(disk: Disk, stem: str) -> None:
    """Remove those that are there."""
    for path in (stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX):
        if disk.exists(path):
            disk.remove(path)


def read_index_files(disk: Disk, stem: str) -> tuple[bytes, bytes] | None:
    """The content of both files, None when one is missing.  May be called in any thread."""
    index_path, time_index_path = stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX
    if not disk.exists(index_path) or not disk.exists(time_index_path):
        return None
    return read_file(disk, index_path), read_file(disk, time_index_path)


def indexes_in(contents: tuple[bytes, bytes], log_bytes: int) -> tuple[OffsetIndex, TimeIndex] | None:
    """Both indexes from the files' content; None when they cannot be those of a `.log` file of `log_bytes`."""
    offset_index = OffsetIndex.from_bytes(contents[0], log_bytes)
    time_index = TimeIndex.from_bytes(contents[1])
    return None if offset_index is None or time_index is None else (offset_index, time_index)


# A full segment of small batches has 5 MB of them: room for some 25 readers that lag in different ones.
INDEX_CACHE_BYTES: Final = 128 * 1024 * 1024


class HasIndexes(Protocol):
    """A segment as the cache uses it: its indexes can be read again from their files."""

    def drop_indexes(self) -> None: ...


class IndexCache:
    """Shared by the logs of a directory.  The active segments' indexes are never in it."""

    __slots__ = ("_bytes_max", "_entries", "size_bytes")

    def __init__(self, bytes_max: int = INDEX_CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[HasIndexes, int] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, segment: HasIndexes, size_bytes: int) -> None:
        """Keep a segment's indexes, dropping others when the bound is passed (never the one just added)."""
        self.forget(segment)
        self._entries[segment] = size_bytes
        self.size_bytes += size_bytes
        while self.size_bytes > self._bytes_max and len(self._entries) > 1:
            oldest, oldest_bytes = self._entries.popitem(last=False)
            self.size_bytes -= oldest_bytes
            oldest.drop_indexes()

    def touch(self, segment: HasIndexes) -> None:
        if segment in self._entries:
            self._entries.move_to_end(segment)

    def forget(self, segment: HasIndexes) -> None:
        self.size_bytes -= self._entries.pop(segment, 0)
