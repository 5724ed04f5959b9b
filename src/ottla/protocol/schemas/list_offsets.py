"""ListOffsets (API key 2)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int16, int32, int64, string


@message
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


@message
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message
class ListOffsetsRequest:
    replica_id: int = int32(default=-1)
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)


@message
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@message
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
