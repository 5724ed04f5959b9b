"""ConsumerGroupHeartbeat (API key 68; KIP-848)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.message_class import message
from ottla.protocol.schema import (
    array,
    int16,
    int32,
    int32_array,
    nullable_array,
    nullable_string,
    nullable_string_array,
    nullable_struct,
    string,
    uuid,
)


@message
class OwnedTopicPartitions:
    topic_id: UUID = uuid()
    partitions: list[int] = int32_array()


@message
class ConsumerGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = nullable_string_array()
    subscribed_topic_regex: str | None = nullable_string("1+", nullable="1+")
    server_assignor: str | None = nullable_string()
    topic_partitions: list[OwnedTopicPartitions] | None = nullable_array(OwnedTopicPartitions)


@message
class AssignedTopicPartitions:
    topic_id: UUID = uuid()
    partitions: list[int] = int32_array()


@message
class Assignment:
    topic_partitions: list[AssignedTopicPartitions] = array(AssignedTopicPartitions)


@message
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    member_id: str | None = nullable_string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nullable_struct(Assignment)
