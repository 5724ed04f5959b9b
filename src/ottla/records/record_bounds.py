"""Whether the records of a batch are such as any client can read: whole, in their order, and nothing after them.

`compiled_bounds.c` does the same at some five nanoseconds a record, where the package was built with a C compiler and
Python's headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from ottla.records.errors import CorruptBatch
from ottla.records.header import BATCH_OVERHEAD_BYTES, CODEC_MASK, HEADER
from ottla.records.record import INT64_LIMIT, INT64_MIN
from ottla.records.varint import read_varint, read_varlong

# (data, position, records_count, base_timestamp_ms) -> the number of the first record that cannot be read, counted from
# 0; `records_count` where bytes follow the last one; -1 where all is well.  A negative count is a fault of record 0.
# The compiled form walks a large area without the interpreter's lock.
FirstFault: TypeAlias = Callable[[bytes | bytearray | memoryview, int, int, int], int]
# The same of a whole batch, which has its head; compressed records are not looked at: -1.
BatchFault: TypeAlias = Callable[[memoryview], int]

SOUND: Final = -1


def first_fault_in_python(
    data: bytes | bytearray | memoryview, position: int, records_count: int, base_timestamp_ms: int
) -> int:
    """See `FirstFault`.  One to two microseconds a record."""
    if records_count < 0:
        # -1 is SOUND, so it is no answer for bytes after the last of -1 records.
        return 0
    area = bytes(memoryview(data)[position:])
    at = number = 0
    try:
        while number < records_count:
            at = _after_record(area, at, number, base_timestamp_ms)
            number += 1
    except CorruptBatch:
        return number
    return SOUND if at == len(area) else records_count


def batch_fault_in_python(batch: memoryview) -> int:
    """See `BatchFault`."""
    header = HEADER.unpack_from(batch)
    if header[5] & CODEC_MASK:
        return SOUND
    return first_fault_in_python(batch, BATCH_OVERHEAD_BYTES, header[12], header[7])


def _after_record(area: bytes, at: int, number: int, base_timestamp_ms: int) -> int:
    length, at = read_varint(area, at)
    end = at + length
    if length < 1 or end > len(area):
        raise CorruptBatch(f"a record of {length} bytes, {len(area) - at} are left")
    # A read past the record's end leaves the position there, where nothing fits any more.
    timestamp_delta, at = read_varlong(area, at + 1)
    offset_delta, at = read_varint(area, at)
    if offset_delta != number or not INT64_MIN <= base_timestamp_ms + timestamp_delta < INT64_LIMIT:
        raise CorruptBatch(f"offset delta {offset_delta}, timestamp delta {timestamp_delta}")
    at = _after_bytes(area, _after_bytes(area, at, end), end)
    headers_count, at = read_varint(area, at)
    if headers_count < 0:
        raise CorruptBatch(f"{headers_count} headers")
    for _ in range(headers_count):
        at = _after_bytes(area, _after_bytes(area, at, end, length_min=0), end)
    if at != end:
        raise CorruptBatch("the record does not end where its length says")
    return end


def _after_bytes(area: bytes, at: int, end: int, *, length_min: int = -1) -> int:
    """`end`: of the record."""
    length, at = read_varint(area, at)
    if at > end or not length_min <= length <= end - at:
        raise CorruptBatch(f"a field of {length} bytes, {end - at} are left in the record")
    return at + max(length, 0)


class RecordCheck(NamedTuple):
    """One form of the check."""

    first_fault: FirstFault
    batch_fault: BatchFault


IN_PYTHON: Final = RecordCheck(first_fault_in_python, batch_fault_in_python)


def _compiled() -> RecordCheck | None:
    try:
        from ottla.records.compiled_bounds import batch_fault, first_fault
    except ImportError:
        return None
    return RecordCheck(first_fault, batch_fault)


# None where the package was built without it.
COMPILED: Final = _compiled()


def fault_text(number: int, records_count: int) -> str:
    """The error message for a client about a fault that was found."""
    if number == records_count:
        return "bytes follow the last record of the batch"
    return f"record {number} of {records_count} is malformed: its lengths, offset delta or headers are not a record's"
