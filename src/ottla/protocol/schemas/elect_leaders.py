"""ElectLeaders (API key 43; KIP-183, KIP-460)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int16, int32, int32_array, nullable_array, nullable_string, string


@message
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = int32_array()


@message
class ElectLeadersRequest:
    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = nullable_array(TopicPartitions)
    timeout_ms: int = int32(default=60_000)


@message
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@message
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
