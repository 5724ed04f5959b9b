"""OffsetDelete (API key 47; KIP-496)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, string


@message
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@message
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message
class OffsetDeleteRequest:
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@message
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@message
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
