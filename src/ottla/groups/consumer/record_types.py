"""The records of a consumer group in `__consumer_offsets`: Kafka's own format, field by field.

A key begins with its type (two bytes), a value with its version (two bytes, 0 for all of these); the fields after that
are declared here.  Keys have plain lengths, values compact ones and tagged fields (KIP-482), so fields of later
releases are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from uuid import UUID

from ottla.protocol.schema import array, int8, int32, int32_array, int64, nullable_string, string, string_array, uuid

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


@dataclass(slots=True)
class GroupKey:
    group_id: str = string()


@dataclass(slots=True)
class GroupPartKey:
    """`part` is a member's id, or a pattern."""

    group_id: str = string()
    part: str = string()


@dataclass(slots=True)
class GroupEpochValue:
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@dataclass(slots=True)
class MemberValue:
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    topic_names: list[str] = string_array()
    topic_pattern: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = nullable_string()


@dataclass(slots=True)
class TargetEpochValue:
    assignment_epoch: int = int32()


@dataclass(slots=True)
class TopicPartitionsValue:
    topic_id: UUID = uuid()
    partitions: list[int] = int32_array()


@dataclass(slots=True)
class TargetValue:
    topic_partitions: list[TopicPartitionsValue] = array(TopicPartitionsValue)


@dataclass(slots=True)
class CurrentValue:
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned: list[TopicPartitionsValue] = array(TopicPartitionsValue)
    pending_revocation: list[TopicPartitionsValue] = array(TopicPartitionsValue)


@dataclass(slots=True)
class PatternValue:
    topics: list[str] = string_array()
    version: int = int64()
    timestamp_ms: int = int64()
