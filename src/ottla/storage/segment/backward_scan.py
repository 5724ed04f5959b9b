"""Walking through the batches of a segment from its end back, block by block, as its offset index divides it.

A block begins at a batch that the index names and holds about `BLOCK_BYTES`.  Each of them is walked forwards, since a
batch does not tell where the one before it begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER
from ottla.runtime.disk import File
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan
from ottla.storage.segment.segment import Segment

BLOCK_BYTES: Final = 64 * 1024
# A walk through the single records of a block takes about as long as a search for this many patterns.
_PATTERNS_MAX: Final = 12
# Where batches are longer than this on average their heads are read faster than all of their bytes.
_DENSE_BATCH_BYTES_MAX: Final = 8192


class WrongIndex(Exception):
    """The offset index does not fit the log: a block does not begin and end with batches that follow each other."""


def blocks_backwards(segment: Segment, start_offset: int, patterns: Collection[bytes]) -> Iterator[BatchScan]:
    """A walk through each block, the last one first, to the one that holds `start_offset`.

    Blocks of short batches that hold none of `patterns`, which may change between blocks, are passed over while these
    are few.  Raises `WrongIndex`; so must the caller where a walk meets a problem.
    """
    offset_index = segment.indexes()[0]
    file = segment.open()
    end_slot, end_position = len(offset_index), segment.size_bytes
    while end_position > 0:
        slot = offset_index.slot_at(end_position - BLOCK_BYTES)
        position = offset_index.position(slot) if slot >= 0 else 0
        first_offset = _first_offset(
            segment, file, position, offset_index.relative_offset(slot) if slot >= 0 else None
        )  # fmt: skip
        size_bytes = end_position - position
        is_dense = size_bytes <= (end_slot - slot) * _DENSE_BATCH_BYTES_MAX
        if not is_dense or len(patterns) > _PATTERNS_MAX or _holds_any(file, position, size_bytes, patterns):
            yield BatchScan(file, position, end_position, size_bytes if is_dense else HEAD_CHUNK_BYTES)
        if first_offset <= start_offset:
            return
        end_slot, end_position = slot, position


def _first_offset(segment: Segment, file: File, position: int, relative_last_offset: int | None) -> int:
    """The base offset of a block's first batch, which must be the one that the index names."""
    head = file.read_at(position, BATCH_OVERHEAD_BYTES) if position >= 0 else b""
    if len(head) < BATCH_OVERHEAD_BYTES:
        raise WrongIndex
    fields = HEADER.unpack_from(head)
    base_offset: int = fields[0]
    if relative_last_offset is not None and base_offset + fields[6] != segment.base_offset + relative_last_offset:
        raise WrongIndex
    return base_offset


def _holds_any(file: File, position: int, size_bytes: int, patterns: Collection[bytes]) -> bool:
    block = file.read_at(position, size_bytes)
    return any(pattern in block for pattern in patterns)
