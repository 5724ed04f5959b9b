"""The replies of a shard.  No wire versions: a handler drops the fields that its version lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.groups.commands import NO_GENERATION, TopicIdPartitions
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """To `JoinGroup`.  Only the leader gets `members`.  With MEMBER_ID_REQUIRED, `member_id` is the id to use."""

    error: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncReply(NamedTuple):
    """To `SyncGroup`."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


class LeaveReply(NamedTuple):
    """To `LeaveGroup`: `members` in the order of the request, none when `error` is not NONE."""

    error: ErrorCode
    members: Sequence[LeftMember] = ()


class CommitReply(NamedTuple):
    """To `CommitOffsets`: an error for each of its offsets, in their order."""

    errors: Sequence[ErrorCode]


class CommittedOffset(NamedTuple):
    """`offset` -1: nothing is committed, which is no error; or UNSTABLE_OFFSET_COMMIT, where only a stable one was
    requested and a transaction may set another."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class TopicOffsets(NamedTuple):
    topic: str
    partitions: Sequence[CommittedOffset]


class FetchReply(NamedTuple):
    """To `FetchOffsets`: topics and partitions in the order of the request."""

    error: ErrorCode
    topics: Sequence[TopicOffsets] = ()


class TopicErrors(NamedTuple):
    topic: str
    partitions: Sequence[tuple[int, ErrorCode]]


class DeleteOffsetsReply(NamedTuple):
    """To `DeleteOffsets`: topics and partitions in the order of the request, none when `error` is not NONE."""

    error: ErrorCode
    topics: Sequence[TopicErrors] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str


class ListReply(NamedTuple):
    """To `ListGroups`."""

    error: ErrorCode
    groups: Sequence[ListedGroup] = ()


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """To `DescribeGroup`.  Only a stable group shows metadata and assignments of members."""

    error: ErrorCode
    group_id: str
    state: str = "Dead"
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[DescribedMember] = ()


class ConsumerGroupHeartbeatReply(NamedTuple):
    """To `ConsumerGroupHeartbeat`.  `assignment` None means "unchanged".  With an error only `message` counts."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Sequence[TopicIdPartitions] | None = None


class NamedTopicPartitions(NamedTuple):
    topic_id: UUID
    topic: str
    partitions: Sequence[int]


class DescribedConsumer(NamedTuple):
    """A member of a consumer group.  `assignment` has the partitions that it may read now, `target` its assignment
    after reconciliation."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: Sequence[str]
    topic_pattern: str | None
    assignment: Sequence[NamedTopicPartitions]
    target: Sequence[NamedTopicPartitions]


class ConsumerGroupDescription(NamedTuple):
    """To `DescribeConsumerGroup`."""

    error: ErrorCode
    group_id: str
    message: str | None = None
    state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumer] = ()
