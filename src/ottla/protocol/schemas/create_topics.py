"""CreateTopics (API key 19; KIP-4, KIP-464, KIP-525)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.message_class import message
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


@message
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = int32_array()


@message
class CreatableTopicConfig:
    name: str = string()
    value: str | None = nullable_string()


@message
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32(default=-1)
    replication_factor: int = int16(default=-1)
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean()


@message
class CreatableTopicConfigs:
    name: str = string("5+")
    value: str | None = nullable_string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


@message
class CreatableTopicResult:
    name: str = string()
    topic_id: UUID = uuid("7+")
    error_code: int = int16()
    error_message: str | None = nullable_string()
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = nullable_array(CreatableTopicConfigs, "5+", nullable="5+")
    topic_config_error_code: int = int16("5+", tag=0)


@message
class CreateTopicsResponse:
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
