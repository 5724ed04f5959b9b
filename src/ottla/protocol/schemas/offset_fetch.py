"""OffsetFetch (API key 9; KIP-709)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int32_array,
    int64,
    nullable_array,
    nullable_string,
    string,
)


@message
class OffsetFetchRequestTopic:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@message
class OffsetFetchRequestGroup:
    """`topics`: None means all committed offsets of the group."""

    group_id: str = string()
    member_id: str | None = nullable_string("9+", nullable="9+", ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopic] | None = nullable_array(OffsetFetchRequestTopic)


@message
class OffsetFetchRequest:
    """One group by `group_id` and `topics` up to v7, many by `groups` from v8 on."""

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = nullable_array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@message
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = nullable_string(default="")
    error_code: int = int16()


@message
class OffsetFetchResponseTopic:
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@message
class OffsetFetchResponseGroup:
    group_id: str = string()
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16()


@message
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
