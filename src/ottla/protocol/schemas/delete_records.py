"""DeleteRecords (API key 21; KIP-107)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int64, string


@message
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@message
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@message
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@message
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
