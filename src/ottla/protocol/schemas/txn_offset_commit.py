"""TxnOffsetCommit (API key 28; KIP-98, KIP-447)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int64, nullable_string, string


@message
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string(default="")


@message
class TxnOffsetCommitRequestTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message
class TxnOffsetCommitRequest:
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = nullable_string("3+", nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@message
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@message
class TxnOffsetCommitResponseTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
