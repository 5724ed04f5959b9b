"""One consumer group over a list of records, with a clock that is turned by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.groups.commands import ConsumerGroupHeartbeat, TopicIdPartitions
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.records import decode_key
from ottla.groups.deadlines import Deadlines
from ottla.groups.replies import ConsumerGroupHeartbeatReply
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.groups.shared_bytes import MEMBER_BYTES_MAX, SharedBytes
from ottla.groups.subscription_pattern import SubscriptionPatterns
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.runtime.clock import Moment

if TYPE_CHECKING:
    from ottla.groups.assignors import Assignment
    from ottla.groups.group_log import Decision, GroupRecord

WALL_START_MS = 1_700_000_000_000


def topic_id(name: str, incarnation: int = 0) -> UUID:
    return UUID(int=int.from_bytes(f"{name}#{incarnation}".encode()[:16].ljust(16, b".")))


def image(**partitions_counts: int) -> TopicsImage:
    return TopicsImage.of(TopicImage(name, topic_id(name), count) for name, count in partitions_counts.items())


def names_of(assignment: Assignment | Iterable[TopicIdPartitions]) -> set[str]:
    """`{"a-0", "a-1"}`: easy to compare and to read."""
    pairs = assignment.items() if isinstance(assignment, Mapping) else assignment
    found = set()
    for id_, partitions in pairs:
        name = id_.bytes.rstrip(b".").decode().split("#")[0]
        found |= {f"{name}-{partition}" for partition in partitions}
    return found


def owned(*partitions: str) -> list[TopicIdPartitions]:
    by_topic: dict[str, list[int]] = {}
    for text in partitions:
        name, _, number = text.rpartition("-")
        by_topic.setdefault(name, []).append(int(number))
    return [TopicIdPartitions(topic_id(name), numbers) for name, numbers in by_topic.items()]


class SmallGroup:
    def __init__(self, topics: TopicsImage, settings: GroupSettings | None = None, group_id: str = "g") -> None:
        self.topics = topics
        self.settings = settings or GroupSettings()
        self.times: ConsumerTimes | None = None
        self.group_id = group_id
        self.log: list[GroupRecord] = []
        self.now_ms = 0
        self.is_log_full = False
        self._made_ids = 0
        self._start()

    def _start(self) -> None:
        self.deadlines = Deadlines()
        self.group = ConsumerGroup(
            self.group_id,
            self.settings,
            self.deadlines,
            lambda: self.topics,
            SubscriptionPatterns(),
            self._new_member_id,
            lambda: self.times or self.settings.consumer_times,
            SharedBytes(MEMBER_BYTES_MAX),
        )

    def _new_member_id(self, client_id: str) -> str:
        self._made_ids += 1
        return f"{client_id}-{self._made_ids}"

    @property
    def moment(self) -> Moment:
        return Moment(WALL_START_MS + self.now_ms, self.now_ms)

    def restart(self) -> None:
        """A new process replays the log."""
        self._start()
        for record in self.log:
            self.group.replay(decode_key(record.key), record.value)
        self.group.on_loaded(self.moment)

    def apply(self, decision: Decision) -> None:
        if not self.is_log_full:
            self.log += decision.records
            for record in decision.records:
                self.group.replay(decode_key(record.key), record.value)
            self.group.state.check_invariants()

    def send(self, command: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatReply:
        decision = self.group.heartbeat(command, self.moment)
        self.apply(decision)
        assert isinstance(decision.reply, ConsumerGroupHeartbeatReply)
        return decision.reply

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        sees_topic: Callable[[str], bool] | None = None,
        owned: Iterable[TopicIdPartitions] | None = None,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        assignor: str | None = None,
    ) -> ConsumerGroupHeartbeatReply:
        return self.send(
            ConsumerGroupHeartbeat(
                self.group_id,
                member_id,
                epoch,
                "client",
                "/127.0.0.1",
                instance_id,
                None,
                rebalance_timeout_ms,
                None if topics is None else list(topics),
                pattern,
                assignor,
                None if owned is None else list(owned),
                sees_topic=sees_topic,
            )
        )

    def join(
        self,
        member_id: str,
        topics: Iterable[str] | None = ("a",),
        *,
        pattern: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 30_000,
    ) -> ConsumerGroupHeartbeatReply:
        return self.beat(
            member_id,
            0,
            topics=topics,
            pattern=pattern,
            owned=[],
            instance_id=instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            assignor=assignor,
        )

    def joined(self, member_id: str, topics: Iterable[str] | None = ("a",), **more: str) -> int:
        """Joins, and gives the member's epoch."""
        reply = self.join(member_id, topics, **more)  # type: ignore[arg-type]  # only the text arguments are used
        assert reply.error is ErrorCode.NONE, reply
        return reply.member_epoch

    def leave(self, member_id: str, epoch: int = -1, instance_id: str | None = None) -> ConsumerGroupHeartbeatReply:
        return self.beat(member_id, epoch, instance_id=instance_id)

    def pass_time(self, duration_ms: int) -> list[str]:
        """Lets deadlines pass one by one; gives those that were due, as "kind member"."""
        until_ms, passed = self.now_ms + duration_ms, []
        while True:
            due_ms = self.deadlines.next_due_ms()
            if due_ms is None or due_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            deadline = self.deadlines.take_due(self.now_ms)
            if deadline is None:
                continue
            decision = self.group.on_deadline(deadline, self.moment)
            if decision is not None:
                passed.append(f"{deadline.kind} {deadline.member_id}")
                if self.is_log_full:
                    self.group.on_append_failed(deadline, self.moment)
                else:
                    self.apply(decision)
        self.now_ms = until_ms
        return passed

    def assigned(self, member_id: str) -> set[str]:
        return names_of(self.group.state.current(member_id).assigned)

    def target(self, member_id: str) -> set[str]:
        return names_of(self.group.state.targets.get(member_id, {}))
