"""Fetch (API key 1; KIP-98, KIP-227, KIP-320, KIP-392, KIP-516, KIP-595, KIP-903, KIP-951, KIP-853).

The broker reads requests and writes responses with `ottla.protocol.fetch`.
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.message_class import message
from ottla.protocol.schema import (
    array,
    int8,
    int16,
    int32,
    int32_array,
    int64,
    nullable_array,
    nullable_string,
    records,
    string,
    struct,
    uuid,
)


@message
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid("17+", tag=0, ignorable=True)


@message
class FetchTopic:
    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@message
class ForgottenTopic:
    topic: str = string("7-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[int] = int32_array("7+")


@message
class ReplicaState:
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@message
class FetchRequest:
    replica_id: int = int32("0-14", default=-1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8()
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)
    cluster_id: str | None = nullable_string("12+", nullable="12+", tag=0, ignorable=True)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)


@message
class AbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@message
class EpochEndOffset:
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@message
class LeaderIdAndEpoch:
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@message
class SnapshotId:
    end_offset: int = int64("12+", default=-1)
    epoch: int = int32("12+", default=-1)


@message
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    aborted_transactions: list[AbortedTransaction] | None = nullable_array(AbortedTransaction)
    preferred_read_replica: int = int32("11+", default=-1)
    records: memoryview | bytes | bytearray | None = records()
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)


@message
class FetchableTopicResponse:
    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@message
class NodeEndpoint:
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = nullable_string("16+", nullable="16+")


@message
class FetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0, ignorable=True)
