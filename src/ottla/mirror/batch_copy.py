"""A batch of the source as it is written to the target.  Pure.

It stays as it is, compressed, under a new header: the target gives it its offset, its epoch and a producer.  Three
kinds cannot: brokers refuse a batch with gaps between its offsets and one with a broker's time stamps, and of a batch
that starts below the first wanted offset only a part is copied.  Those are rebuilt, with the same codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.client.fetching.fetch_requests import AbortedBatches, FetchedPartition
from ottla.mirror.offset_translation import Run
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.records.header import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_OFFSET,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from ottla.records.record_run import read_runs

_REBUILT_BITS: Final = TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT


class CopiedBatch(NamedTuple):
    """`runs` have the source's offsets, and target offsets from 0 on.  The producer completes header and checksum."""

    batch: bytearray
    runs: Sequence[Run]
    records_count: int
    is_rebuilt: bool


def copyable_batches(fetched: FetchedPartition) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches whose records a read_committed reader gets.  Raises CorruptBatch."""
    aborted = AbortedBatches(fetched.aborted_transactions)
    for batch in fetched.batches():
        header = read_header(batch)
        if not aborted.is_aborted(header, batch) and not header.is_control:
            yield header, batch


def copied_batch(header: BatchHeader, batch: memoryview, first_offset: int) -> CopiedBatch | None:
    """The batch's records from `first_offset` on; None without any.  Raises CorruptBatch."""
    count = header.records_count
    is_dense = count == header.last_offset_delta + 1
    if header.base_offset >= first_offset and is_dense and not header.attributes & _REBUILT_BITS:
        copy = bytearray(batch)
        BASE_OFFSET.pack_into(copy, 0, 0)
        ATTRIBUTES.pack_into(copy, ATTRIBUTES_AT, header.attributes & ~TRANSACTIONAL_BIT)
        return CopiedBatch(copy, (Run(header.base_offset, 0, count),), count, is_rebuilt=False)
    return _rebuilt(header, batch, first_offset)


def _rebuilt(header: BatchHeader, batch: memoryview, first_offset: int) -> CopiedBatch | None:
    builder = BatchBuilder()
    runs: list[Run] = []
    # The batch's checksum was proved when it was fetched.
    for columns in read_runs(batch, check_crc=False):
        for offset, timestamp_ms, key, value, headers in zip(*columns, strict=True):
            if offset < first_offset:
                continue
            last = runs[-1] if runs else None
            if last is not None and last.source_first + last.length == offset:
                runs[-1] = last._replace(length=last.length + 1)
            else:
                runs.append(Run(offset, builder.records_count, 1))
            builder.append(timestamp_ms, key, value, headers)
    if not runs:
        return None
    return CopiedBatch(builder.build(codec=Codec(header.codec)), runs, builder.records_count, is_rebuilt=True)
