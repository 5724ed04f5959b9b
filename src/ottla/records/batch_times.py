"""How many records of a batch are in each event-time window: what a full decode would count, at a fraction of its work.

What a head says of times: with LogAppendTime its maximum is the time of every record, so the records are not opened.
Else it has the first record's time, and the greatest that the producer claims.  That says nothing of the least: where
both share a window, a record between them may still are in an earlier one.  So every record's delta is looked at.

Records of one size are proved to be so by columns, in the strided slices of the buffer; then the bytes of their deltas
are columns, too, and say together that no delta leaves the window.  Others are walked one by one, past their contents.
"""

from __future__ import annotations

from typing import Final

from ottla.model.windows import window_start_ms
from ottla.records.compression import Codec, decompress
from ottla.records.errors import CorruptBatch
from ottla.records.header import BATCH_OVERHEAD_BYTES, BatchHeader
from ottla.records.record import (
    DECOMPRESSED_BYTES_MAX,
    INT64_LIMIT,
    INT64_MIN,
    RECORD_BYTES_MIN,
    check_batch,
    check_end,
    decode_batch,
)
from ottla.records.varint import read_varint, read_varlong

# Fewer records of one size are not worth the proof.
_RUN_RECORDS_MIN: Final = 16
# Where records are not alike it is tried again after so many; twice as many each time.
_WALKED_RECORDS: Final = 32
_WALKED_RECORDS_MAX: Final = 1 << 14
_GOES_ON: Final = bytes(range(128, 256))
_ENDS: Final = bytes(range(128))
_NOT_NEGATIVE: Final = bytes(range(0, 256, 2))


def window_counts(
    batch: memoryview, window_ms: int, *, first_offset: int = 0, size_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> dict[int, int]:
    """By the windows' starts, the records of one whole batch at `first_offset` and after; of a control batch none.

    Raises CorruptBatch where a reader would find the checksum, or the records' sizes, wrong; what a record has inside
    is not looked at.
    """
    header = check_batch(batch)
    if header.is_control or not header.records_count:
        return {}
    if header.base_offset < first_offset:
        # A reader skips records below the log's start: only the records show which they are.
        times_ms = [record.timestamp_ms for record in decode_batch(batch) if record.offset >= first_offset]
        counts: dict[int, int] = {}
        for time_ms in times_ms:
            _add(counts, window_start_ms(time_ms, window_ms), 1)
        return counts
    if header.is_log_append_time:
        return {window_start_ms(header.max_timestamp_ms, window_ms): header.records_count}
    data = decompress(Codec(header.codec), batch[BATCH_OVERHEAD_BYTES:], size_bytes_max)
    return _counts(data, header, window_ms)


def _counts(data: bytes, header: BatchHeader, window_ms: int) -> dict[int, int]:
    counts: dict[int, int] = {}
    position, left_count = 0, header.records_count
    walk_count = _WALKED_RECORDS
    while left_count:
        found_count, position = _alike(data, position, left_count, header.base_timestamp_ms, window_ms, counts)
        if found_count:
            walk_count = _WALKED_RECORDS
        else:
            found_count = min(left_count, walk_count)
            position = _walk(data, position, found_count, header.base_timestamp_ms, window_ms, counts)
            walk_count = min(2 * walk_count, _WALKED_RECORDS_MAX)
        left_count -= found_count
    check_end(data, position)
    return counts


def _alike(
    data: bytes, position: int, count: int, base_ms: int, window_ms: int, counts: dict[int, int]
) -> tuple[int, int]:
    """Count records of one size, with deltas of one size; how many there are, and the position after them."""
    length, start = read_varint(data, position)
    _, delta_end = read_varlong(data, start + 1)
    stride = start + length - position
    if length < RECORD_BYTES_MIN - 1 or delta_end > position + stride:
        return 0, position
    count = min(count, (len(data) - position) // stride)
    if count < _RUN_RECORDS_MIN:
        return 0, position
    end = position + count * stride
    for at in range(position, start):
        column = data[at:end:stride]
        count = min(count, len(column) - len(column.lstrip(column[:1])))
    for at in range(start + 1, delta_end):
        column = data[at:end:stride]
        count = min(count, len(column) - len(column.lstrip(_ENDS if at == delta_end - 1 else _GOES_ON)))
    if count < _RUN_RECORDS_MIN:
        return 0, position
    end = position + count * stride
    columns = [data[at:end:stride] for at in range(start + 1, delta_end)]
    _count_columns(columns, base_ms, window_ms, counts)
    return count, end


def _count_columns(columns: list[bytes], base_ms: int, window_ms: int, counts: dict[int, int]) -> None:
    """Count records by the bytes of their deltas' varints, a column for each place."""
    count = len(columns[0])
    # So many bytes hold deltas below this, unless they are negative.
    limit_ms = 1 << (7 * len(columns) - 1)
    start_ms = window_start_ms(base_ms, window_ms)
    in_range = INT64_MIN <= base_ms < INT64_LIMIT - limit_ms
    if in_range and base_ms + limit_ms <= start_ms + window_ms and not columns[0].translate(None, _NOT_NEGATIVE):
        _add(counts, start_ms, count)
        return
    for index in range(count):
        delta_ms, _ = read_varlong(bytes(column[index] for column in columns), 0)
        _add(counts, _start(base_ms + delta_ms, window_ms), 1)


def _walk(data: bytes, position: int, count: int, base_ms: int, window_ms: int, counts: dict[int, int]) -> int:
    """Count the next records one by one; the position after them."""
    # Most records of a batch share the window of the one before.
    low_ms = high_ms = found_count = 0
    size_bytes = len(data)
    try:
        for _ in range(count):
            length = data[position]
            if length < 0x80:
                position += 1
            else:
                high = data[position + 1]
                if high < 0x80:
                    length = length & 0x7F | high << 7
                    position += 2
                else:
                    length, position = read_varint(data, position)
                    length <<= 1
            end = position + (length >> 1)
            if length & 1 or length < 2 * (RECORD_BYTES_MIN - 1) or end > size_bytes:
                raise CorruptBatch(f"a record's length is wrong, {size_bytes - position} bytes are left")
            raw = data[position + 1]
            if raw < 0x80:
                time_ms = base_ms + ((raw >> 1) ^ -(raw & 1))
            else:
                time_ms = base_ms + read_varlong(data, position + 1)[0]
            if low_ms <= time_ms < high_ms:
                found_count += 1
            else:
                if found_count:
                    _add(counts, low_ms, found_count)
                low_ms, found_count = _start(time_ms, window_ms), 1
                high_ms = low_ms + window_ms
            position = end
    except IndexError:
        raise CorruptBatch(f"a record at position {position} is cut off") from None
    if found_count:
        _add(counts, low_ms, found_count)
    return position


def _start(time_ms: int, window_ms: int) -> int:
    if not INT64_MIN <= time_ms < INT64_LIMIT:
        raise CorruptBatch(f"timestamp {time_ms} does not fit its type")
    return window_start_ms(time_ms, window_ms)


def _add(counts: dict[int, int], start_ms: int, count: int) -> None:
    counts[start_ms] = counts.get(start_ms, 0) + count
