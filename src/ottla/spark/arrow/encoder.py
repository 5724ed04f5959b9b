"""Arrow columns to record batches: the reverse of `decoder`, compiled where the package was built with a compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_PRODUCER_ID
from ottla.records.builder import NO_PRODUCER_EPOCH, NO_SEQUENCE
from ottla.records.checksum import batch_crc
from ottla.records.compression import Codec, compress
from ottla.records.header import BATCH_OVERHEAD_BYTES, CRC, CRC_AT, HEADER, LOG_OVERHEAD_BYTES, MAGIC
from ottla.spark.arrow import compiled_rows
from ottla.spark.arrow.joined_records import JoinedRows
from ottla.spark.arrow.record_columns import RecordColumns, records_too_large
from ottla.spark.arrow.varint_columns import Ints

# A batch's length has 31 bits.
RECORDS_BYTES_LIMIT: Final = 1 << 31


class RowForm(Protocol):
    """What numpy and the compiled library both do, with the same bytes as result."""

    def sizes_max(self) -> Ints: ...

    def key_hashes(self) -> Ints: ...

    def records(self, rows: Ints, size_bytes_max: int) -> memoryview:
        """The record area of a batch, until the next call; `size_bytes_max` is the sum of the rows' `sizes_max`."""
        ...


class RecordRows:
    """The rows of some parts, numbered over all of them.  Raises `UnencodableColumn` for a header without a key."""

    def __init__(self, parts: Sequence[RecordColumns]) -> None:
        compiled = compiled_rows.COMPILED
        self._form: RowForm = JoinedRows(parts) if compiled is None else compiled.rows(parts)
        self._timestamps_ms = np.concatenate([part.timestamps_ms for part in parts])
        self.sizes_max = self._form.sizes_max()
        """An upper bound of each row's bytes in a batch."""

    def __len__(self) -> int:
        return len(self._timestamps_ms)

    def key_hashes(self) -> Ints:
        """murmur2 of every key, `NO_KEY` for a null."""
        return self._form.key_hashes()

    def encode_batch(self, rows: Ints, codec: Codec = Codec.NONE, *, has_checksum: bool = True) -> bytearray:
        """One record batch of these rows in their order, base offset 0; the producer stamps its id and sequence.

        `has_checksum` is False for a batch that `stamp_producer` completes.
        """
        assert len(rows), "a batch holds at least one record"
        size_bytes_max = int(self.sizes_max[rows].sum())
        if size_bytes_max >= RECORDS_BYTES_LIMIT:
            raise records_too_large()
        records = self._form.records(rows, size_bytes_max)
        body = records if codec is Codec.NONE else compress(codec, records)
        timestamps_ms = self._timestamps_ms[rows]
        header = HEADER.pack(
            0,
            BATCH_OVERHEAD_BYTES + len(body) - LOG_OVERHEAD_BYTES,
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            int(codec),
            len(rows) - 1,
            int(timestamps_ms[0]),
            int(timestamps_ms.max()),
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            len(rows),
        )
        batch = bytearray().join([header, body])
        if has_checksum:
            CRC.pack_into(batch, CRC_AT, batch_crc(batch))
        return batch


def split_rows(sizes: Ints, size_bytes_max: int) -> Iterator[slice]:
    """Runs of rows that fit a batch of `size_bytes_max`; a row that alone is larger gets a batch of its own."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        used = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, used + size_bytes_max - BATCH_OVERHEAD_BYTES, side="right"))
        yield slice(start, max(end, start + 1))
        start = max(end, start + 1)
