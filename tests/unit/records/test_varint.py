from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.errors import CorruptBatch
from ottla.records.varint import append_varint, read_varint, read_varlong, varint_size_bytes

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
        (9223372036854775807, "feffffffffffffffff01"),
        (-9223372036854775808, "ffffffffffffffffff01"),
    ],
)
def test_append_varint_writes_zigzag_groups_of_seven_bits(value: int, encoded: str) -> None:
    out = bytearray()
    append_varint(out, value)
    assert out.hex() == encoded
    assert varint_size_bytes(value) == len(out)


@given(INT32, st.binary(max_size=3))
def test_read_varint_gives_back_every_int32_and_the_position_behind(value: int, before: bytes) -> None:
    out = bytearray(before)
    append_varint(out, value)
    size = len(out)
    assert read_varint(bytes(out + b"\xff"), len(before)) == (value, size)


@given(INT64)
def test_read_varlong_gives_back_every_int64(value: int) -> None:
    out = bytearray()
    append_varint(out, value)
    assert read_varlong(bytes(out), 0) == (value, len(out))
    assert varint_size_bytes(value) == len(out)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_read_varint_refuses_a_cut_one(data: bytes) -> None:
    with pytest.raises(CorruptBatch, match="cut off"):
        read_varint(data, 0)


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x1f"])
def test_read_varint_refuses_more_than_five_bytes_or_32_bits(data: bytes) -> None:
    with pytest.raises(CorruptBatch, match="does not fit"):
        read_varint(data, 0)


@pytest.mark.parametrize("data", [b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x03"])
def test_read_varlong_refuses_more_than_ten_bytes_or_64_bits(data: bytes) -> None:
    with pytest.raises(CorruptBatch, match="does not fit"):
        read_varlong(data, 0)
