"""Consecutive batches, as in a fetch response: the end of the last whole one, and the offset to continue at."""

from __future__ import annotations

from typing import NamedTuple

from ottla.records.checksum import has_valid_crc
from ottla.records.errors import CorruptBatch
from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER, LENGTH_AT, LOG_OVERHEAD_BYTES, MAGIC


class BatchRun(NamedTuple):
    """`end`: the bytes of whole batches.  `next_offset`: after the last whole batch, -1 when there is none.

    `cut_batch_bytes`: the size of the batch that is cut off at the end; 0 without one, or when its length is cut off,
    too.
    """

    end: int
    next_offset: int
    batches_count: int
    cut_batch_bytes: int


def survey(data: memoryview, *, check_crc: bool = False) -> BatchRun:
    """Walk the headers.  Raises CorruptBatch for invalid lengths, formats and offset sequences."""
    size_bytes = len(data)
    position = batches_count = 0
    next_offset = -1
    while size_bytes - position >= BATCH_OVERHEAD_BYTES:
        base_offset, length, _, magic, _, _, last_offset_delta, *_ = HEADER.unpack_from(data, position)
        if length < BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES:
            raise CorruptBatch(f"a batch length of {length} bytes is less than a batch's head")
        if magic != MAGIC:
            raise CorruptBatch(f"a batch of format {magic}; only format {MAGIC} is read")
        end = position + LOG_OVERHEAD_BYTES + length
        if end > size_bytes:
            return BatchRun(position, next_offset, batches_count, LOG_OVERHEAD_BYTES + length)
        if base_offset < next_offset or base_offset < 0 or last_offset_delta < 0:
            raise CorruptBatch(
                f"a batch at offset {base_offset} + {last_offset_delta} follows offset {next_offset - 1}"
            )
        if check_crc and not has_valid_crc(data[position:end]):
            raise CorruptBatch(f"the checksum of the batch at offset {base_offset} is wrong")
        next_offset = base_offset + last_offset_delta + 1
        position = end
        batches_count += 1
    cut_batch_bytes = 0
    if size_bytes - position >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(data[position + LENGTH_AT : position + LOG_OVERHEAD_BYTES], "big", signed=True)
        cut_batch_bytes = LOG_OVERHEAD_BYTES + max(0, length)
    return BatchRun(position, next_offset, batches_count, cut_batch_bytes)
