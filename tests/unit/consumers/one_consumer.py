"""Consumer `a` of a group, and what tests say of it in few words.  Times are in ms and begin at 0."""

from __future__ import annotations

import random
from typing import Final, TypeVar

from ottla.consumers.consumer import Consumer
from ottla.consumers.effects import Effect, ReadGroup, ReadPartitions, Register, Start, Write, WriteKind
from ottla.consumers.partition_nodes import NO_NODE, ClaimId, OffsetNode, OwnerNode, PartitionNodes
from ottla.consumers.rebalance_pace import RebalancePace
from ottla.consumers.share import GroupView, StreamId
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.model.partition_state import ChangeResult

PACE: Final = RebalancePace(collect_ms=100, collect_max_ms=400, retry_ms=50, retry_max_ms=800, attempts_max=3)
FREE: Final = PartitionNodes(None, None)
T0, T1, T2, T3 = (TopicPartition("t", partition) for partition in range(4))
OWN: Final = StreamId("a", 0)
OTHER: Final = StreamId("b", 0)

E = TypeVar("E")


def group(partitions_count: int, **streams_counts: int) -> GroupView:
    """Consumers of topic `t` by their names."""
    return GroupView({name: {"t": count} for name, count in streams_counts.items()}, {"t": partitions_count})


def held_by_other(offset: int = 0, version: int = 0) -> PartitionNodes:
    return PartitionNodes(OwnerNode(OTHER, is_own=False), OffsetNode(offset, ClaimId(99, 1), version))


def free_at(offset: int, version: int) -> PartitionNodes:
    return PartitionNodes(None, OffsetNode(offset, None, version))


def own(write: Write, offset: int, version: int) -> PartitionNodes:
    """What is found where this claim, or a commit of it, was applied."""
    return PartitionNodes(OwnerNode(write.stream, is_own=True), OffsetNode(offset, write.claim, version))


class OneConsumer:
    """The consumer, and the effects of its last event."""

    def __init__(self) -> None:
        self.consumer = Consumer("a", PACE, random.Random(1))
        self.now_ms = 0
        self.effects: list[Effect] = []

    def given(self, effects: list[Effect]) -> list[Effect]:
        self.consumer.check_invariants()
        self.effects = effects
        return effects

    def one(self, kind: type[E]) -> E:
        """The only effect of its kind."""
        (found,) = [effect for effect in self.effects if isinstance(effect, kind)]
        return found

    def has(self, kind: type[E]) -> bool:
        return any(isinstance(effect, kind) for effect in self.effects)

    def begin(self, session_id: int = 7) -> None:
        """A session, and the consumer registered in it."""
        self.given(self.consumer.on_session(session_id, self.now_ms + 1000, self.now_ms))
        register = self.one(Register)
        self.given(self.consumer.on_registered(register.request_id, ChangeResult.APPLIED, self.now_ms))

    def wait(self) -> None:
        """Until the next thing is due."""
        assert self.consumer.due_ms < 2**62
        self.now_ms = max(self.now_ms, self.consumer.due_ms)
        self.given(self.consumer.on_time(self.now_ms))

    def see(self, view: GroupView) -> None:
        self.given(self.consumer.on_view(self.one(ReadGroup).request_id, view, self.now_ms))

    def find(self, *nodes: PartitionNodes) -> None:
        """In the order in which they were asked for."""
        asked = self.one(ReadPartitions)
        found = dict(zip(asked.partitions, nodes, strict=True))
        self.given(self.consumer.on_nodes(asked.request_id, found, self.now_ms))

    def written(self, write: Write, outcome: ChangeResult = ChangeResult.APPLIED) -> None:
        self.given(self.consumer.on_written(write, outcome, self.now_ms))

    def commit(self, start: Start, offset: int) -> Write:
        self.given(self.consumer.commit([(start.partition, start.claim, offset)]))
        return self.one(Write)

    def stopped(self, start: Start, offset: int) -> None:
        self.given(self.consumer.on_stopped(start.partition, start.claim, offset, self.now_ms))

    def own_alone(self, offset: int = NO_OFFSET) -> Start:
        """Registered, alone, and handing out the only partition; the group is looked at once more."""
        self.begin()
        self.wait()
        self.see(group(1, a=1))
        self.find(FREE if offset == NO_OFFSET else free_at(offset, 4))
        claim = self.one(Write)
        assert claim.kind is WriteKind.CLAIM
        assert claim.expected_version == (NO_NODE if offset == NO_OFFSET else 4)
        self.written(claim)
        start = self.one(Start)
        self.see(group(1, a=1))
        return start
