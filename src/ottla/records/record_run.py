"""The records of a batch by column, a run of them at a time: how consumers read.

Records are guessed to be alike and proved so by columns, without a step of Python for each.  Where all are of one size,
strided slices are the columns, and one `Struct` cuts keys and values out.  Where only the values' lengths differ, the
records are found by their lengths first.  Others are read one by one, with the varints of common records inline.
Everything else is read, or refused, by `record.read_record`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import sub
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.limits import MIB
from ottla.records.errors import CorruptBatch
from ottla.records.header import BatchHeader
from ottla.records.record import (
    DECOMPRESSED_BYTES_MAX,
    INT64_LIMIT,
    INT64_MIN,
    Headers,
    check_end,
    open_batch,
    read_headers,
    read_record,
)
from ottla.records.varint import VARINTS, read_varint, read_varlong

# A run holds so many records, and ends with the record that passes so many bytes: what a reader has decoded ahead.
RUN_RECORDS_MAX: Final = 512
RUN_BYTES: Final = 1 * MIB

# Records of one size are cut out so many at a time.  With fewer in all the proof costs more than it saves.
_CUT_RECORDS: Final = 16
_CUTTERS_KEPT: Final = 256
# The inline varints have at most two bytes.
_SHORT_LIMIT: Final = 1 << 14
_SHORT_DELTA_LIMIT: Final = _SHORT_LIMIT >> 1
_RAW_NULL: Final = 1
# The fields before a record's key with such varints: length, attributes, two deltas, the key's length.
_SHORT_HEAD_BYTES_MAX: Final = 2 + 1 + 2 + 2 + 2


class RecordRun(NamedTuple):
    """Consecutive records of one batch, a column of equal length for each field."""

    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]

    def from_offset(self, offset: int) -> RecordRun:
        """The records at `offset` and after: a batch may start below the requested offset."""
        first = bisect_left(self.offsets, offset)
        if first == 0:
            return self
        offsets, timestamps_ms, keys, values, headers = self
        return RecordRun(offsets[first:], timestamps_ms[first:], keys[first:], values[first:], headers[first:])


def read_runs(
    batch: memoryview, *, check_crc: bool = True, size_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[RecordRun]:
    """The records of one whole batch, control records too.

    The records are those of `record.decode_batch`, and so are the errors; they come after the runs before the fault.
    Nothing is read before the first `next`.
    """
    header, data = open_batch(batch, check_crc=check_crc, size_bytes_max=size_bytes_max)
    position, left_count = 0, header.records_count
    while left_count:
        alike = _alike_run(data, position, left_count, header) if left_count >= _CUT_RECORDS else None
        run, position = alike or _uneven_run(data, position, left_count, header)
        left_count -= len(run.values)
        yield run
    check_end(data, position)


class _Layout(NamedTuple):
    """Where the fields of a record without headers start, from its own start; a null has the length -1."""

    timestamp_at: int
    delta_at: int
    key_length_at: int
    key_at: int
    key_bytes: int
    value_length_at: int
    value_at: int
    value_bytes: int
    size_bytes: int
    offset_delta: int


def _layout_at(data: bytes, position: int) -> _Layout | None:
    """The layout of the record at `position`; None where it has headers or is not a record."""
    try:
        length, start = read_varint(data, position)
        end = start + length
        _, delta_at = read_varlong(data, start + 1)
        offset_delta, key_length_at = read_varint(data, delta_at)
        key_bytes, key_at = read_varint(data, key_length_at)
        value_length_at = key_at + max(key_bytes, 0)
        value_bytes, value_at = read_varint(data, value_length_at)
    except CorruptBatch:
        return None
    last_at = value_at + max(value_bytes, 0)
    if key_bytes < -1 or value_bytes < -1 or last_at + 1 != end or end > len(data) or data[last_at] or offset_delta < 0:
        return None
    return _Layout(
        start + 1 - position,
        delta_at - position,
        key_length_at - position,
        key_at - position,
        key_bytes,
        value_length_at - position,
        value_at - position,
        value_bytes,
        end - position,
        offset_delta,
    )


def _alike_run(data: bytes, position: int, count: int, header: BatchHeader) -> tuple[RecordRun, int] | None:
    """A run of records at dense offsets whose fields before the value have the same sizes; None without one."""
    layout = _layout_at(data, position)
    if layout is None:
        return None
    span = _DELTA_SPANS.get(layout.key_length_at - layout.delta_at, 1)
    delta = layout.offset_delta
    count = min(count, RUN_RECORDS_MAX, span - delta % span, header.last_offset_delta + 1 - delta)
    if count < _CUT_RECORDS:
        return None
    return _even_run(data, position, count, header, layout) or _walked_run(data, position, count, header, layout)


class _Heads(NamedTuple):
    """The starts of a run's records, at equal distances in `data`."""

    data: bytes
    first: int
    end: int
    stride: int

    def column(self, at: int) -> bytes:
        """The byte at `at` of every record."""
        return self.data[self.first + at : self.end : self.stride]

    def are_alike(self, begin: int, end: int) -> bool:
        """Whether the bytes in a range of places are the same in every record."""
        columns = map(self.column, range(begin, end))
        return all(column == column[:1] * len(column) for column in columns)


def _timestamps_of_alike(heads: _Heads, count: int, header: BatchHeader, layout: _Layout) -> list[int] | None:
    """The timestamps, if the offsets are dense and the keys of one length."""
    if not heads.are_alike(layout.key_length_at, layout.key_at):
        return None
    deltas = _delta_columns(layout.offset_delta, count, layout.key_length_at - layout.delta_at)
    if any(heads.column(layout.delta_at + index) != expected for index, expected in enumerate(deltas)):
        return None
    return _timestamps([heads.column(at) for at in range(layout.timestamp_at, layout.delta_at)], header)


def _even_run(
    data: bytes, position: int, count: int, header: BatchHeader, layout: _Layout
) -> tuple[RecordRun, int] | None:
    """A run of records of one size."""
    stride = layout.size_bytes
    count = min(count, RUN_BYTES // stride, (len(data) - position) // stride)
    if count < _CUT_RECORDS:
        return None
    end = position + count * stride
    heads = _Heads(data, position, end, stride)
    if not (
        heads.are_alike(0, layout.timestamp_at - 1)
        and heads.are_alike(layout.value_length_at, layout.value_at)
        and heads.are_alike(stride - 1, stride)
    ):
        return None
    timestamps_ms = _timestamps_of_alike(heads, count, header, layout)
    if timestamps_ms is None:
        return None
    keys, values = _cut(memoryview(data)[position:end], count, layout)
    first = header.base_offset + layout.offset_delta
    return RecordRun(range(first, first + count), timestamps_ms, keys, values, [()] * count), end


def _walked_run(
    data: bytes, position: int, count: int, header: BatchHeader, layout: _Layout
) -> tuple[RecordRun, int] | None:
    """A run of records whose values have any lengths: found one after the other, and then proved together."""
    starts, end = _walk(data, position, count, layout.timestamp_at - 1)
    count = len(starts)
    if count < _CUT_RECORDS or layout.value_bytes < 0:
        return None
    value_at = layout.value_at
    ends = [*starts[1:], end]
    # With the byte before each: the last of the record before it, which says that there are no headers.
    head_bytes = value_at + 1
    joined = (
        b"\x00" + data[position : position + value_at] + b"".join([data[at - 1 : at + value_at] for at in starts[1:]])
    )
    heads = _Heads(joined, 1, len(joined), head_bytes)
    if min(map(sub, ends, starts)) < head_bytes or joined[::head_bytes] != bytes(count) or data[end - 1]:
        return None
    timestamps_ms = _timestamps_of_alike(heads, count, header, layout)
    if timestamps_ms is None:
        return None
    values = [data[at + value_at : next_at - 1] for at, next_at in zip(starts, ends, strict=True)]
    length_bytes = value_at - layout.value_length_at
    lengths = bytearray(count * length_bytes)
    for index in range(length_bytes):
        lengths[index::length_bytes] = heads.column(layout.value_length_at + index)
    if lengths != b"".join([VARINTS[length] for length in map(len, values)]):
        return None
    keys: Sequence[bytes | None] = [None] * count
    if layout.key_bytes >= 0:
        key_at, key_end = layout.key_at, layout.key_at + layout.key_bytes
        keys = [data[at + key_at : at + key_end] for at in starts]
    first = header.base_offset + layout.offset_delta
    return RecordRun(range(first, first + count), timestamps_ms, keys, values, [()] * count), end


def _walk(data: bytes, position: int, count: int, length_bytes: int) -> tuple[list[int], int]:
    """Where the next records start, and the end of the last; up to one whose length takes more or fewer bytes."""
    starts: list[int] = []
    add = starts.append
    run_end = min(position + RUN_BYTES, len(data) - 1)
    for _ in range(count):
        if position >= run_end:
            break
        low = data[position]
        if length_bytes == 1:
            if low & 0x81:
                break
            end = position + 1 + (low >> 1)
        else:
            high = data[position + 1]
            if low & 0x81 != 0x80 or high >= 0x80:
                break
            end = position + 2 + ((low & 0x7F | high << 7) >> 1)
        if end > len(data):
            break
        add(position)
        position = end
    return starts, position


# The offset deltas d whose varints have the same high bytes are within aligned spans, by the bytes of the varint.
_DELTA_SPANS: Final = {1: 1 << 6, 2: 1 << 13, 3: 1 << 13}


class _DeltaColumns:
    """The bytes of the varints of all offset deltas below 8,192, by place: one byte, or the first two of several."""

    def __init__(self) -> None:
        raws = [delta << 1 for delta in range(_DELTA_SPANS[2])]
        self.only = bytes(raws[: _DELTA_SPANS[1]])
        self.first = bytes(raw & 0x7F | 0x80 for raw in raws)
        self.last = bytes(raw >> 7 for raw in raws)
        self.middle = bytes(raw >> 7 | 0x80 for raw in raws)


@lru_cache(maxsize=1)
def _columns() -> _DeltaColumns:
    """Made when first needed: a broker never reads runs."""
    return _DeltaColumns()


def _delta_columns(delta: int, count: int, size_bytes: int) -> list[bytes]:
    """What the varints of `delta`, `delta` + 1, ... look like at each of their bytes; within one span."""
    columns = _columns()
    if size_bytes == 1:
        return [columns.only[delta : delta + count]]
    if size_bytes == 2:
        return [columns.first[delta : delta + count], columns.last[delta : delta + count]]
    high, low = divmod(delta, _DELTA_SPANS[3])
    return [columns.first[low : low + count], columns.middle[low : low + count], bytes([high]) * count]


def _timestamps(stamps: Sequence[bytes], header: BatchHeader) -> list[int] | None:
    """The timestamps of a run from the bytes of their deltas, by place; None for varints of several sizes."""
    count = len(stamps[0])
    base_ms = header.base_timestamp_ms
    if all(column.count(column[0]) == count for column in stamps):
        delta_ms, _ = read_varlong(bytes(column[0] for column in stamps), 0)
        if header.is_log_append_time:
            return [header.max_timestamp_ms] * count
        return [base_ms + delta_ms] * count if INT64_MIN <= base_ms + delta_ms < INT64_LIMIT else None
    if len(stamps) == 1 and stamps[0].isascii():
        raws: Sequence[int] = stamps[0]
    elif len(stamps) == 2 and stamps[1].isascii() and min(stamps[0]) >= 0x80:
        raws = [low & 0x7F | high << 7 for low, high in zip(*stamps, strict=True)]
    else:
        return None
    if header.is_log_append_time:
        return [header.max_timestamp_ms] * count
    if not INT64_MIN + _SHORT_DELTA_LIMIT <= base_ms < INT64_LIMIT - _SHORT_DELTA_LIMIT:
        return None
    return [base_ms + ((raw >> 1) ^ -(raw & 1)) for raw in raws]


def _cut(records: memoryview, count: int, layout: _Layout) -> tuple[Sequence[bytes | None], Sequence[bytes | None]]:
    """Keys and values of records that are laid out alike."""
    nulls: list[None] = [None] * count
    fields = [
        (at, size_bytes)
        for at, size_bytes in ((layout.key_at, layout.key_bytes), (layout.value_at, layout.value_bytes))
        if size_bytes >= 0
    ]
    if not fields:
        return nulls, nulls
    # The last ones, fewer than are cut at a time, one by one.
    many_bytes = (count - count % _CUT_RECORDS) * layout.size_bytes
    many = _cutter(layout.size_bytes, _CUT_RECORDS, *fields).iter_unpack(records[:many_bytes])
    last = _cutter(layout.size_bytes, 1, *fields).iter_unpack(records[many_bytes:])
    contents: list[bytes] = list(chain.from_iterable(chain(many, last)))
    if len(fields) == 2:
        return contents[::2], contents[1::2]
    return (nulls, contents) if layout.key_bytes < 0 else (contents, nulls)


@lru_cache(maxsize=_CUTTERS_KEPT)
def _cutter(stride: int, count: int, *fields: tuple[int, int]) -> Struct:
    """Cuts the fields (position, size) out of so many records."""
    form, end = "", 0
    for at, size_bytes in fields:
        form += f"{at - end}x{size_bytes}s"
        end = at + size_bytes
    return Struct("=" + f"{form}{stride - end}x" * count)


def _uneven_run(data: bytes, position: int, count: int, header: BatchHeader) -> tuple[RecordRun, int]:
    """The next run, record by record.

    Numbers are compared in zigzag form: an even one is twice its value, 1 is a null's length, other odd ones are
    negative.
    """
    offsets: list[int] = []
    timestamps_ms: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    size_bytes = len(data)
    inline_end = size_bytes - _SHORT_HEAD_BYTES_MAX
    base_offset, base_ms = header.base_offset, header.base_timestamp_ms
    if not INT64_MIN + _SHORT_DELTA_LIMIT <= base_ms < INT64_LIMIT - _SHORT_DELTA_LIMIT:
        inline_end = -1
    last_raw_delta = header.last_offset_delta << 1
    run_end = position + RUN_BYTES
    for _ in range(min(count, RUN_RECORDS_MAX)):
        if position >= run_end:
            break
        if position < inline_end:
            length = data[position]
            at = position + 1
            if length >= 0x80:
                length = length & 0x7F | data[at] << 7
                at += 1
            end = at + (length >> 1)
            stamp = data[at + 1]
            at += 2
            if stamp >= 0x80:
                stamp = stamp & 0x7F | data[at] << 7
                at += 1
            delta = data[at]
            at += 1
            if delta >= 0x80:
                delta = delta & 0x7F | data[at] << 7
                at += 1
            key_length = data[at]
            at += 1
            if key_length >= 0x80:
                key_length = key_length & 0x7F | data[at] << 7
                at += 1
            value_at = at + (key_length >> 1)
            # A third byte of a varint would have left a number beyond the limit.
            if (
                (length | stamp | delta | key_length) < _SHORT_LIMIT
                and not (length | delta) & 1
                and delta <= last_raw_delta
                and (key_length == _RAW_NULL or not key_length & 1)
                and value_at + 2 <= end <= size_bytes
            ):
                value_length = data[value_at]
                value_at += 1
                if value_length >= 0x80:
                    value_length = value_length & 0x7F | data[value_at] << 7
                    value_at += 1
                value_end = value_at + (value_length >> 1)
                if (
                    value_length < _SHORT_LIMIT
                    and (value_length == _RAW_NULL or not value_length & 1)
                    and value_end < end
                ):
                    names, names_end = read_headers(data, value_end, end) if data[value_end] else ((), value_end + 1)
                    if names_end == end:
                        offsets.append(base_offset + (delta >> 1))
                        timestamps_ms.append(base_ms + ((stamp >> 1) ^ -(stamp & 1)))
                        keys.append(None if key_length == _RAW_NULL else data[at : at + (key_length >> 1)])
                        values.append(None if value_length == _RAW_NULL else data[value_at:value_end])
                        headers.append(names)
                        position = end
                        continue
        record, position = read_record(data, position, header)
        offsets.append(record.offset)
        timestamps_ms.append(record.timestamp_ms)
        keys.append(record.key)
        values.append(record.value)
        headers.append(record.headers)
    if header.is_log_append_time:
        timestamps_ms = [header.max_timestamp_ms] * len(offsets)
    return RecordRun(offsets, timestamps_ms, keys, values, headers), position
