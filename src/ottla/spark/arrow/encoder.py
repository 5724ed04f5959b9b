"""Arrow columns to record batches, a column at a time: the reverse of `decoder`.

A record is the concatenation of five binary columns: a header (its length, attributes, two deltas, the key's length),
the key, the value's length, the value, and a tail (headers).  Numpy writes the three small ones, Arrow joins all five
in C++; the joined column's data is the record area of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_PRODUCER_ID
from ottla.records.builder import NO_PRODUCER_EPOCH, NO_SEQUENCE
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, compress
from ottla.records.header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CRC,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC,
)
from ottla.spark.arrow.columns import HEADERS_TYPE
from ottla.spark.arrow.varint_columns import Ints, to_zigzag, varint_sizes, write_varints
from ottla.spark.errors import UnencodableColumn

# Everything of a record but key, value and headers, at its widest.
RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Rows for one partition: `binary` key and value, `headers` of `HEADERS_TYPE` or None, timestamps in ms."""

    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    timestamps_ms: Ints

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> RecordColumns:
        headers = None if self.headers is None else self.headers[rows]
        return RecordColumns(self.keys[rows], self.values[rows], headers, self.timestamps_ms[rows])

    def take(self, rows: Ints) -> RecordColumns:
        index = pa.array(rows)
        headers = None if self.headers is None else self.headers.take(index)
        return RecordColumns(self.keys.take(index), self.values.take(index), headers, self.timestamps_ms[rows])


def as_binary(column: pa.Array, name: str) -> pa.Array:
    """A key or value column as `binary`.  Raises `UnencodableColumn` for a type without a byte form."""
    kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_null(kind) or any(
        is_type(kind)
        for is_type in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_string_view,
            pa.types.is_fixed_size_binary,
        )
    ):
        return column.cast(pa.binary())
    raise UnencodableColumn(
        f"the column {name!r} is {kind}; Kafka records carry bytes", hint=f"cast it: CAST({name} AS STRING) or to_json"
    )


def row_sizes_max(columns: RecordColumns) -> Ints:
    """An upper bound of each record's bytes in a batch."""
    sizes = _lengths(columns.keys) + _lengths(columns.values) + RECORD_OVERHEAD_BYTES_MAX
    if columns.headers is not None:
        bytes_of, first = _headers_joined(columns.headers)
        sizes += np.diff(_binary_offsets(bytes_of)[first])
    return sizes


def split_rows(sizes: Ints, size_bytes_max: int) -> Iterator[slice]:
    """Runs of rows that fit a batch of `size_bytes_max`; a row that alone is larger gets a batch of its own."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        used = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, used + size_bytes_max - BATCH_OVERHEAD_BYTES, side="right"))
        yield slice(start, max(end, start + 1))
        start = max(end, start + 1)


def encode_batch(columns: RecordColumns, codec: Codec = Codec.NONE) -> bytearray:
    """One record batch of all rows, base offset 0; the producer stamps its id and sequence."""
    assert len(columns), "a batch holds at least one record"
    base_timestamp_ms = int(columns.timestamps_ms[0])
    records = _encode_records(columns, columns.timestamps_ms - base_timestamp_ms)
    body = records if codec is Codec.NONE else compress(codec, records)
    batch = bytearray(BATCH_OVERHEAD_BYTES + len(body))
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD_BYTES,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        int(codec),
        len(columns) - 1,
        base_timestamp_ms,
        int(columns.timestamps_ms.max()),
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        len(columns),
    )
    batch[BATCH_OVERHEAD_BYTES:] = body
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


def _encode_records(columns: RecordColumns, timestamp_deltas: Ints) -> memoryview:
    count = len(columns)
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
        raise UnencodableColumn("a header's key is null", hint="give every header a key, or leave the header out")
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


def as_headers(column: pa.Array) -> pa.Array:
    """The headers column in our own type.  Raises `UnencodableColumn` for another shape."""
    try:
        return column.cast(HEADERS_TYPE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UnencodableColumn(
            f"the column 'headers' is {column.type}", hint="it must be array<struct<key:string,value:binary>>"
        ) from error


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
