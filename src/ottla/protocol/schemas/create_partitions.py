"""CreatePartitions (API key 37; KIP-195)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import array, boolean, int16, int32, int32_array, nullable_array, nullable_string, string


@dataclass(slots=True)
class CreatePartitionsAssignment:
    broker_ids: list[int] = int32_array()


@dataclass(slots=True)
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = nullable_array(CreatePartitionsAssignment)


@dataclass(slots=True)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@dataclass(slots=True)
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
