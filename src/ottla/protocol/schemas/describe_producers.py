"""DescribeProducers (API key 61; KIP-664)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int32_array, int64, nullable_string, string


@message
class DescribeProducersTopicRequest:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@message
class DescribeProducersRequest:
    topics: list[DescribeProducersTopicRequest] = array(DescribeProducersTopicRequest)


@message
class ProducerState:
    """`current_txn_start_offset` is -1 where no transaction is open."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@message
class DescribeProducersPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    active_producers: list[ProducerState] = array(ProducerState)


@message
class DescribeProducersTopicResponse:
    name: str = string()
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)


@message
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)
