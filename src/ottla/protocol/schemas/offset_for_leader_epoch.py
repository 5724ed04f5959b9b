"""OffsetForLeaderEpoch (API key 23; KIP-101, KIP-320)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int64, string


@message
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, ignorable=True)
    leader_epoch: int = int32()


@message
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message
class OffsetForLeaderEpochRequest:
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@message
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@message
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
