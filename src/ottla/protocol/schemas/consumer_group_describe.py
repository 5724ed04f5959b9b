"""ConsumerGroupDescribe (API key 69; KIP-848)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.protocol.message_class import message
from ottla.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int32_array,
    nullable_string,
    string,
    string_array,
    struct,
    uuid,
)

# No answer about authorized operations was requested (KIP-430).
NO_AUTHORIZED_OPERATIONS: Final = -(2**31)


@message
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = string_array()
    include_authorized_operations: bool = boolean()


@message
class DescribedTopicPartitions:
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = int32_array()


@message
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


@message
class DescribedMember:
    member_id: str = string()
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = string_array()
    subscribed_topic_regex: str | None = nullable_string()
    assignment: DescribedAssignment = struct(DescribedAssignment)
    target_assignment: DescribedAssignment = struct(DescribedAssignment)
    member_type: int = int8("1+", default=-1)


@message
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = nullable_string()
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedMember] = array(DescribedMember)
    authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)


@message
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
