"""Record batches to Arrow columns, a buffer at a time: no Python object per record.

The steps: headers, checksums and decompression (`slices`), the records' positions and their fields column by column
(`record_fields`), keys, values and headers copied by Arrow (`gather`, `headers_column`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from ottla.client.fetching.fetch_requests import AbortedBatches
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.model.limits import MIB
from ottla.records.header import BatchHeader
from ottla.spark.arrow import compiled_fields
from ottla.spark.arrow.columns import ARROW_TYPES, HEADER_TYPE, HEADERS_TYPE, PLAIN_COLUMNS, arrow_schema
from ottla.spark.arrow.record_fields import (
    ByteSpans,
    ChainWalker,
    RecordFields,
    gather,
    read_fields,
    read_spans,
    refuse_where,
)
from ottla.spark.arrow.slices import OFFSET_LIMIT, TIMESTAMP_MS_MAX, BatchScanner, Slice, Slicer
from ottla.spark.arrow.varint_columns import Ints, Octets
from ottla.spark.errors import UnreadableElement

TOGETHER_HEADERS_MAX: Final = 32


# All records advance together, header by header; the few with very many headers are read one by one, so that a hostile
# record cannot cost the whole buffer a numpy step for each of its headers.


def headers_column(data: Octets, fields: RecordFields) -> pa.Array:
    """`array<struct<key, value>>`; null for a record without headers, as the official connector gives it.

    Raises `UnreadableElement` with the record's index.
    """
    counts = fields.headers_counts
    records_count = len(counts)
    if not counts.any():
        return pa.nulls(records_count, HEADERS_TYPE)
    first = np.concatenate(([0], np.cumsum(counts)))
    keys, values = _read_headers(data, fields, first)
    names = _utf8(gather(data, keys))
    structs = pa.StructArray.from_arrays([names, gather(data, values)], fields=list(HEADER_TYPE))
    offsets = pa.array(first.astype(np.int32), mask=np.append(counts == 0, False))
    return pa.ListArray.from_arrays(offsets, structs, type=HEADERS_TYPE)


def _read_headers(data: Octets, fields: RecordFields, first: Ints) -> tuple[ByteSpans, ByteSpans]:
    """The spans of all header keys and values, record after record; `first[i]` is where those of record i start."""
    keys = ByteSpans(np.zeros(int(first[-1]), np.int64), np.zeros(int(first[-1]), np.int64))
    values = ByteSpans(np.zeros(int(first[-1]), np.int64), np.zeros(int(first[-1]), np.int64))
    counts = fields.headers_counts
    together = np.flatnonzero((counts > 0) & (counts <= TOGETHER_HEADERS_MAX))
    _advance(data, fields, first, together, keys, values)
    for record in np.flatnonzero(counts > TOGETHER_HEADERS_MAX).tolist():
        _read_one(data, fields, first, record, keys, values)
    return keys, values


def _advance(
    data: Octets, fields: RecordFields, first: Ints, records: Ints, keys: ByteSpans, values: ByteSpans
) -> None:
    at = fields.headers_positions[records]
    step = 0
    while len(records):
        ends = fields.ends[records]
        try:
            key, at = read_spans(data, at, ends, "header's key")
            refuse_where(key.lengths < 0, "a header's key is null")
            value, at = read_spans(data, at, ends, "header's value")
            is_last = fields.headers_counts[records] == step + 1
            refuse_where(is_last & (at != ends), "a record's headers do not end where it ends")
        except UnreadableElement as error:
            raise UnreadableElement(int(records[error.index]), error.problem) from None
        target = first[records] + step
        keys.positions[target], keys.lengths[target] = key.positions, key.lengths
        values.positions[target], values.lengths[target] = value.positions, value.lengths
        records, at = records[~is_last], at[~is_last]
        step += 1


def _read_one(data: Octets, fields: RecordFields, first: Ints, record: int, keys: ByteSpans, values: ByteSpans) -> None:
    position, end = int(fields.headers_positions[record]), int(fields.ends[record])
    area = data[position:end].tobytes()
    at = 0
    for target in range(int(first[record]), int(first[record + 1])):
        for spans, length_min in ((keys, 0), (values, -1)):
            length, at = _read_length(area, at, record)
            if length < length_min or at + max(length, 0) > len(area):
                raise UnreadableElement(record, "the length of a header does not fit its record")
            spans.positions[target], spans.lengths[target] = position + at, length
            at += max(length, 0)
    if at != len(area):
        raise UnreadableElement(record, "a record's headers do not end where it ends")


def _read_length(area: bytes, at: int, record: int) -> tuple[int, int]:
    raw = 0
    for shift in (0, 7, 14, 21, 28):
        if at >= len(area):
            raise UnreadableElement(record, "a header reaches beyond its record")
        byte = area[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at
    raise UnreadableElement(record, "a variable-length number has more than 5 bytes")


def _utf8(names: pa.Array) -> pa.Array:
    """Strings, with what is not UTF-8 replaced, as Java's decoder does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


# Where no memory is shared: one buffer for decompressed records.
_OWN_MEMORY_BYTES: Final = 16 * MIB


class Decoder:
    """Decodes fetched bytes of one partition into the wanted columns, in the wanted order.

    Compressed records are decompressed into `memory`, which several decoders may share.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str] = PLAIN_COLUMNS,
        memory: ReusedMemory | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._columns = tuple(columns)
        self._schema = arrow_schema(columns)
        self._scanner = BatchScanner(topic, partition)
        self._slicer = Slicer(self._scanner, ReusedMemory(_OWN_MEMORY_BYTES) if memory is None else memory)
        self._walker = ChainWalker()

    def decode(
        self,
        data: Buffer,
        first_offset: int = 0,
        offset_limit: int = OFFSET_LIMIT,
        aborted: AbortedBatches | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches of the records in `[first_offset, offset_limit)`; `data` holds whole record batches.

        `aborted` (of the same fetch) leaves out aborted transactions.  A record batch is checked wholly before a row of
        it is yielded.  The results do not refer to `data`.  Raises `CorruptRecords`.
        """
        view = memoryview(data)
        for part in self._slicer.slices(view, self._scanner.spans(view, first_offset, offset_limit, aborted)):
            rows = self._decode_slice(part, first_offset, offset_limit)
            if rows.num_rows:
                yield rows

    def _decode_slice(self, part: Slice, first_offset: int, offset_limit: int) -> pa.RecordBatch:
        data = np.frombuffer(part.buffer, np.uint8)
        try:
            fields = self._read_fields(part, data)
            offsets, timestamps = _offsets(part, fields), _timestamps_us(part, fields)
            rows = _rows_between(offsets, first_offset, offset_limit)
            if "headers" in self._columns:
                headers = headers_column(data, fields)[rows]
            else:
                headers = None
        except UnreadableElement as error:
            raise self._slicer.corrupt_record(part, error.index, error.problem) from None
        return self._rows(data, fields[rows], offsets[rows], timestamps[rows], _timestamp_types(part)[rows], headers)

    def _read_fields(self, part: Slice, data: Octets) -> RecordFields:
        fields = None if compiled_fields.COMPILED is None else compiled_fields.COMPILED(data, part.areas)
        if fields is None:
            starts = self._walker.starts(part.buffer, data, part.areas)
            fields = read_fields(data, starts, _record_ends(part, starts))
        return fields

    def _rows(
        self,
        data: Octets,
        fields: RecordFields,
        offsets: Ints,
        timestamps_us: Ints,
        timestamp_types: np.ndarray[tuple[int], np.dtype[np.int32]],
        headers: pa.Array | None,
    ) -> pa.RecordBatch:
        count = len(offsets)
        columns = []
        for name in self._columns:
            if name == "key":
                column = gather(data, fields.keys)
            elif name == "value":
                column = gather(data, fields.values)
            elif name == "topic":
                column = pa.repeat(pa.scalar(self._topic, pa.string()), count)
            elif name == "partition":
                column = pa.array(np.full(count, self._partition, np.int32))
            elif name == "offset":
                column = pa.array(offsets)
            elif name == "timestamp":
                column = pa.Array.from_buffers(ARROW_TYPES["timestamp"], count, [None, pa.py_buffer(timestamps_us)])
            elif name == "timestampType":
                column = pa.array(timestamp_types)
            else:
                column = headers
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _counts(part: Slice) -> Ints:
    return np.array([header.records_count for header in part.headers], np.int64)


def _of_batches(part: Slice, numbers: list[int]) -> Ints:
    """A number of each batch, repeated for each of its records."""
    return np.repeat(np.array(numbers, np.int64), _counts(part))


def _record_ends(part: Slice, starts: Ints) -> Ints:
    """Where each record must end for a valid chain: at the next record, or at the end of its batch."""
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(_counts(part)) - 1] = [area.end for area in part.areas]
    return ends


def _offsets(part: Slice, fields: RecordFields) -> Ints:
    deltas = fields.offset_deltas
    last_deltas = _of_batches(part, [header.last_offset_delta for header in part.headers])
    refuse_where((deltas < 0) | (deltas > last_deltas), "a record's offset is outside its batch")
    offsets = _of_batches(part, [header.base_offset for header in part.headers]) + deltas
    refuse_where(np.append(False, offsets[1:] <= offsets[:-1]), "a record's offset does not follow the one before it")
    return offsets


def _timestamps_us(part: Slice, fields: RecordFields) -> Ints:
    """Create time of each record; under log append time, the batch's maximum for all of its records (KIP-32).

    A producer may send any number, nanoseconds for example, which Kafka stores before 4.0: what a column of
    microseconds cannot hold is the nearest that it can, since no option could read past such a record.
    """
    base = _of_batches(part, [_base_ms(header) for header in part.headers])
    deltas = fields.timestamp_deltas
    if any(header.is_log_append_time for header in part.headers):
        deltas = np.where(_timestamp_types(part) == 1, 0, deltas)
    # Compared as floats, since the sum of two int64 may wrap; 1 % is far more than their rounding.
    about = base.astype(np.float64) + deltas.astype(np.float64)
    exact = base + deltas
    if (np.abs(about) > 0.99 * TIMESTAMP_MS_MAX).any():
        exact = np.where(about > 0.99 * TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX, exact)
        exact = np.where(about < -0.99 * TIMESTAMP_MS_MAX, -TIMESTAMP_MS_MAX, exact)
    return exact * 1000


def _base_ms(header: BatchHeader) -> int:
    return header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms


def _timestamp_types(part: Slice) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """0 for create time, 1 for log append time, as in `timestampType` of the official connector."""
    types = np.array([1 if header.is_log_append_time else 0 for header in part.headers], np.int32)
    return np.repeat(types, _counts(part))


def _rows_between(offsets: Ints, first_offset: int, offset_limit: int) -> slice:
    if first_offset <= offsets[0] and offsets[-1] < offset_limit:
        return slice(0, len(offsets))
    first, end = np.searchsorted(offsets, [first_offset, offset_limit])
    return slice(int(first), int(end))
