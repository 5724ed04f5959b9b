"""A member of a Kafka group without a socket: a test reads what it asks, and answers as a coordinator would."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID, uuid5

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.classic import encode_assignment
from ottla.client.membership.kafka_group.member import KafkaGroupMember
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.client.membership.kafka_group.protocol import Ask
from ottla.client.membership.membership import Event
from ottla.client.wire.errors import ConnectionLost
from ottla.consumers.effects import Lost, Released, Revoke, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import API_VERSIONS
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from ottla.protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.client.membership.kafka_group.coordinator_answers import (
    commit_answer,
    heartbeat_answer,
    join_answer,
    metadata_answer,
    offsets_answer,
    settings_answer,
)

M = TypeVar("M")
GROUP: Final = "g"
_IDS: Final = UUID(int=7)


def topic_id(topic: str) -> UUID:
    return uuid5(_IDS, topic)


@dataclass
class Driver:
    """`partitions_counts` are the topics that there are; `committed` what the group has."""

    subscription: Subscription = field(default_factory=lambda: Subscription({"t": 1}))
    options: KafkaGroupOptions = field(default_factory=KafkaGroupOptions)
    partitions_counts: dict[str, int] = field(default_factory=lambda: {"t": 4})
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    offers_consumer: bool = True

    def __post_init__(self) -> None:
        self.now_ms = 1_000_000
        self.ids = {topic: topic_id(topic) for topic in self.partitions_counts}
        self.events: list[Event] = []
        self.claims: dict[TopicPartition, ClaimId] = {}
        self.ask: Ask | None = None
        self.sent_ms = 0
        self.member = KafkaGroupMember(GROUP, "me", 77, self.subscription, self.options, random.Random(1))
        self._is_connected = False

    def look(self) -> Ask | None:
        """The request under way, or the one that is due now."""
        if self.ask is None:
            self.ask = self.member.next_ask(self.now_ms)
            self.sent_ms = self.now_ms
            if self.ask is not None and not self._is_connected:
                self._is_connected = True
                self._take(self.member.on_connected(1, offers_consumer=self.offers_consumer))
            if self.ask is None and not self.member.is_over:
                assert self.member.due_ms > self.now_ms, "it would be asked again and again"
        return self.ask

    def asked(self, kind: type[M]) -> M:
        """The request that is due; other kinds that come before it are answered well."""
        for _ in range(20):
            ask = self.look()
            assert ask is not None, f"nothing is asked, a {kind.__name__} is expected"
            message = ask.message(API_VERSIONS[ask.api].highest)
            if isinstance(message, kind):
                return message
            self.answer_well()
        raise AssertionError(f"no {kind.__name__} is asked for")

    def answer(self, message: object) -> list[Event]:
        """Answer the request under way; returns the events for the streams."""
        ask = self.look()
        assert ask is not None
        self.ask = None
        assert isinstance(message, ask.answer), f"{ask.api.name} is under way"
        return self._take(self.member.on_answer(ask, message, self.sent_ms, self.now_ms))

    def lose_answer(self) -> list[Event]:
        ask = self.look()
        assert ask is not None
        self.ask, self._is_connected = None, False
        return self._take(self.member.on_no_answer(ask, ConnectionLost("the connection broke"), self.now_ms))

    def answer_well(self) -> list[Event]:
        """As a coordinator that has nothing new to say."""
        ask = self.look()
        assert ask is not None
        message = ask.message(API_VERSIONS[ask.api].highest)
        match message:
            case MetadataRequest():
                return self.answer(self.metadata())
            case OffsetCommitRequest():
                return self.answer(self.commit_answer(message))
            case OffsetFetchRequest():
                return self.answer(self.offsets_answer(message))
            case JoinGroupRequest():
                if not message.member_id:
                    return self.answer(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given"))
                return self.answer(join_answer(message.member_id, {message.member_id: ["t"]}))
            case SyncGroupRequest():
                return self.answer(SyncGroupResponse(assignment=encode_assignment({})))
            case HeartbeatRequest():
                return self.answer(HeartbeatResponse())
            case LeaveGroupRequest():
                return self.answer(LeaveGroupResponse())
            case ConsumerGroupHeartbeatRequest():
                epoch = max(1, message.member_epoch) if message.member_epoch >= 0 else message.member_epoch
                return self.answer(heartbeat_answer(epoch))
            case _:
                return self.answer(settings_answer())

    def settle(self) -> None:
        """Answer everything that is asked until nothing is due now."""
        for _ in range(50):
            if self.look() is None:
                return
            self.answer_well()
        raise AssertionError("it asks without end")

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    def metadata(self) -> MetadataResponse:
        return metadata_answer((topic, self.ids[topic], count) for topic, count in self.partitions_counts.items())

    def commit_answer(
        self, request: OffsetCommitRequest, codes: Mapping[TopicPartition, ErrorCode] | ErrorCode = ErrorCode.NONE
    ) -> OffsetCommitResponse:
        """What is not refused is in the group then."""

        def commit(partition: TopicPartition, offset: int) -> ErrorCode:
            code = codes if isinstance(codes, ErrorCode) else codes.get(partition, ErrorCode.NONE)
            if not code:
                self.committed[partition] = offset
            return code

        return commit_answer(request, commit)

    def offsets_answer(self, request: OffsetFetchRequest, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponse:
        return offsets_answer(request, self.committed, code)

    def own(self, *partitions: int, epoch: int = 1) -> None:
        """Join where it is not yet done, and be given these partitions of topic t, and no others."""
        self.beat(*partitions, epoch=epoch)
        self.settle()

    def beat(self, *partitions: int, epoch: int = 1) -> list[Event]:
        """The next heartbeat is answered by this assignment."""
        if self.look() is None:
            self.now_ms = max(self.now_ms, self.member.due_ms)
        self.asked(ConsumerGroupHeartbeatRequest)
        return self.answer(heartbeat_answer(epoch, {self.ids["t"]: partitions}))

    def stop(self, partition: int, offset: int) -> list[Event]:
        place = TopicPartition("t", partition)
        return self._take(self.member.on_stopped(place, self.claims[place], offset, self.now_ms))

    def commit(self, **offsets: int) -> list[Event]:
        """`t0=5`: of partition 0 of topic t."""
        places = {TopicPartition(name[0], int(name[1:])): offset for name, offset in offsets.items()}
        return self._take(self.member.commit((place, self.claims[place], offset) for place, offset in places.items()))

    def subscribe(self, subscription: Subscription) -> list[Event]:
        return self._take(self.member.subscribe(subscription, self.now_ms))

    def leave(self) -> list[Event]:
        return self._take(self.member.leave(self.now_ms))

    def _take(self, events: Sequence[Event]) -> list[Event]:
        """Holds what every membership promises: each claim is started once, and ended once."""
        for event in events:
            if isinstance(event, Start):
                assert event.partition not in self.claims, f"{event} while it is started"
                self.claims[event.partition] = event.claim
            elif isinstance(event, Released | Lost):
                assert self.claims.pop(event.partition) == event.claim, f"{event} of another claim"
            elif isinstance(event, Revoke):
                assert self.claims[event.partition] == event.claim
        self.events += events
        return list(events)
