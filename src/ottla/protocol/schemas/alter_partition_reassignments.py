"""AlterPartitionReassignments (API key 45; KIP-455, KIP-860)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import array, boolean, int16, int32, nullable_int32_array, nullable_string, string


@dataclass(slots=True)
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = nullable_int32_array()


@dataclass(slots=True)
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@dataclass(slots=True)
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@dataclass(slots=True)
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
