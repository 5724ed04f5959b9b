"""OffsetCommit (API key 8)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int64, nullable_string, string


@message
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string(default="")


@message
class OffsetCommitRequestTopic:
    name: str = string()
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message
class OffsetCommitRequest:
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string("7+", nullable="7+")
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@message
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@message
class OffsetCommitResponseTopic:
    name: str = string()
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message
class OffsetCommitResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
