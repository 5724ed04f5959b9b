"""A segment that a clean writes: files whose names end in `.cleaned`, durable when `finish` returns.

While they have these names a crash undoes the clean: opening the log removes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.records.header import HEADER
from ottla.runtime.disk import Disk, File, write_fully
from ottla.storage.log_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from ottla.storage.producers.aborted_transactions import AbortedTransaction, format_aborted
from ottla.storage.segment.indexes import OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from typing_extensions import Buffer

CLEANED_SUFFIX: Final = ".cleaned"
_WRITE_BYTES: Final = 1024 * 1024


class CleanedFiles(NamedTuple):
    """A finished segment: its files beside the log, and the log's size."""

    base_offset: int
    size_bytes: int
    suffixes: tuple[str, ...]


class CleanedSegment:
    """Append batches in offset order.  The caller keeps positions and relative offsets within int32."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self.size_bytes = 0
        self._written_bytes = 0
        self._waiting = bytearray()
        self._bytes_since_index = 0
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._max_timestamp_ms = -1
        self._max_timestamp_offset = base_offset
        self._file = self._create(LOG_SUFFIX)

    def _create(self, suffix: str) -> File:
        path = self._path(suffix)
        if self._disk.exists(path):
            # Left by an abandoned clean.
            self._disk.remove(path)
        return self._disk.open(path, create=True)

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{segment_file_name(self.base_offset, suffix)}{CLEANED_SUFFIX}"

    def append(self, batch: Buffer) -> None:
        """Append one batch, with index entries as `Segment.account` makes them."""
        head = HEADER.unpack_from(batch)
        last_offset = head[0] + head[6]
        if head[8] > self._max_timestamp_ms:
            self._max_timestamp_ms, self._max_timestamp_offset = head[8], last_offset
        if self._bytes_since_index > self._index_interval_bytes:
            self._offset_index.append(last_offset - self.base_offset, self.size_bytes)
            self._time_index.append(self._max_timestamp_ms, self._max_timestamp_offset - self.base_offset)
            self._bytes_since_index = 0
        size_bytes = memoryview(batch).nbytes
        self._bytes_since_index += size_bytes
        self.size_bytes += size_bytes
        self._waiting += batch
        if len(self._waiting) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        write_fully(self._file, self._written_bytes, bytes(self._waiting))
        self._written_bytes += len(self._waiting)
        self._waiting.clear()

    def finish(self, aborted: list[AbortedTransaction]) -> CleanedFiles:
        """Write the rest and the indexes, and make the files durable; the caller syncs their names."""
        self._write()
        self._file.sync_data()
        self._file.close()
        if self.size_bytes:
            self._time_index.append(self._max_timestamp_ms, self._max_timestamp_offset - self.base_offset)
        contents = {INDEX_SUFFIX: self._offset_index.to_bytes(), TIME_INDEX_SUFFIX: self._time_index.to_bytes()}
        if aborted:
            contents[TRANSACTION_INDEX_SUFFIX] = format_aborted(aborted)
        for suffix, content in contents.items():
            file = self._create(suffix)
            try:
                write_fully(file, 0, content)
                file.sync_data()
            finally:
                file.close()
        return CleanedFiles(self.base_offset, self.size_bytes, (LOG_SUFFIX, *contents))

    def discard(self) -> None:
        """Remove a finished segment again: it does not differ from the old one."""
        for suffix in SEGMENT_SUFFIXES:
            path = self._path(suffix)
            if self._disk.exists(path):
                self._disk.remove(path)

    def close(self) -> None:
        self._file.close()
