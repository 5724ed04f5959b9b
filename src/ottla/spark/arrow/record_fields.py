"""The fields of all records of a buffer, column by column, with proof that every record is sound.

Record, format v2 (KIP-98): length, attributes, timestamp delta, offset delta, key length, key, value length, value,
headers count, headers.  All numbers are zigzag varints, the attributes one byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.spark.arrow.varint_columns import VARLONG_BYTES_MAX, Ints, Octets, from_zigzag, read_varints
from ottla.spark.errors import UnreadableElement

# length, attributes, two deltas, two lengths, headers count: a byte each.
RECORD_BYTES_MIN: Final = 7
HEADER_BYTES_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class ByteSpans:
    """Variable-length values inside a buffer: start and length of each; length -1 is null."""

    positions: Ints
    lengths: Ints

    def __getitem__(self, rows: slice) -> ByteSpans:
        return ByteSpans(self.positions[rows], self.lengths[rows])


@dataclass(frozen=True, slots=True)
class RecordFields:
    """One element a record.  `headers_positions` is where the first header starts, `ends` where the record ends."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    keys: ByteSpans
    values: ByteSpans
    headers_counts: Ints
    headers_positions: Ints
    ends: Ints

    def __getitem__(self, rows: slice) -> RecordFields:
        return RecordFields(
            self.timestamp_deltas[rows],
            self.offset_deltas[rows],
            self.keys[rows],
            self.values[rows],
            self.headers_counts[rows],
            self.headers_positions[rows],
            self.ends[rows],
        )


def refuse_where(wrong: npt.NDArray[np.bool_], problem: str) -> None:
    """Raises `UnreadableElement` for the first True."""
    if wrong.any():
        raise UnreadableElement(int(wrong.argmax()), problem)


def read_fields(data: Octets, starts: Ints, ends: Ints) -> RecordFields:
    """Read every field.  `ends[i]` is where record i must end: the next record's start, or the end of its batch.

    Every position is at most the record's end before anything is read from it, so a read goes at most a few bytes too
    far, never out of the buffer; and a record whose fields do not end where it ends is refused.
    Raises `UnreadableElement`.
    """
    raw, at = read_varints(data, starts)
    refuse_where((raw & 1 != 0) | (at + (raw >> 1) != ends), "a record's length does not lead to the next record")
    raw, at = read_varints(data, at + 1, VARLONG_BYTES_MAX)
    timestamp_deltas = from_zigzag(raw)
    raw, at = read_varints(data, at)
    offset_deltas = from_zigzag(raw)
    keys, at = read_spans(data, at, ends, "key")
    values, at = read_spans(data, at, ends, "value")
    raw, at = read_varints(data, at)
    headers_counts = from_zigzag(raw)
    left = ends - at
    refuse_where(left < 0, "a record's fields reach beyond its end")
    refuse_where(
        (headers_counts < 0) | (headers_counts * HEADER_BYTES_MIN > left) | ((headers_counts == 0) & (left > 0)),
        "a record's headers count does not fit its length",
    )
    return RecordFields(timestamp_deltas, offset_deltas, keys, values, headers_counts, at, ends)


def read_spans(data: Octets, at: Ints, ends: Ints, what: str) -> tuple[ByteSpans, Ints]:
    """A length (-1 is null) and so many bytes, inside each record; and the positions after them."""
    raw, at = read_varints(data, at)
    lengths = from_zigzag(raw)
    behind = at + np.maximum(lengths, 0)
    refuse_where((lengths < -1) | (behind > ends), f"the length of a {what} does not fit its record")
    return ByteSpans(at, lengths), behind


def gather(data: Octets, spans: ByteSpans) -> pa.Array:
    """A `binary` column of the spans, which ascend and do not overlap; the buffer is below 2 GiB.

    A binary array with two slots a value (the gap before it, the value) is laid over the buffer without a copy;
    `take` of every second slot then copies all values in C++.
    """
    count = len(spans.positions)
    is_null = spans.lengths < 0
    if count == 0 or is_null.all():
        return pa.nulls(count, pa.binary())
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::2] = spans.positions
    np.add(spans.positions, spans.lengths, out=offsets[2::2], casting="unsafe")
    if is_null.any():
        offsets[2::2] += is_null
    slots = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    wanted = np.arange(1, 2 * count, 2, dtype=np.int32)
    return slots.take(pa.array(wanted, mask=is_null) if is_null.any() else pa.array(wanted))
