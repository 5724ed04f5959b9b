"""ListPartitionReassignments (API key 46; KIP-455)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int32_array, nullable_array, nullable_string, string


@message
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@message
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = nullable_array(ListPartitionReassignmentsTopics)


@message
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = int32_array()
    adding_replicas: list[int] = int32_array()
    removing_replicas: list[int] = int32_array()


@message
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
