"""A classic group as a record: Kafka's GroupMetadataKey v2, GroupMetadataValue v0 to v4 (v3 is written)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.groups.group_log import GroupRecord, GroupRecordError
from ottla.model.errors import WireError
from ottla.model.identifiers import NO_TIMESTAMP
from ottla.protocol.message_class import message
from ottla.protocol.reader import read_message
from ottla.protocol.schema import array, int32, int64, nullable_string, records, string
from ottla.protocol.writer import write_message

GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3
_VERSIONS: Final = range(5)
_FIRST_FLEXIBLE: Final = 4
_VERSION: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">H")
# A batch of a hundred megabytes holds no more members than this at some hundred bytes each.
_MEMBERS_MAX: Final = 1_000_000


class StoredMember(NamedTuple):
    """`subscription` is the member's metadata for the generation's protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A generation that was logged: with members a stable one, without an empty group.

    `protocol_type` is empty when the group never had a member.  `state_since_ms` is wall time, -1 when not known.
    """

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_since_ms: int
    members: Sequence[StoredMember]


@message
class _WireMember:
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", nullable="3+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: memoryview | bytes | bytearray | None = records()
    assignment: memoryview | bytes | bytearray | None = records()


@message
class _WireGroup:
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = nullable_string()
    leader: str | None = nullable_string()
    current_state_timestamp: int = int64("2+", default=NO_TIMESTAMP)
    members: list[_WireMember] = array(_WireMember)


def group_key(group_id: str) -> bytes:
    encoded = group_id.encode()
    return b"\x00\x02" + _LENGTH.pack(len(encoded)) + encoded


def group_id_of(key: bytes) -> str:
    """The group id, the first field of every key of `__consumer_offsets`."""
    end = 4 + _LENGTH.unpack_from(key, 2)[0] if len(key) >= 4 else -1
    if not 4 <= end <= len(key):
        raise GroupRecordError(f"a key of {len(key)} bytes ends inside its group id")
    try:
        return str(key[4:end], "utf-8")
    except UnicodeDecodeError:
        raise GroupRecordError("the group id of a key is not UTF-8") from None


def parse_group_key(key: bytes) -> str:
    group_id = group_id_of(key)
    if len(key) != 4 + _LENGTH.unpack_from(key, 2)[0]:
        raise GroupRecordError(f"the key of group {group_id!r} has bytes after its end")
    return group_id


def group_record(group_id: str, group: GroupMetadata) -> GroupRecord:
    """Raises `OttlaError` when a field does not fit the format."""
    wire = _WireGroup(
        group.protocol_type,
        group.generation,
        group.protocol_name,
        group.leader_id,
        group.state_since_ms,
        [_WireMember(*member) for member in group.members],
    )
    body = write_message(wire, GROUP_VALUE_VERSION, flexible=False, strict=True)
    return GroupRecord(group_key(group_id), _VERSION.pack(GROUP_VALUE_VERSION) + body)


def parse_group_value(value: bytes) -> GroupMetadata:
    version = _VERSION.unpack_from(value)[0] if len(value) >= 2 else -1
    if version not in _VERSIONS:
        raise GroupRecordError(f"the value of a group has the unknown version {version}")
    try:
        wire = read_message(_WireGroup, version, version >= _FIRST_FLEXIBLE, memoryview(value)[2:], _MEMBERS_MAX)
    except WireError as error:
        raise GroupRecordError(f"the value of a group is damaged: {error}") from None
    assert isinstance(wire, _WireGroup)
    _check_names(wire.members)
    return GroupMetadata(
        wire.protocol_type,
        wire.generation,
        wire.protocol,
        wire.leader,
        wire.current_state_timestamp,
        tuple(_stored(member) for member in wire.members),
    )


def _check_names(members: Sequence[_WireMember]) -> None:
    member_ids, instance_ids = set(), set()
    for member in members:
        if member.member_id in member_ids:
            raise GroupRecordError(f"the value of a group has the member {member.member_id} twice")
        member_ids.add(member.member_id)
        if member.group_instance_id is not None:
            if member.group_instance_id in instance_ids:
                raise GroupRecordError(f"the value of a group has the instance id {member.group_instance_id} twice")
            instance_ids.add(member.group_instance_id)


def _stored(wire: _WireMember) -> StoredMember:
    return StoredMember(
        wire.member_id,
        wire.group_instance_id,
        wire.client_id,
        wire.client_host,
        # Before version 1 the session time-out was both.
        wire.rebalance_timeout if wire.rebalance_timeout >= 0 else wire.session_timeout,
        wire.session_timeout,
        bytes(wire.subscription or b""),
        bytes(wire.assignment or b""),
    )
