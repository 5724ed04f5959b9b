"""A member of a consumer group that follows KIP-848, is slow, and may die."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from ottla.groups.commands import ConsumerGroupHeartbeat, TopicIdPartitions
from ottla.groups.replies import ConsumerGroupHeartbeatReply
from ottla.model.error_code import ErrorCode

Partition = tuple[UUID, int]
REBALANCE_TIMEOUT_MS = 20_000


class SimulatedClient:
    """`reads` is what it really reads: more than its assignment while it is slow, less while it catches up."""

    def __init__(self, member_id: str, topics: list[str] | None, pattern: str | None, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.pattern = pattern
        self.epoch = 0
        self.reads: set[Partition] = set()
        self.told: set[Partition] = set()
        self.is_running = True
        # It does not know the broker's state: its next heartbeat has all fields.
        self.is_unsure = True
        self._acknowledged: set[Partition] = set()

    def heartbeat(self) -> ConsumerGroupHeartbeat:
        says_all = self.is_unsure or self.epoch == 0
        has_news = says_all or self.reads != self._acknowledged
        self._acknowledged = set(self.reads)
        return ConsumerGroupHeartbeat(
            "g",
            self.member_id,
            self.epoch,
            "client",
            "/127.0.0.1",
            self.instance_id,
            None,
            REBALANCE_TIMEOUT_MS if says_all else -1,
            self.topics if says_all else None,
            self.pattern if says_all else None,
            None,
            _grouped(self.reads) if has_news else None,
        )

    def farewell(self, epoch: int) -> ConsumerGroupHeartbeat:
        self.stop()
        return ConsumerGroupHeartbeat("g", self.member_id, epoch, "client", "/127.0.0.1", self.instance_id)

    def stop(self) -> None:
        self.is_running = False
        self.reads.clear()
        self.told.clear()

    def hear(self, reply: ConsumerGroupHeartbeatReply | None) -> None:
        """None: no response came, or a retriable error."""
        if reply is None or reply.error is ErrorCode.UNRELEASED_INSTANCE_ID:
            self.is_unsure = True
        elif reply.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.reads.clear()
            self.told.clear()
            self.epoch = 0
        elif reply.error is ErrorCode.FENCED_INSTANCE_ID:
            self.stop()
        else:
            assert reply.error is ErrorCode.NONE, reply
            self.is_unsure = False
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.told = {(part.topic_id, number) for part in reply.assignment for number in part.partitions}

    def catch_up(self) -> None:
        """Stops reading revoked partitions, and starts with assigned ones."""
        self.reads = set(self.told)


def _grouped(partitions: Iterable[Partition]) -> list[TopicIdPartitions]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return [TopicIdPartitions(topic_id, numbers) for topic_id, numbers in by_topic.items()]
