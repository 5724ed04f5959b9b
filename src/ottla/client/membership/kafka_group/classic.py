"""A member of a classic group: all join, one of them, the leader, assigns, and all sync.

Eager: everything is given back before the member joins a new generation, as it must with `range` and `roundrobin`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Final
from uuid import UUID

from ottla.client.groups.group_types import decode_assignment
from ottla.client.membership.kafka_group.assignors import ASSIGNORS, Subscriber
from ottla.client.membership.kafka_group.claims import GroupClaims
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.client.membership.kafka_group.protocol import (
    CONSUMER_PROTOCOL_TYPE,
    DONE,
    Ask,
    Outcome,
    Purpose,
    Verdict,
    verdict_of,
)
from ottla.client.membership.kafka_group.topics import GroupTopics
from ottla.consumers.rebalance_pace import NEVER_MS
from ottla.groups.subscription import subscribed_topics
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.session_lease import lease_ms
from ottla.protocol.api import ApiKey
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.schemas.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

_VERSION: Final = struct.pack(">h", 0)
_NO_USER_DATA: Final = struct.pack(">i", -1)


def encode_subscription(topics: Collection[str]) -> bytes:
    """The topics that a member wants to read."""
    return _VERSION + struct.pack(">i", len(topics)) + b"".join(_text(topic) for topic in topics) + _NO_USER_DATA


def encode_assignment(partitions: Mapping[str, Collection[int]]) -> bytes:
    """The partitions, by topic, that a member gets."""
    topics = b"".join(
        _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in partitions.items()
    )
    return _VERSION + struct.pack(">i", len(partitions)) + topics + _NO_USER_DATA


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


_NO_GENERATION: Final = -1
# A join is answered when all others have joined, or the longest rebalance time-out is over.
_JOIN_LAPSE_MS: Final = 5_000
_MEMBERS_FROM: Final = 3  # LeaveGroup, KIP-345
# The versions from which requests name a static member (KIP-345).
_STATIC_FROM: Final = {ApiKey.JOIN_GROUP: 5, ApiKey.SYNC_GROUP: 3, ApiKey.HEARTBEAT: 3}
_STATIC_COMMIT_FROM: Final = 7


class _Phase(Enum):
    OUT = "out"
    """To join, when everything is given back."""

    JOINED = "joined"
    """In the generation; the assignment is not known yet."""

    STABLE = "stable"
    """The assignment is known."""


class ClassicGroupProtocol:
    """See `GroupProtocol`."""

    __slots__ = (
        "_answered_ms",
        "_assigned",
        "_counts",
        "_group_id",
        "_heartbeat_due_ms",
        "_is_leader",
        "_names",
        "_options",
        "_phase",
        "_protocol_name",
        "_subscribers",
        "_topics",
        "epoch",
        "member_id",
    )

    def __init__(self, group_id: str, options: KafkaGroupOptions, topics: GroupTopics) -> None:
        self.member_id = ""
        self._group_id: Final = group_id
        self._options: Final = options
        self._topics: Final = topics
        # The topics of this member's last join, and the partitions of the group's topics when it was assigned here.
        self._names: tuple[str, ...] = ()
        self._counts: Mapping[str, int] = {}
        self._subscribers: Sequence[Subscriber] = ()
        self._protocol_name = ""
        self._is_leader = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._phase = _Phase.OUT
        self.epoch = _NO_GENERATION
        self._answered_ms: int | None = None
        self._heartbeat_due_ms = NEVER_MS
        self._assigned: frozenset[TopicPartition] = frozenset()

    def on_fenced(self, code: ErrorCode) -> None:
        self._begin_anew()
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    @property
    def lease_until_ms(self) -> int:
        return 0 if self._answered_ms is None else self._answered_ms + lease_ms(self._options.session_timeout_ms)

    @property
    def reader(self) -> tuple[str | None, int]:
        return None, _NO_GENERATION

    @property
    def commit_version_min(self) -> int:
        return 0 if self._options.group_instance_id is None else _STATIC_COMMIT_FROM

    @property
    def can_be_fenced(self) -> bool:
        return True

    @property
    def is_settled(self) -> bool:
        return self._phase is _Phase.STABLE

    @property
    def due_ms(self) -> int:
        return self._heartbeat_due_ms

    def assigned(self, ids: Mapping[str, UUID]) -> Mapping[TopicPartition, UUID]:
        return dict.fromkeys(self._assigned, ZERO_UUID)

    def is_missing_topics(self, ids: Mapping[str, UUID]) -> bool:
        return False

    def on_topics(self) -> None:
        """New topics of a filter require another join; only the leader looks for new partitions."""
        if self._phase is not _Phase.STABLE:
            return
        is_same = self._own_names() == self._names and not (self._is_leader and self._group_counts() != self._counts)
        if not is_same:
            self._rebalance()

    def _rebalance(self) -> None:
        self._phase = _Phase.OUT
        self._assigned = frozenset()

    def _own_names(self) -> tuple[str, ...]:
        return tuple(sorted(self._topics.streams_counts))

    def _group_counts(self) -> Mapping[str, int]:
        names = {topic for subscriber in self._subscribers for topic in subscriber.topics}
        return {topic: count for topic, count in self._topics.partitions_counts.items() if topic in names}

    def next_ask(self, now_ms: int, claims: GroupClaims) -> Ask | None:
        if self._phase is _Phase.OUT and claims.is_empty:
            return self._join() if self._topics.is_known else None
        if self._phase is _Phase.JOINED:
            return self._sync() if self._topics.is_known else None
        return self._heartbeat() if now_ms >= self._heartbeat_due_ms else None

    def _join(self) -> Ask:
        self._names = self._own_names()
        metadata = encode_subscription(self._names)
        request = JoinGroupRequest(
            self._group_id,
            self._options.session_timeout_ms,
            self._options.rebalance_timeout_ms,
            self.member_id,
            self._options.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in ASSIGNORS],
        )
        timeout_ms = max(self._options.rebalance_timeout_ms + _JOIN_LAPSE_MS, self._options.request_timeout_ms)
        return self._ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse, timeout_ms)

    def _sync(self) -> Ask:
        assignments: list[SyncGroupRequestAssignment] = []
        if self._is_leader:
            self._counts = self._group_counts()
            shares = ASSIGNORS[self._protocol_name](self._subscribers, self._counts)
            assignments = [
                SyncGroupRequestAssignment(member_id, encode_assignment(share)) for member_id, share in shares.items()
            ]
        request = SyncGroupRequest(
            self._group_id,
            self.epoch,
            self.member_id,
            self._options.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )
        timeout_ms = max(self._options.rebalance_timeout_ms, self._options.request_timeout_ms)
        return self._ask(ApiKey.SYNC_GROUP, request, SyncGroupResponse, timeout_ms)

    def _heartbeat(self) -> Ask:
        request = HeartbeatRequest(self._group_id, self.epoch, self.member_id, self._options.group_instance_id)
        return self._ask(ApiKey.HEARTBEAT, request, HeartbeatResponse, self._options.request_timeout_ms)

    def leave(self) -> Ask | None:
        if not self.member_id or self._options.group_instance_id is not None:
            return None  # a static member keeps its place until its session ends
        member_id = self.member_id

        def message(version: int) -> LeaveGroupRequest:
            if version < _MEMBERS_FROM:
                return LeaveGroupRequest(self._group_id, member_id)
            return LeaveGroupRequest(self._group_id, members=[MemberIdentity(member_id)])

        timeout_ms = self._options.request_timeout_ms
        return Ask(Purpose.MEMBERSHIP, ApiKey.LEAVE_GROUP, message, LeaveGroupResponse, timeout_ms)

    def _ask(self, api: ApiKey, request: object, answer: type, timeout_ms: int) -> Ask:
        at_least = 0 if self._options.group_instance_id is None else _STATIC_FROM[api]
        return Ask(Purpose.MEMBERSHIP, api, lambda _: request, answer, timeout_ms, at_least)

    def abandons(self, ask: Ask) -> bool:
        """They wait for other members."""
        return ask.api in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)

    def on_answer(self, ask: Ask, answer: object, sent_ms: int, now_ms: int) -> Verdict:
        assert isinstance(answer, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse)
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED and isinstance(answer, JoinGroupResponse):
            self.member_id = answer.member_id
            return DONE
        if code == ErrorCode.REBALANCE_IN_PROGRESS and isinstance(answer, HeartbeatResponse):
            self._on_heartbeat(sent_ms)
            self._rebalance()
            return DONE
        if code:
            return self._on_error(code)
        if isinstance(answer, JoinGroupResponse):
            return self._on_joined(answer)
        if isinstance(answer, SyncGroupResponse):
            self._on_synced(answer)
            # The subscription may have changed since the join.
            self.on_topics()
        self._on_heartbeat(sent_ms)
        return DONE

    def _on_error(self, code: int) -> Verdict:
        verdict = verdict_of(code, f"group {self._group_id}")
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return verdict._replace(outcome=Outcome.OTHER_PROTOCOL)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rebalance()
        return verdict

    def _on_joined(self, answer: JoinGroupResponse) -> Verdict:
        self.member_id = answer.member_id
        self.epoch = answer.generation_id
        self._protocol_name = answer.protocol_name or ""
        self._phase = _Phase.JOINED
        self._answered_ms = None
        self._heartbeat_due_ms = NEVER_MS
        # A static leader that has returned leaves the assignment as it is.
        self._is_leader = answer.leader == answer.member_id and not answer.skip_assignment
        if self._is_leader and self._protocol_name not in ASSIGNORS:
            return verdict_of(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {self._group_id}", "it has chosen another assignor"
            )
        self._subscribers = [_subscriber(member) for member in answer.members] if self._is_leader else ()
        self._topics.watch(is_watched=self._is_leader)
        if self._is_leader:
            self._topics.include(topic for subscriber in self._subscribers for topic in subscriber.topics)
        return DONE

    def _on_synced(self, answer: SyncGroupResponse) -> None:
        self._assigned = frozenset(decode_assignment(bytes(answer.assignment)))
        self._phase = _Phase.STABLE

    def _on_heartbeat(self, sent_ms: int) -> None:
        self._answered_ms = sent_ms
        self._heartbeat_due_ms = sent_ms + self._options.heartbeat_interval_ms

    def on_no_answer(self, ask: Ask) -> None:
        """A join or a sync is simply sent again: the coordinator knows the member by its id."""

    def on_unsupported(self, ask: Ask) -> Verdict:
        return Verdict(Outcome.FAILED)

    def on_refused_commit(self, code: ErrorCode) -> None:
        if code is ErrorCode.REBALANCE_IN_PROGRESS and self._phase is _Phase.STABLE:
            self._rebalance()


def _subscriber(member: JoinGroupResponseMember) -> Subscriber:
    topics = subscribed_topics(bytes(member.metadata))
    if topics is None:
        raise WireError(f"the subscription of member {member.member_id} cannot be read")
    return Subscriber(member.member_id, member.group_instance_id, topics)
