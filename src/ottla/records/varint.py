"""Zigzag varints of the record format: 32-bit ones take at most 5 bytes, 64-bit ones at most 10."""

from __future__ import annotations

from typing import Final

from ottla.records.errors import CorruptBatch

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10

# Varints of the numbers in this range are kept: lengths and offset deltas of common batches.
_KEPT_MIN: Final = -64
_KEPT_END: Final = 1 << 14

_INT32_LIMIT: Final = 1 << 32
_INT64_LIMIT: Final = 1 << 64


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The int32 at `position` and the position after it."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        return _read_long_form(data, position, VARINT_BYTES_MAX, _INT32_LIMIT)
    except IndexError:
        raise CorruptBatch(f"a varint at position {position} is cut off") from None


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """The int64 at `position` and the position after it."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        return _read_long_form(data, position, VARLONG_BYTES_MAX, _INT64_LIMIT)
    except IndexError:
        raise CorruptBatch(f"a varint at position {position} is cut off") from None


def _read_long_form(data: bytes, position: int, bytes_max: int, limit: int) -> tuple[int, int]:
    raw = 0
    for index in range(bytes_max):
        byte = data[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if raw >= limit:
                break
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise CorruptBatch(f"the varint at position {position} does not fit its type")


def append_varint(out: bytearray, value: int) -> None:
    """Append an int32 or int64 in zigzag form; both have the same bytes."""
    # For a negative value of Python's unbounded ints this equals (value << 1) ^ (value >> 63).
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw >= 0x80:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def varint_size_bytes(value: int) -> int:
    """The count of bytes that `append_varint` would write."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    return max(1, (raw.bit_length() + 6) // 7)


class _Varints(dict[int, bytes]):
    """`VARINTS[number]`: the varint of an int32 or int64.  One look-up for those that are kept, a fifth of encoding."""

    def __missing__(self, number: int) -> bytes:
        out = bytearray()
        append_varint(out, number)
        encoded = bytes(out)
        if _KEPT_MIN <= number < _KEPT_END:
            self[number] = encoded
        return encoded


VARINTS: Final = _Varints()
