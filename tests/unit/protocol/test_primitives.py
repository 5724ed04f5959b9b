from __future__ import annotations

import pytest

from ottla.model.errors import WireError
from ottla.protocol.primitives import read_compact_length, read_uvarint, skip_tagged_fields, take, uvarint_bytes

VARINTS = [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")]


@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_uvarint_has_seven_bits_in_each_byte(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert uvarint_bytes(value) == data
    assert read_uvarint(memoryview(data + b"\x01"), 0) == (value, len(data))


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff", "ffffffff1f", "ffffffffff01", "808080808001"])
def test_cut_or_oversized_uvarint_is_refused(encoded: str) -> None:
    with pytest.raises(WireError):
        read_uvarint(memoryview(bytes.fromhex(encoded)), 0)


def test_compact_length_counts_from_one_and_zero_is_null() -> None:
    assert read_compact_length(memoryview(b"\x00"), 0) == (-1, 1)
    assert read_compact_length(memoryview(b"\x01"), 0) == (0, 1)
    with pytest.raises(WireError, match="31 bits"):
        read_compact_length(memoryview(b"\xff\xff\xff\xff\x0f"), 0)


@pytest.mark.parametrize("length", [-1, 4])
def test_take_never_gives_fewer_bytes_than_asked_for(length: int) -> None:
    with pytest.raises(WireError):
        take(memoryview(b"abc"), 0, length)


def test_tagged_fields_that_cannot_fit_are_refused_by_their_count() -> None:
    with pytest.raises(WireError, match="cannot fit"):
        skip_tagged_fields(memoryview(b"\xff\xff\xff\x7f" + bytes(100)), 0)
