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
    """Walk the headers.  A damaged batch ends the run; a run that starts with one raises CorruptBatch.

    So the batches before the damage are read, and the reader who continues there is the one that meets it.
    """
    size_bytes = len(data)
    position = batches_count = 0
    next_offset = -1
    while size_bytes - position >= BATCH_OVERHEAD_BYTES:
        header = HEADER.unpack_from(data, position)
        base_offset, length, last_offset_delta = header[0], header[1], header[6]
        end = position + LOG_OVERHEAD_BYTES + length
        damage = _damage(header, next_offset)
        if damage is None:
            if end > size_bytes:
                return BatchRun(position, next_offset, batches_count, LOG_OVERHEAD_BYTES + length)
            if check_crc and not has_valid_crc(data[position:end]):
                damage = f"the checksum of the batch at offset {base_offset} is wrong"
        if damage is not None:
            if not batches_count:
                raise CorruptBatch(damage)
            return BatchRun(position, next_offset, batches_count, 0)
        next_offset = base_offset + last_offset_delta + 1
        position = end
        batches_count += 1
    cut_batch_bytes = 0
    if size_bytes - position >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(data[position + LENGTH_AT : position + LOG_OVERHEAD_BYTES], "big", signed=True)
        cut_batch_bytes = LOG_OVERHEAD_BYTES + max(0, length)
    return BatchRun(position, next_offset, batches_count, cut_batch_bytes)


def _damage(header: tuple[int, ...], next_offset: int) -> str | None:
    """The problem of the head of a batch that follows those below `next_offset`."""
    base_offset, length, _, magic, _, _, last_offset_delta, *_ = header
    if length < BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES:
        return f"a batch length of {length} bytes is less than a batch's head"
    if magic != MAGIC:
        return f"a batch of format {magic}; only format {MAGIC} is read"
    if base_offset < next_offset or base_offset < 0 or last_offset_delta < 0:
        return f"a batch at offset {base_offset} + {last_offset_delta} follows offset {next_offset - 1}"
    return None
