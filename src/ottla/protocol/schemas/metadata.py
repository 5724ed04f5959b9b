"""Metadata (API key 3)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.protocol.message_class import message
from ottla.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int32_array,
    nullable_array,
    nullable_string,
    string,
    uuid,
)

# No answer about authorized operations was requested (KIP-430).
NO_AUTHORIZED_OPERATIONS: Final = -(2**31)


@message
class MetadataRequestTopic:
    topic_id: UUID = uuid("10+", ignorable=True)
    name: str | None = nullable_string(nullable="10+")


@message
class MetadataRequest:
    """`topics`: None means all of them; in v0 an empty list does."""

    topics: list[MetadataRequestTopic] | None = nullable_array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@message
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string("1+", nullable="1+")


@message
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = int32_array()
    isr_nodes: list[int] = int32_array()
    offline_replicas: list[int] = int32_array("5+")


@message
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = nullable_string(nullable="12+", default="")
    topic_id: UUID = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=NO_AUTHORIZED_OPERATIONS)


@message
class MetadataResponse:
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = nullable_string("2+", nullable="2+")
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=NO_AUTHORIZED_OPERATIONS)
