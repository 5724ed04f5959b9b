from __future__ import annotations

import struct

import pytest

from ottla.groups.commands import OffsetToCommit
from ottla.groups.group_log import GroupRecordError
from ottla.groups.offset_records import (
    checked_offset_value,
    committed_ms,
    decode_offset_value,
    expires_ms,
    offset_key,
    offset_key_prefix,
    offset_value,
    parse_offset_key,
)

NOW_MS = 1_700_000_000_123
COMMIT = OffsetToCommit("orders", 3, 4711, 9, "")

# By hand from the message definitions of Apache Kafka 4.1.
KEY = bytes.fromhex("0001 0004 7465616d 0006 6f7264657273 00000003")
VALUE_V3 = bytes.fromhex("0003 0000000000001267 00000009 0000 0000018bcfe5687b")
VALUE_V3_NOTED = bytes.fromhex("0003 0000000000001267 00000009 0003 c3bc21 0000018bcfe5687b")
VALUE_V1 = bytes.fromhex("0001 0000000000001267 0000 0000018bcfe5687b 0000018bcfe56c63")
VALUE_V0 = bytes.fromhex("0000 0000000000001267 0000 0000018bcfe5687b")
VALUE_V4 = bytes.fromhex("0004 0000000000001267 00000009 04 c3bc21 0000018bcfe5687b 01 00 10") + bytes(16)


def test_key_is_that_of_apache_kafka() -> None:
    assert offset_key(offset_key_prefix("team", "orders"), 3) == KEY
    assert parse_offset_key(KEY) == (b"team", b"orders", 3)
    assert parse_offset_key(b"\x00\x00" + KEY[2:]) == (b"team", b"orders", 3)


@pytest.mark.parametrize(
    ("metadata", "retention_ms", "expected"),
    [("", None, VALUE_V3), ("ü!", None, VALUE_V3_NOTED), ("", 1_000, VALUE_V1)],
)
def test_value_is_that_of_apache_kafka(metadata: str, retention_ms: int | None, expected: bytes) -> None:
    assert offset_value(COMMIT._replace(metadata=metadata), NOW_MS, retention_ms) == expected
    assert checked_offset_value(expected) is expected


@pytest.mark.parametrize(
    ("value", "leader_epoch", "metadata", "expire_ms"),
    [
        (VALUE_V3, 9, "", None),
        (VALUE_V3_NOTED, 9, "ü!", None),
        (VALUE_V1, -1, "", NOW_MS + 1_000),
        (VALUE_V0, -1, "", None),
        (b"\x00\x02" + VALUE_V0[2:], -1, "", None),
        (VALUE_V4, 9, "ü!", None),
    ],
)
def test_every_version_is_read(value: bytes, leader_epoch: int, metadata: str, expire_ms: int | None) -> None:
    assert decode_offset_value(value) == (4711, leader_epoch, metadata, NOW_MS, expire_ms)
    kept = checked_offset_value(value)
    assert decode_offset_value(kept) == (4711, leader_epoch, metadata, NOW_MS, expire_ms)
    assert committed_ms(kept) == NOW_MS
    assert expires_ms(kept) == expire_ms


@pytest.mark.parametrize("value", [VALUE_V0, VALUE_V1, VALUE_V3, VALUE_V3_NOTED, VALUE_V4])
def test_value_that_is_cut_or_has_bytes_behind_its_end_is_refused(value: bytes) -> None:
    for length in range(len(value)):
        with pytest.raises(GroupRecordError):
            checked_offset_value(value[:length])
    with pytest.raises(GroupRecordError):
        checked_offset_value(value + b"\x00")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\x00\x05" + VALUE_V3[2:], "unknown version 5"),
        (b"\xff\xff" + VALUE_V3[2:], "unknown version"),
        (VALUE_V3[:14] + b"\xff\xff" + VALUE_V3[16:], "metadata of -1 bytes"),
        (VALUE_V3_NOTED.replace(b"\xc3", b"\xff"), "not UTF-8"),
        (b"", "unknown version"),
    ],
)
def test_damaged_value_is_refused_by_name(value: bytes, problem: str) -> None:
    with pytest.raises(GroupRecordError, match=problem):
        checked_offset_value(value)


@pytest.mark.parametrize("length", range(2, len(KEY)))
def test_key_that_is_cut_is_refused(length: int) -> None:
    with pytest.raises(GroupRecordError):
        parse_offset_key(KEY[:length])


def test_key_with_a_negative_partition_or_bytes_behind_its_end_is_refused() -> None:
    with pytest.raises(GroupRecordError, match="partition -1"):
        parse_offset_key(KEY[:-4] + struct.pack(">i", -1))
    with pytest.raises(GroupRecordError, match="should have"):
        parse_offset_key(KEY + b"\x00")
