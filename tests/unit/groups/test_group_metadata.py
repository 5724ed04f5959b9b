from __future__ import annotations

import pytest

from ottla.groups.group_log import GroupRecordError
from ottla.groups.group_metadata import (
    GroupMetadata,
    StoredMember,
    group_id_of,
    group_key,
    group_record,
    parse_group_key,
    parse_group_value,
)
from ottla.model.errors import OttlaError

MEMBER = StoredMember("a-1", "a", "cl", "/h", 60_000, 10_000, b"sub", b"part")
GROUP = GroupMetadata("consumer", 5, "range", "a-1", 1_700_000_000_123, (MEMBER,))

# By hand from the message definitions of Apache Kafka 4.1.
KEY = bytes.fromhex("0002 0004 7465616d")
HEAD = bytes.fromhex("0008 636f6e73756d6572 00000005 0005 72616e6765 0003 612d31")
NAMES = bytes.fromhex("0002 636c 0002 2f68")
REBALANCE_TIMEOUT = bytes.fromhex("0000ea60")
SESSION_TIMEOUT = bytes.fromhex("00002710")
BYTES = bytes.fromhex("00000003 737562 00000004 70617274")
TIME = bytes.fromhex("0000018bcfe5687b")
COUNT = bytes.fromhex("00000001")
VALUE_V3 = (
    b"\x00\x03"
    + HEAD
    + TIME
    + COUNT
    + bytes.fromhex("0003 612d31 0001 61")
    + NAMES
    + REBALANCE_TIMEOUT
    + SESSION_TIMEOUT
    + BYTES
)
VALUE_V0 = b"\x00\x00" + HEAD + COUNT + bytes.fromhex("0003 612d31") + NAMES + SESSION_TIMEOUT + BYTES


def test_record_is_that_of_apache_kafka() -> None:
    assert group_record("team", GROUP) == (KEY, VALUE_V3)
    assert parse_group_key(KEY) == "team"
    assert parse_group_value(VALUE_V3) == GROUP


def test_old_version_is_read_with_what_it_lacks() -> None:
    found = parse_group_value(VALUE_V0)
    assert found.state_since_ms == -1
    assert found.members == (MEMBER._replace(instance_id=None, rebalance_timeout_ms=10_000),)


def test_empty_generation_has_neither_protocol_nor_leader() -> None:
    empty = GroupMetadata("consumer", 6, None, None, 77, ())
    value = group_record("team", empty).value
    assert value is not None
    assert parse_group_value(value) == empty


def test_every_cut_value_is_refused() -> None:
    for length in range(len(VALUE_V3)):
        with pytest.raises(GroupRecordError):
            parse_group_value(VALUE_V3[:length])
    with pytest.raises(GroupRecordError):
        parse_group_value(VALUE_V3 + b"\x00")


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ((MEMBER, MEMBER._replace(instance_id="b")), "a-1 twice"),
        ((MEMBER, MEMBER._replace(member_id="a-2")), "instance id a twice"),
    ],
)
def test_two_members_of_one_name_are_refused(members: tuple[StoredMember, ...], problem: str) -> None:
    value = group_record("team", GROUP._replace(members=members)).value
    assert value is not None
    with pytest.raises(GroupRecordError, match=problem):
        parse_group_value(value)


def test_count_that_the_bytes_cannot_hold_takes_no_memory() -> None:
    hostile = VALUE_V3[: 2 + len(HEAD) + len(TIME)] + b"\x7f\xff\xff\xff"
    with pytest.raises(GroupRecordError, match="2147483647"):
        parse_group_value(hostile)


def test_name_that_is_too_long_for_the_format_is_an_error_and_no_record() -> None:
    with pytest.raises(OttlaError):
        group_record("team", GROUP._replace(leader_id="x" * 40_000))


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x02", b"\x00\x02\x00", b"\x00\x02\x00\x05team", KEY + b"x"])
def test_damaged_key_is_refused(key: bytes) -> None:
    with pytest.raises(GroupRecordError):
        parse_group_key(key)


def test_group_id_that_is_not_text_is_refused() -> None:
    with pytest.raises(GroupRecordError, match="UTF-8"):
        group_id_of(b"\x00\x02\x00\x01\xff")
    assert group_id_of(group_key("Übung")) == "Übung"
