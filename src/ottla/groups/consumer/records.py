"""The records of a consumer group: their fields, encoded for the log and decoded from it, and drafts of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.groups.assignors import Assignment
from ottla.groups.consumer.member import CurrentAssignment, MemberMetadata, MemberState
from ottla.groups.group_log import GroupRecord
from ottla.model.errors import WireError
from ottla.protocol.message_class import message
from ottla.protocol.primitives import INT16
from ottla.protocol.reader import RESPONSE_ELEMENTS_MAX, read_message
from ottla.protocol.schema import array, int8, int32, int32_array, int64, nullable_string, string, string_array, uuid
from ottla.protocol.writer import write_message

# The records of a consumer group in `__consumer_offsets`: Kafka's own format, field by field.
#
# A key starts with its type (two bytes), a value with its version (two bytes, 0 for all of these); the fields after
# that are declared here.  Keys have plain lengths, values compact ones and tagged fields (KIP-482), so fields of later
# releases are skipped.

VALUE_VERSION: Final = 0


class ConsumerRecordType(IntEnum):
    """The type of a key; other numbers belong to other kinds of groups."""

    GROUP_EPOCH = 3
    TOPICS = 4
    """Of brokers before 4.1, which kept the subscribed topics where later ones keep their hash."""
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    PATTERN = 16


@message
class GroupKey:
    group_id: str = string()


@message
class GroupPartKey:
    """`part` is a member's id, or a pattern."""

    group_id: str = string()
    part: str = string()


@message
class GroupEpochValue:
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@message
class MemberValue:
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    topic_names: list[str] = string_array()
    topic_pattern: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = nullable_string()


@message
class TargetEpochValue:
    assignment_epoch: int = int32()


@message
class TopicPartitionsValue:
    topic_id: UUID = uuid()
    partitions: list[int] = int32_array()


@message
class TargetValue:
    topic_partitions: list[TopicPartitionsValue] = array(TopicPartitionsValue)


@message
class CurrentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned: list[TopicPartitionsValue] = array(TopicPartitionsValue)
    pending_revocation: list[TopicPartitionsValue] = array(TopicPartitionsValue)


@message
class PatternValue:
    topics: list[str] = string_array()
    version: int = int64()
    timestamp_ms: int = int64()


V = TypeVar("V")

_MEMBER_STATES: Final = {int(state): state for state in MemberState}
_WITH_PART: Final = frozenset(
    {ConsumerRecordType.MEMBER, ConsumerRecordType.TARGET, ConsumerRecordType.CURRENT, ConsumerRecordType.PATTERN}
)
_OF_GROUP: Final = frozenset(ConsumerRecordType) - _WITH_PART


class ConsumerRecordKey(NamedTuple):
    """`part` is the record's member id or pattern; empty when the record is the whole group's."""

    type: ConsumerRecordType
    group_id: str
    part: str = ""


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matched.  `version` is an offset of Kafka's metadata log; here it is always 0."""

    topic_names: frozenset[str]
    timestamp_ms: int
    version: int = 0


def is_consumer_record(key_type: int) -> bool:
    """Whether records with this type of key belong to consumer groups."""
    return key_type in _OF_GROUP or key_type in _WITH_PART


def encode_key(key: ConsumerRecordKey) -> bytes:
    """Raises `RequestError` when the group's and the member's names are too long for a record."""
    message = GroupKey(key.group_id) if key.type in _OF_GROUP else GroupPartKey(key.group_id, key.part)
    return INT16.pack(key.type) + write_message(message, 0, flexible=False, strict=True)


def decode_key(key: bytes) -> ConsumerRecordKey:
    """Raises `WireError` for damaged bytes; the type must be one of `is_consumer_record`."""
    (number,) = INT16.unpack_from(key)
    key_type = ConsumerRecordType(number)
    body = memoryview(key)[INT16.size :]
    if key_type in _OF_GROUP:
        read = read_message(GroupKey, 0, False, body, RESPONSE_ELEMENTS_MAX)
        assert isinstance(read, GroupKey)
        return ConsumerRecordKey(key_type, read.group_id)
    part = read_message(GroupPartKey, 0, False, body, RESPONSE_ELEMENTS_MAX)
    assert isinstance(part, GroupPartKey)
    return ConsumerRecordKey(key_type, part.group_id, part.part)


def tombstone(key: ConsumerRecordKey) -> GroupRecord:
    return GroupRecord(encode_key(key), None)


def encode_group_epoch(epoch: int, metadata_hash: int) -> bytes:
    return _encode(GroupEpochValue(epoch, metadata_hash))


def decode_group_epoch(value: bytes) -> tuple[int, int]:
    """The group epoch, and the hash of the subscribed topics."""
    read = _decode(GroupEpochValue, value)
    return read.epoch, read.metadata_hash


def encode_target_epoch(assignment_epoch: int) -> bytes:
    return _encode(TargetEpochValue(assignment_epoch))


def decode_target_epoch(value: bytes) -> int:
    return _decode(TargetEpochValue, value).assignment_epoch


def encode_member(metadata: MemberMetadata) -> bytes:
    return _encode(
        MemberValue(
            metadata.instance_id,
            metadata.rack_id,
            metadata.client_id,
            metadata.client_host,
            list(metadata.topic_names),
            metadata.topic_pattern,
            metadata.rebalance_timeout_ms,
            metadata.server_assignor,
        )
    )


def decode_member(value: bytes) -> MemberMetadata:
    read = _decode(MemberValue, value)
    return MemberMetadata(
        read.instance_id,
        read.rack_id,
        read.client_id,
        read.client_host,
        tuple(sorted(set(read.topic_names))),
        read.topic_pattern or None,
        read.rebalance_timeout_ms,
        read.server_assignor,
    )


def encode_target(target: Assignment) -> bytes:
    return _encode(TargetValue(_to_wire(target)))


def decode_target(value: bytes) -> Assignment:
    return _from_wire(_decode(TargetValue, value).topic_partitions)


def encode_current(current: CurrentAssignment) -> bytes:
    return _encode(
        CurrentValue(
            current.member_epoch,
            current.previous_member_epoch,
            current.state,
            _to_wire(current.assigned),
            _to_wire(current.pending_revocation),
        )
    )


def decode_current(value: bytes) -> CurrentAssignment:
    read = _decode(CurrentValue, value)
    return CurrentAssignment(
        read.member_epoch,
        read.previous_member_epoch,
        _MEMBER_STATES.get(read.state, MemberState.UNKNOWN),
        _from_wire(read.assigned),
        _from_wire(read.pending_revocation),
    )


def encode_pattern(resolved: ResolvedPattern) -> bytes:
    return _encode(PatternValue(sorted(resolved.topic_names), resolved.version, resolved.timestamp_ms))


def decode_pattern(value: bytes) -> ResolvedPattern:
    read = _decode(PatternValue, value)
    return ResolvedPattern(frozenset(read.topics), read.timestamp_ms, read.version)


def _encode(message: object) -> bytes:
    return INT16.pack(VALUE_VERSION) + write_message(message, VALUE_VERSION, flexible=True, strict=True)


def _decode(value_class: type[V], value: bytes) -> V:
    if len(value) < INT16.size:
        raise WireError(f"{value_class.__name__} of {len(value)} bytes has no version")
    (version,) = INT16.unpack_from(value)
    if version != VALUE_VERSION:
        raise WireError(f"{value_class.__name__} has version {version}; {VALUE_VERSION} is the newest known")
    body = memoryview(value)[INT16.size :]
    read = read_message(value_class, version, True, body, RESPONSE_ELEMENTS_MAX)
    assert isinstance(read, value_class)
    return read


def _to_wire(assignment: Assignment) -> list[TopicPartitionsValue]:
    return [TopicPartitionsValue(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items()]


def _from_wire(topics: Sequence[TopicPartitionsValue]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


class RecordDraft:
    """At most one record for each key: a later step replaces an earlier one."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._values: dict[ConsumerRecordKey, bytes | None] = {}

    def records(self) -> list[GroupRecord]:
        return [GroupRecord(encode_key(key), value) for key, value in self._values.items()]

    def remove_member(self, member_id: str) -> None:
        """The order matters to Apache Kafka: it refuses to delete a member that still has an assignment."""
        for record_type in (ConsumerRecordType.CURRENT, ConsumerRecordType.TARGET, ConsumerRecordType.MEMBER):
            self._put(record_type, member_id, None)

    def remove_pattern(self, pattern: str) -> None:
        self._put(ConsumerRecordType.PATTERN, pattern, None)

    def remove_topics(self) -> None:
        self._put(ConsumerRecordType.TOPICS, "", None)

    def put_member(self, member_id: str, metadata: MemberMetadata) -> None:
        self._put(ConsumerRecordType.MEMBER, member_id, encode_member(metadata))

    def put_pattern(self, pattern: str, resolved: ResolvedPattern) -> None:
        self._put(ConsumerRecordType.PATTERN, pattern, encode_pattern(resolved))

    def put_group_epoch(self, epoch: int, metadata_hash: int) -> None:
        self._put(ConsumerRecordType.GROUP_EPOCH, "", encode_group_epoch(epoch, metadata_hash))

    def put_target(self, member_id: str, target: Assignment) -> None:
        self._put(ConsumerRecordType.TARGET, member_id, encode_target(target))

    def put_target_epoch(self, epoch: int) -> None:
        self._put(ConsumerRecordType.TARGET_EPOCH, "", encode_target_epoch(epoch))

    def put_current(self, member_id: str, current: CurrentAssignment) -> None:
        self._put(ConsumerRecordType.CURRENT, member_id, encode_current(current))

    def _put(self, record_type: ConsumerRecordType, part: str, value: bytes | None) -> None:
        self._values[ConsumerRecordKey(record_type, self._group_id, part)] = value
