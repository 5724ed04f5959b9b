"""Record headers as an Arrow list column.

All records advance together, header by header; the few with very many headers are read one by one, so that a hostile
record cannot cost the whole buffer a numpy step for each of its headers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ottla.spark.arrow.columns import HEADER_TYPE, HEADERS_TYPE
from ottla.spark.arrow.gather import gather
from ottla.spark.arrow.record_fields import ByteSpans, RecordFields, read_spans, refuse_where
from ottla.spark.arrow.varint_columns import Ints, Octets
from ottla.spark.errors import UnreadableElement

TOGETHER_HEADERS_MAX: Final = 32


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
