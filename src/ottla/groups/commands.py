"""The commands to a shard.  No wire versions: a handler turns their differences into the named flags below.

Each command names the type of its reply (see `replies`).  Bytes are `bytes`, never views: they outlive the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.records.end_marker import EndMarker

NO_GENERATION = -1


class JoinProtocol(NamedTuple):
    """An assignor that a member supports, with its metadata for the leader."""

    name: str
    metadata: bytes


class JoinGroup(NamedTuple):
    """API 11.  Reply: `JoinReply`, held until all members have rejoined or the rebalance timed out.

    `member_id` is empty for a member that has none yet.  `rebalance_timeout_ms` is the session time-out where the
    version has no such field.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Sequence[JoinProtocol]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str | None = None
    # KIP-394: a dynamic member without an id gets one with MEMBER_ID_REQUIRED and joins with it (v4 and above).
    requires_known_member_id: bool = True
    # KIP-814: a returning static leader is leader again and skips the assignment (v9 and above).
    may_skip_assignment: bool = True
    # The connection that waits for the reply: see `GroupShard.abandon_join`.  Only compared.
    waiter: object | None = None


class MemberAssignment(NamedTuple):
    member_id: str
    assignment: bytes


class SyncGroup(NamedTuple):
    """API 14.  Reply: `SyncReply`, held until the leader's assignment is stable.

    `protocol_type` and `protocol_name` are None where the version does not send them.
    """

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Sequence[MemberAssignment]


class Heartbeat(NamedTuple):
    """API 12.  Reply: `ErrorCode`, at once."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class LeavingMember(NamedTuple):
    """`member_id` may be empty when `instance_id` names a static member."""

    member_id: str
    instance_id: str | None
    reason: str | None = None


class LeaveGroup(NamedTuple):
    """API 13, one member or several.  Reply: `LeaveReply`."""

    group_id: str
    members: Sequence[LeavingMember]


class OffsetToCommit(NamedTuple):
    """`offset` is the next offset to read; `leader_epoch` is -1 when unknown."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class TransactionalProducer(NamedTuple):
    """The producer of an open transaction.

    `guard` proves to the log that the coordinator has the shard's partition in it; None where it is open in the log
    already.  The shard only passes it on.
    """

    producer_id: int
    producer_epoch: int
    guard: object | None = None


class CommitOffsets(NamedTuple):
    """API 8, and API 28 with a `producer`: the offsets then take effect with its transaction.

    For partitions that exist (the handler refuses the others).  Reply: `CommitReply`.
    `generation_or_epoch` is -1 and `member_id` empty for a simple consumer, which is in no group.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation_or_epoch: int
    offsets: Sequence[OffsetToCommit]
    # Only v2 to v4 may set how long these offsets are kept.
    retention_ms: int | None = None
    # Versions below 9 do not know STALE_MEMBER_EPOCH: they get UNSUPPORTED_VERSION.
    knows_stale_epoch: bool = True
    client_host: str = ""
    producer: TransactionalProducer | None = None


class WriteMarker(NamedTuple):
    """API 27 for the shard's partition: the marker that ends a transaction there.

    Reply: `ErrorCode`, NONE when the offsets of the transaction have taken effect, or are gone, for good.
    `advances_epoch`: `producer_epoch` is above that of the transaction's records (KIP-890).
    """

    producer_id: int
    producer_epoch: int
    marker: EndMarker
    advances_epoch: bool


class TopicPartitions(NamedTuple):
    topic: str
    partitions: Sequence[int]


class FetchOffsets(NamedTuple):
    """API 9, one group of it.  Reply: `FetchReply`.  `topics` None: all committed offsets of the group.

    `member_id` and `member_epoch` are checked for consumer groups only, and only when given.
    """

    group_id: str
    topics: Sequence[TopicPartitions] | None
    member_id: str | None = None
    member_epoch: int = NO_GENERATION
    # KIP-447: an offset that an open transaction may change gets UNSTABLE_OFFSET_COMMIT (v7 and above).
    requires_stable: bool = False


class DeleteOffsets(NamedTuple):
    """API 47.  Reply: `DeleteOffsetsReply`."""

    group_id: str
    topics: Sequence[TopicPartitions]


class ListGroups(NamedTuple):
    """API 16, for the groups of this shard.  Reply: `ListReply`.  An empty filter matches everything.

    Filters are compared without regard to case.
    """

    states: Sequence[str] = ()
    kinds: Sequence[str] = ()


class DescribeGroup(NamedTuple):
    """API 15, one group of it.  Reply: `DescribedGroup`, with GROUP_ID_NOT_FOUND when there is no such classic
    group."""

    group_id: str


class DeleteGroup(NamedTuple):
    """API 42, one group of it.  Reply: `ErrorCode`."""

    group_id: str


class TopicIdPartitions(NamedTuple):
    topic_id: UUID
    partitions: Sequence[int]


class ConsumerGroupHeartbeat(NamedTuple):
    """API 68 (KIP-848): joins (`member_epoch` 0), stays, leaves (-1), or leaves as a static member that will return
    (-2).  Reply: `ConsumerGroupHeartbeatReply`.

    None, and -1 for `rebalance_timeout_ms`, mean "unchanged"; `topic_pattern` "" removes a pattern.  `owned` is what
    the member holds, empty when it holds nothing.
    """

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: Sequence[str] | None = None
    topic_pattern: str | None = None
    server_assignor: str | None = None
    owned: Sequence[TopicIdPartitions] | None = None
    # In v0 the broker may generate the member's id; since v1 the member does.
    makes_own_id: bool = True
    # Whether the member may know of a topic that its pattern matches; None: of each.
    sees_topic: Callable[[str], bool] | None = None


class DescribeConsumerGroup(NamedTuple):
    """API 69, one group of it.  Reply: `ConsumerGroupDescription`, with GROUP_ID_NOT_FOUND when there is no such
    consumer group."""

    group_id: str


Command = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | WriteMarker
    | FetchOffsets
    | DeleteOffsets
    | ListGroups
    | DescribeGroup
    | DeleteGroup
    | ConsumerGroupHeartbeat
    | DescribeConsumerGroup
)
