"""Produce (API key 0; KIP-467, KIP-482, KIP-951).  The broker reads it with `ottla.protocol.produce`."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int64, nullable_string, records, string, struct


@message
class PartitionProduceData:
    index: int = int32()
    records: memoryview | bytes | bytearray | None = records()


@message
class TopicProduceData:
    name: str = string()
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message
class ProduceRequest:
    transactional_id: str | None = nullable_string()
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@message
class BatchIndexAndErrorMessage:
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = nullable_string("8+", nullable="8+")


@message
class LeaderIdAndEpoch:
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@message
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = nullable_string("8+", nullable="8+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


@message
class TopicProduceResponse:
    name: str = string()
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@message
class NodeEndpoint:
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = nullable_string("10+", nullable="10+")


@message
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, ignorable=True)
