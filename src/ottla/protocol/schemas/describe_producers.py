"""DescribeProducers (API key 61; KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import array, int16, int32, int32_array, int64, nullable_string, string


@dataclass(slots=True)
class DescribeProducersTopicRequest:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@dataclass(slots=True)
class DescribeProducersRequest:
    topics: list[DescribeProducersTopicRequest] = array(DescribeProducersTopicRequest)


@dataclass(slots=True)
class ProducerState:
    """`current_txn_start_offset` is -1 where no transaction is open."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@dataclass(slots=True)
class DescribeProducersPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    active_producers: list[ProducerState] = array(ProducerState)


@dataclass(slots=True)
class DescribeProducersTopicResponse:
    name: str = string()
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)


@dataclass(slots=True)
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)
