"""A member of a KIP-848 group: one heartbeat reports what it owns, and returns its assignment.

The coordinator assigns nothing here before its former owner has said that it has given it back.  So what is assigned
can be started at once, and what is not assigned any more is given back first, then left out of the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from ottla.client.membership.kafka_group.claims import GroupClaims
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.client.membership.kafka_group.protocol import DONE, Ask, Outcome, Purpose, Verdict, verdict_of
from ottla.client.membership.kafka_group.topics import GroupTopics
from ottla.consumers.rebalance_pace import NEVER_MS
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.session_lease import lease_ms
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
# A static member that may come back within its session.
_STATIC_LEAVE_EPOCH: Final = -2
# OffsetCommit knows epochs from here on.
_EPOCHS_FROM: Final = 9
_CONFIGS_FROM: Final = 1
_GROUP_RESOURCE: Final = 32
_BROKER_RESOURCE: Final = 4
_SETTINGS: Final = ("consumer.session.timeout.ms", "group.consumer.session.timeout.ms")
# After a change the group may soon have more to say: heartbeats come soon, then later, up to the broker's pace.
_SOON_MS: Final = 100
# The setting may be changed while the group runs.
_SETTING_REFRESH_MS: Final = 60_000
_NOTHING: Final[frozenset[tuple[UUID, int]]] = frozenset()

Owned = frozenset[tuple[UUID, int]]


class ConsumerGroupProtocol:
    """See `GroupProtocol`."""

    __slots__ = (
        "_answered_ms",
        "_assigned",
        "_confirmed_names",
        "_confirmed_owned",
        "_coordinator_id",
        "_group_id",
        "_heartbeat_due_ms",
        "_is_full",
        "_may_be_member",
        "_options",
        "_pace_ms",
        "_revoking_since_ms",
        "_sent_names",
        "_sent_owned",
        "_session_due_ms",
        "_session_timeout_ms",
        "_topics",
        "epoch",
        "member_id",
    )

    def __init__(self, group_id: str, member_id: str, options: KafkaGroupOptions, topics: GroupTopics) -> None:
        self.member_id = member_id
        self.epoch = _JOIN_EPOCH
        # The broker that is asked for the session time-out where the group's setting is not known.
        self._coordinator_id = -1
        self._group_id: Final = group_id
        self._options: Final = options
        self._topics: Final = topics
        self._session_timeout_ms = options.session_timeout_ms
        self._session_due_ms = 0
        self._may_be_member = False
        self._begin_anew()
        topics.watch(is_watched=False)

    def on_fenced(self, code: ErrorCode) -> None:
        self._may_be_member = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.epoch = _JOIN_EPOCH
        # The sending of the last heartbeat that was answered well; None: of none in this life.
        self._answered_ms: int | None = None
        self._heartbeat_due_ms = 0
        self._pace_ms = _SOON_MS
        self._revoking_since_ms: int | None = None
        self._assigned: Owned = _NOTHING
        # What the coordinator has heard; what it will have heard when it answers.
        self._confirmed_names: tuple[str, ...] | None = None
        self._confirmed_owned: Owned = _NOTHING
        self._sent_names: tuple[str, ...] = ()
        self._sent_owned: Owned = _NOTHING
        # Whether every field must be sent: it is unknown what the coordinator has received.
        self._is_full = True

    def on_coordinator(self, coordinator_id: int) -> None:
        """The broker that the next request goes to: it may have other settings."""
        self._coordinator_id = coordinator_id
        self._session_due_ms = 0

    @property
    def lease_until_ms(self) -> int:
        """Two thirds of the session, and of the time that the coordinator waits for revoked partitions."""
        if self._answered_ms is None:
            return 0
        until_ms = self._answered_ms + lease_ms(self._session_timeout_ms)
        if self._revoking_since_ms is not None:
            until_ms = min(until_ms, self._revoking_since_ms + lease_ms(self._options.rebalance_timeout_ms))
        return until_ms

    @property
    def reader(self) -> tuple[str | None, int]:
        return self.member_id, self.epoch

    @property
    def commit_version_min(self) -> int:
        return _EPOCHS_FROM

    @property
    def can_be_fenced(self) -> bool:
        return True

    @property
    def is_settled(self) -> bool:
        return self._answered_ms is not None and self._confirmed_owned == self._assigned

    @property
    def due_ms(self) -> int:
        return min(self._heartbeat_due_ms, self._session_due_ms)

    def assigned(self, ids: Mapping[str, UUID]) -> Mapping[TopicPartition, UUID]:
        names = {topic_id: name for name, topic_id in ids.items()}
        return {
            TopicPartition(names[topic_id], partition): topic_id
            for topic_id, partition in self._assigned
            if topic_id in names
        }

    def is_missing_topics(self, ids: Mapping[str, UUID]) -> bool:
        known = set(ids.values())
        return any(topic_id not in known for topic_id, _ in self._assigned)

    def on_topics(self) -> None:
        """The coordinator watches partitions; `next_ask` sees other names."""

    def next_ask(self, now_ms: int, claims: GroupClaims) -> Ask | None:
        if now_ms >= self._session_due_ms:
            return self._ask_session_timeout()
        if not self._topics.is_known:
            return None
        names = tuple(sorted(self._topics.streams_counts))
        owned = claims.owned
        has_news = names != self._confirmed_names or (owned != self._confirmed_owned and not claims.is_giving_back)
        if now_ms >= self._heartbeat_due_ms or has_news:
            return self._heartbeat(names, owned)
        return None

    def _heartbeat(self, names: tuple[str, ...], owned: Owned) -> Ask:
        self._sent_names, self._sent_owned = names, owned
        self._may_be_member = True
        is_full = self._is_full
        request = ConsumerGroupHeartbeatRequest(
            self._group_id,
            self.member_id,
            self.epoch,
            self._options.group_instance_id if is_full else None,
            rebalance_timeout_ms=self._options.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=list(names) if is_full or names != self._confirmed_names else None,
            topic_partitions=_rows(owned) if is_full or owned != self._confirmed_owned else None,
        )
        return self._membership(request)

    def _membership(self, request: ConsumerGroupHeartbeatRequest) -> Ask:
        return Ask(
            Purpose.MEMBERSHIP,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            lambda _: request,
            ConsumerGroupHeartbeatResponse,
            self._options.request_timeout_ms,
        )

    def _ask_session_timeout(self) -> Ask:
        """The lease follows from it, and heartbeats do not return it."""
        rows = [
            DescribeConfigsResource(_GROUP_RESOURCE, self._group_id, [_SETTINGS[0]]),
            DescribeConfigsResource(_BROKER_RESOURCE, str(self._coordinator_id), [_SETTINGS[1]]),
        ]
        return Ask(
            Purpose.MEMBERSHIP,
            ApiKey.DESCRIBE_CONFIGS,
            lambda _: DescribeConfigsRequest(rows),
            DescribeConfigsResponse,
            self._options.request_timeout_ms,
            _CONFIGS_FROM,
        )

    def leave(self) -> Ask | None:
        if not self._may_be_member:
            return None
        instance_id = self._options.group_instance_id
        epoch = _LEAVE_EPOCH if instance_id is None else _STATIC_LEAVE_EPOCH
        return self._membership(ConsumerGroupHeartbeatRequest(self._group_id, self.member_id, epoch, instance_id))

    def abandons(self, ask: Ask) -> bool:
        return False

    def on_answer(self, ask: Ask, answer: object, sent_ms: int, now_ms: int) -> Verdict:
        if isinstance(answer, DescribeConfigsResponse):
            self._on_session_timeout(_setting(answer), now_ms)
            return DONE
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        code = answer.error_code
        if not code:
            self._on_heartbeat(answer, sent_ms)
            return DONE
        self._is_full = True
        verdict = verdict_of(code, f"group {self._group_id}", answer.error_message)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return verdict._replace(outcome=Outcome.OTHER_PROTOCOL)
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            is_joining = self.epoch == _JOIN_EPOCH
            return verdict._replace(outcome=Outcome.OTHER_PROTOCOL if is_joining else Outcome.FENCED)
        return verdict

    def _on_heartbeat(self, answer: ConsumerGroupHeartbeatResponse, sent_ms: int) -> None:
        self.member_id = answer.member_id or self.member_id
        self._is_full = False
        self._answered_ms = sent_ms
        has_changed = answer.member_epoch != self.epoch or answer.assignment is not None
        self._pace_ms = _SOON_MS if has_changed else 2 * self._pace_ms
        # A broker may be set to an interval that is longer than the lease.
        pace_max_ms = min(answer.heartbeat_interval_ms, lease_ms(self._session_timeout_ms) // 2)
        self._heartbeat_due_ms = sent_ms + max(1, min(self._pace_ms, pace_max_ms))
        self.epoch = answer.member_epoch
        self._confirmed_names, self._confirmed_owned = self._sent_names, self._sent_owned
        if answer.assignment is not None:
            self._assigned = frozenset(
                (row.topic_id, partition) for row in answer.assignment.topic_partitions for partition in row.partitions
            )
        if not self._confirmed_owned - self._assigned:
            self._revoking_since_ms = None
        elif self._revoking_since_ms is None:
            self._revoking_since_ms = sent_ms

    def _on_session_timeout(self, timeout_ms: int | None, now_ms: int) -> None:
        if timeout_ms is not None:
            self._session_timeout_ms = timeout_ms
        self._session_due_ms = now_ms + _SETTING_REFRESH_MS

    def on_no_answer(self, ask: Ask) -> None:
        self._is_full = True
        self._confirmed_names = None

    def on_unsupported(self, ask: Ask) -> Verdict:
        if ask.api is ApiKey.DESCRIBE_CONFIGS:
            self._session_due_ms = NEVER_MS
            return DONE
        return Verdict(Outcome.OTHER_PROTOCOL)

    def on_refused_commit(self, code: ErrorCode) -> None:
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            self._heartbeat_due_ms = 0


def _rows(owned: Iterable[tuple[UUID, int]]) -> list[OwnedTopicPartitions]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(owned):
        by_topic.setdefault(topic_id, []).append(partition)
    return [OwnedTopicPartitions(topic_id, partitions) for topic_id, partitions in by_topic.items()]


def _setting(answer: DescribeConfigsResponse) -> int | None:
    """That of the group, or else that of the broker."""
    found = {row.name: row.value for result in answer.results if not result.error_code for row in result.configs}
    for name in _SETTINGS:
        value = found.get(name)
        if value is not None and value.isdigit() and int(value) > 0:
            return int(value)
    return None
