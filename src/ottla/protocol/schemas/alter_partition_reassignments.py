"""AlterPartitionReassignments (API key 45; KIP-455, KIP-860)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int16, int32, nullable_int32_array, nullable_string, string


@message
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = nullable_int32_array()


@message
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@message
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@message
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
