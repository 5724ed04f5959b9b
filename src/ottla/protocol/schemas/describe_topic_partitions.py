"""DescribeTopicPartitions (API key 75; KIP-966)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.message_class import message
from ottla.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int32_array,
    nullable_int32_array,
    nullable_string,
    nullable_struct,
    string,
    uuid,
)
from ottla.protocol.schemas.metadata import NO_AUTHORIZED_OPERATIONS


@message
class TopicRequest:
    name: str = string()


@message
class Cursor:
    """The start of a response, or of the next one."""

    topic_name: str = string()
    partition_index: int = int32()


@message
class DescribeTopicPartitionsRequest:
    """`topics`: none is all of them."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nullable_struct(Cursor)


@message
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = int32_array()
    isr_nodes: list[int] = int32_array()
    eligible_leader_replicas: list[int] | None = nullable_int32_array()
    last_known_elr: list[int] | None = nullable_int32_array()
    offline_replicas: list[int] = int32_array()


@message
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = nullable_string(default="")
    topic_id: UUID = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)


@message
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nullable_struct(Cursor)
