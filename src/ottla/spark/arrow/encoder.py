"""Arrow columns to record batches: the reverse of `decoder`, compiled where the package was built with a compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_PRODUCER_ID
from ottla.records.builder import NO_PRODUCER_EPOCH, NO_SEQUENCE
from ottla.records.checksum import batch_crc
from ottla.records.compression import Codec, compress
from ottla.records.header import (
    BATCH_OVERHEAD_BYTES,
    CRC,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from ottla.spark.arrow import compiled_rows
from ottla.spark.arrow.key_hashes import hash_column
from ottla.spark.arrow.record_columns import (
    RecordColumns,
    as_binary,
    combined,
    nameless_header,
    records_too_large,
)
from ottla.spark.arrow.varint_columns import Ints, to_zigzag, varint_sizes, write_varints

# Everything of a record but key, value and headers, at its widest.
RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5


# Without the compiled form a record is the concatenation of five binary columns: a header (its length, attributes, two
# deltas, the key's length), the key, the value's length, the value, and a tail (headers).  Numpy writes the three small
# ones, Arrow joins all five in C++; the joined column's data is the record area of a batch.


class JoinedRows:
    """The rows of some parts, numbered over all of them."""

    def __init__(self, parts: Sequence[RecordColumns]) -> None:
        self._columns = combined(parts)

    def sizes_max(self) -> Ints:
        return row_sizes_max(self._columns)

    def key_hashes(self) -> Ints:
        return hash_column(self._columns.keys)

    def records(self, rows: Ints, size_bytes_max: int) -> memoryview:
        return joined_records(self._columns.take(rows))


def row_sizes_max(columns: RecordColumns) -> Ints:
    """An upper bound of each record's bytes in a batch."""
    sizes = _lengths(columns.keys) + _lengths(columns.values) + RECORD_OVERHEAD_BYTES_MAX
    if columns.headers is not None:
        bytes_of, first = _headers_joined(columns.headers)
        sizes += np.diff(_binary_offsets(bytes_of)[first])
    return sizes


def joined_records(columns: RecordColumns) -> memoryview:
    """The record area of one batch of all rows."""
    count = len(columns)
    timestamp_deltas = columns.timestamps_ms - columns.timestamps_ms[0]
    key_sizes, value_sizes = _lengths(columns.keys), _lengths(columns.values)
    raw_timestamps = to_zigzag(timestamp_deltas)
    raw_offsets = np.arange(count, dtype=np.int64) << 1
    raw_keys, raw_values = _raw_lengths(columns.keys, key_sizes), _raw_lengths(columns.values, value_sizes)
    tail = _tail(columns.headers, count)
    body_sizes = 1 + key_sizes + value_sizes + np.diff(_binary_offsets(tail))
    for raw in (raw_timestamps, raw_offsets, raw_keys, raw_values):
        body_sizes += varint_sizes(raw)
    # The attributes byte is 0, which is what a varint of 0 looks like.
    attributes = np.zeros(count, np.int64)
    head = _varints_joined([body_sizes << 1, attributes, raw_timestamps, raw_offsets, raw_keys])
    return _data_of(_join([head, columns.keys, _varints_joined([raw_values]), columns.values, tail]))


def _tail(headers: pa.Array | None, count: int) -> pa.Array:
    """Of each record, its headers count and headers."""
    if headers is None or headers.null_count == count:
        return pa.array([b"\0"]).take(pa.array(np.zeros(count, np.int32)))
    joined, first = _headers_joined(headers)
    counts = _varints_joined([np.diff(first) << 1])
    return _join([counts, _rebound(joined, _binary_offsets(joined)[first])])


def _headers_joined(headers: pa.Array) -> tuple[pa.Array, Ints]:
    """Every header as bytes, and the index of each record's first one (one more at the end)."""
    counts = np.asarray(pc.list_value_length(headers).fill_null(0)).astype(np.int64)
    flat = headers.flatten()
    names, values = flat.flatten()
    if names.null_count:
        raise nameless_header()
    names = as_binary(names, "headers.key")
    values = as_binary(values, "headers.value")
    joined = _join(
        [
            _varints_joined([_raw_lengths(names, _lengths(names))]),
            names,
            _varints_joined([_raw_lengths(values, _lengths(values))]),
            values,
        ]
    )
    return joined, np.concatenate(([0], np.cumsum(counts)))


def _lengths(column: pa.Array) -> Ints:
    """Bytes of each value, 0 for a null."""
    lengths = pc.binary_length(column)
    return np.asarray(lengths.fill_null(0) if column.null_count else lengths).astype(np.int64)


def _raw_lengths(column: pa.Array, sizes: Ints) -> Ints:
    """The zigzag lengths: a null is -1, which is 1 in zigzag."""
    raw = sizes << 1
    if column.null_count:
        raw[np.asarray(column.is_null())] = 1
    return raw


def _varints_joined(raw_columns: list[Ints]) -> pa.Array:
    """A binary column: row i is the concatenated varints of row i of all columns."""
    sizes = [varint_sizes(raw) for raw in raw_columns]
    count = len(raw_columns[0])
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(sum(sizes), out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].astype(np.int64)
    for raw, size in zip(raw_columns, sizes, strict=True):
        write_varints(data, at, raw, size)
        at = at + size
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _join(columns: list[pa.Array]) -> pa.Array:
    """Row-wise concatenation; nulls count as empty."""
    joined = pc.binary_join_element_wise(*columns, pa.scalar(b""), null_handling="replace", null_replacement=b"")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _binary_offsets(column: pa.Array) -> Ints:
    buffer = column.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(column) + 1, np.int64)
    return np.frombuffer(buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _rebound(column: pa.Array, offsets: Ints) -> pa.Array:
    """The same bytes cut into other rows."""
    bounds = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, bounds, column.buffers()[2]])


def _data_of(column: pa.Array) -> memoryview:
    offsets = _binary_offsets(column)
    return memoryview(column.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


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

    def encode_batch(
        self, rows: Ints, codec: Codec = Codec.NONE, *, has_checksum: bool = True, is_transactional: bool = False
    ) -> bytearray:
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
            int(codec) | (TRANSACTIONAL_BIT if is_transactional else 0),
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
