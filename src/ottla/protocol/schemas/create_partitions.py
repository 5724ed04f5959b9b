"""CreatePartitions (API key 37; KIP-195)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int16, int32, int32_array, nullable_array, nullable_string, string


@message
class CreatePartitionsAssignment:
    broker_ids: list[int] = int32_array()


@message
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = nullable_array(CreatePartitionsAssignment)


@message
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@message
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@message
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
