"""The protocol's primitive values over a memoryview: lengths are checked against the bytes that are left before they
are used.

A reader takes the bytes and a position and returns the value and the position after it; the view's end is the message's
end.  A value that does not fit raises `WireError`.
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Final, TypeAlias

from ottla.model.errors import WireError

# What a request is read from: a connection's buffer, or a view of one.
RequestBytes: TypeAlias = bytearray | mmap | memoryview

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
# As in Apache Kafka, also where the length is a varint.
STRING_BYTES_MAX: Final = INT16_MAX
# Of one section that this broker does not know.  Kafka's own messages have a few; a megabyte of them is half a second's
# work.
TAGGED_FIELDS_MAX: Final = 64
# 32 bits in groups of seven.
UVARINT_BYTES_MAX: Final = 5


def ends_early(what: str, wanted: int, left: int) -> WireError:
    return WireError(f"{what} needs {wanted} bytes, {left} are left in the message")


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    end = len(data)
    if position >= end:
        raise ends_early("a varint", 1, 0)
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for count in range(1, UVARINT_BYTES_MAX):
        if position + count >= end:
            raise ends_early("a varint", count + 1, count)
        byte = data[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + count + 1
    raise WireError("a varint has more than 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)


def uvarint_bytes(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def read_compact_length(data: memoryview, position: int) -> tuple[int, int]:
    """A length in compact form (stored plus one); -1 is null."""
    if position < len(data) and (byte := data[position]) < 0x80:
        # Nearly always.
        return byte - 1, position + 1
    stored, position = read_uvarint(data, position)
    if stored - 1 > INT32_MAX:
        raise WireError(f"a length of {stored - 1} does not fit 31 bits")
    return stored - 1, position


def read_length16(data: memoryview, position: int) -> tuple[int, int]:
    """The int16 length of a string; -1 is null."""
    if position + 2 > len(data):
        raise ends_early("a string's length", 2, len(data) - position)
    length: int = INT16.unpack_from(data, position)[0]
    if length < -1:
        raise WireError(f"a string has the negative length {length}")
    return length, position + 2


def read_length32(data: memoryview, position: int) -> tuple[int, int]:
    """The int32 length of an array or of bytes; -1 is null."""
    if position + 4 > len(data):
        raise ends_early("a length", 4, len(data) - position)
    length: int = INT32.unpack_from(data, position)[0]
    if length < -1:
        raise WireError(f"an array or a byte string has the negative length {length}")
    return length, position + 4


def take(data: memoryview, position: int, length: int) -> memoryview:
    """`length` bytes from `position`; slicing alone would silently give fewer."""
    if length < 0 or position + length > len(data):
        raise ends_early("a value", length, len(data) - position)
    return data[position : position + length]


def take_text(data: memoryview, position: int, length: int) -> str:
    try:
        return str(take(data, position, length), "utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"a string is not UTF-8: {error.reason} at its byte {error.start}") from None


def read_tagged_count(data: memoryview, position: int) -> tuple[int, int]:
    """The count at the head of a section of tagged fields."""
    count, position = read_uvarint(data, position)
    if count * 2 > len(data) - position:
        raise WireError(f"{count} tagged fields cannot fit in {len(data) - position} bytes")
    if count > TAGGED_FIELDS_MAX:
        raise WireError(f"there are {count} tagged fields in one place, {TAGGED_FIELDS_MAX} are taken")
    return count, position


def skip_tagged_fields(data: memoryview, position: int) -> int:
    """Skip a section of tagged fields, none of which is known."""
    if position < len(data) and data[position] == 0:
        # Nearly always.
        return position + 1
    count, position = read_tagged_count(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        if position + length > len(data):
            raise ends_early("a tagged field", length, len(data) - position)
        position += length
    return position


def check_count(what: str, count: int, smallest_bytes: int, data: memoryview, position: int) -> None:
    """Refuse a count of elements that is null, or that the bytes left cannot hold at `smallest_bytes` each."""
    if count < 0:
        raise WireError(f"{what} must not be null")
    if count * smallest_bytes > len(data) - position:
        raise WireError(f"{count} {what} cannot fit in {len(data) - position} bytes")
