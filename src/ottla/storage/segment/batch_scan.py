"""Walking through the batches of a segment file: heads only, or whole batches with their checksum.

A scan stops at the first place that cannot be a batch and reports why; the caller judges what that means (a torn tail,
damage).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.records.checksum import crc32c
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, HEADER, LOG_OVERHEAD_BYTES, MAGIC
from ottla.runtime.disk import File

# One read covers the gap between two index entries (4 KiB unless set) and the head after it.
HEAD_CHUNK_BYTES: Final = 4096 + BATCH_OVERHEAD_BYTES
SCAN_CHUNK_BYTES: Final = 1024 * 1024

BatchTuple = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


class BatchScan:
    """A walk from `position` to `end_position` (exclusive), both at batch boundaries.

    After the walk `position` is where it stopped, and `problem` says why if that is not the end.
    """

    __slots__ = ("_chunk_bytes", "_end_position", "_file", "position", "problem")

    def __init__(self, file: File, position: int, end_position: int, chunk_bytes: int = SCAN_CHUNK_BYTES) -> None:
        self._file = file
        self.position = position
        self._end_position = end_position
        self._chunk_bytes = chunk_bytes
        self.problem: str | None = None

    def heads(self) -> Iterator[tuple[int, BatchTuple]]:
        """(position, head) of each batch; only heads are read where batches are long."""
        chunk = b""
        chunk_start = position = self.position
        end = self._end_position
        while position < end:
            at = position - chunk_start
            if at + BATCH_OVERHEAD_BYTES > len(chunk):
                chunk = self._file.read_at(position, min(self._chunk_bytes, end - position))
                chunk_start = position
                at = 0
            head = self._head_at(chunk, at, end - position)
            if head is None:
                return
            yield position, head
            position += LOG_OVERHEAD_BYTES + head[1]
            self.position = position

    def checked_heads(self) -> Iterator[BatchTuple]:
        """The head of each batch whose checksum is right; all of the file is read."""
        # Recovery walks a whole segment by this, at 1-2 us a batch: hence checksums of slices and no views of batches.
        chunk = memoryview(b"")
        chunk_start = position = self.position
        end = self._end_position
        while position < end:
            at = position - chunk_start
            if at + BATCH_OVERHEAD_BYTES > len(chunk):
                chunk = self._read_chunk(position, self._chunk_bytes)
                chunk_start, at = position, 0
            head = self._head_at(chunk, at, end - position)
            if head is None:
                return
            after = at + LOG_OVERHEAD_BYTES + head[1]
            if after > len(chunk):
                # The length was checked against the file, so this is no more than the file holds.
                size_bytes = after - at
                chunk = self._read_chunk(position, max(size_bytes, self._chunk_bytes))
                chunk_start, at, after = position, 0, size_bytes
                if len(chunk) < size_bytes:
                    self.problem = "the file ends inside a batch"
                    return
            if crc32c(chunk[at + ATTRIBUTES_AT : after]) != head[4]:
                self.problem = "the batch's checksum is wrong"
                return
            yield head
            self.position = position = chunk_start + after

    def checked_batches(self) -> Iterator[tuple[BatchTuple, memoryview]]:
        """(head, bytes) of each batch whose checksum is right; the bytes are good until the next one."""
        chunk = memoryview(b"")
        chunk_start = position = self.position
        while position < self._end_position:
            at = position - chunk_start
            if at + BATCH_OVERHEAD_BYTES > len(chunk):
                chunk = self._read_chunk(position, self._chunk_bytes)
                chunk_start, at = position, 0
            head = self._head_at(chunk, at, self._end_position - position)
            if head is None:
                return
            size_bytes = LOG_OVERHEAD_BYTES + head[1]
            if at + size_bytes > len(chunk):
                chunk = self._read_chunk(position, max(size_bytes, self._chunk_bytes))
                chunk_start, at = position, 0
            batch = chunk[at : at + size_bytes]
            if len(batch) < size_bytes:
                self.problem = "the file ends inside a batch"
                return
            if crc32c(batch[ATTRIBUTES_AT:]) != head[4]:
                self.problem = "the batch's checksum is wrong"
                return
            yield head, batch
            self.position = position = position + size_bytes

    def _read_chunk(self, position: int, size_bytes: int) -> memoryview:
        return memoryview(self._file.read_at(position, min(size_bytes, self._end_position - position)))

    def _head_at(self, chunk: bytes | memoryview, at: int, left_bytes: int) -> BatchTuple | None:
        if len(chunk) - at < BATCH_OVERHEAD_BYTES:
            self.problem = "the file ends inside the head of a batch"
            return None
        head: BatchTuple = HEADER.unpack_from(chunk, at)
        if _LENGTH_MIN <= head[1] <= left_bytes - LOG_OVERHEAD_BYTES and head[3] == MAGIC and head[6] >= 0:
            return head
        self.problem = _problem_of(head)
        return None


_LENGTH_MIN: Final = BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES


def _problem_of(head: BatchTuple) -> str:
    if head[3] != MAGIC:
        return f"magic byte {head[3]} instead of {MAGIC}"
    if head[1] < _LENGTH_MIN:
        return f"a batch length of {head[1]} bytes, shorter than its own head"
    if head[6] < 0:
        return f"a last offset delta of {head[6]}"
    return f"a batch length of {head[1]} bytes, longer than what is left of the file"
