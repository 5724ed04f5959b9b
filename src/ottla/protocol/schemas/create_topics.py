"""CreateTopics (API key 19; KIP-4, KIP-464, KIP-525)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ottla.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int32_array,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


@dataclass(slots=True)
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = int32_array()


@dataclass(slots=True)
class CreatableTopicConfig:
    name: str = string()
    value: str | None = nullable_string()


@dataclass(slots=True)
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32(default=-1)
    replication_factor: int = int16(default=-1)
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@dataclass(slots=True)
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean()


@dataclass(slots=True)
class CreatableTopicConfigs:
    name: str = string("5+")
    value: str | None = nullable_string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


@dataclass(slots=True)
class CreatableTopicResult:
    name: str = string()
    topic_id: UUID = uuid("7+")
    error_code: int = int16()
    error_message: str | None = nullable_string()
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = nullable_array(CreatableTopicConfigs, "5+", nullable="5+")
    topic_config_error_code: int = int16("5+", tag=0)


@dataclass(slots=True)
class CreateTopicsResponse:
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
