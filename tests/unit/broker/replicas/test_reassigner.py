"""Which moves a broker ends, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from uuid import UUID

from ottla.broker.replicas.reassigner import Reassigner
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.assignment_changes import Decide, Results
from ottla.coordination.reassignment import Reassigned
from ottla.coordination.topics_view import NO_MOVE, Move, PartitionNode, Topic, TopicsView
from ottla.coordination.tree import ConnectionLoss
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from tests.unit.broker.live_brokers import live

A, B, C = NodeId(1), NodeId(2), NodeId(3)
TO_A_AND_C = Move((C,), (B,))
TOPIC_ID = UUID(int=2**100)


class Setup:
    """Broker A, and topics whose changes are only decided."""

    def __init__(self) -> None:
        self.brokers = live(A, B, C)
        self.lifecycle = BrokerLifecycle(A)
        self.lifecycle.saw(self.brokers)
        self.lifecycle.registered(self.brokers.epochs()[A])
        self.view_version = 0
        self.partitions: list[PartitionNode] = []
        self.failures: list[ConnectionLoss] = []
        self.asked: list[list[int]] = []
        self.decided: list[tuple[int, Reassigned | None]] = []
        self.loop = asyncio.get_running_loop()
        self.reassigner = Reassigner(self.lifecycle, self, lambda _topic, _partition: 1, self.loop)

    async def change_assignments(
        self, name: str, topic_id: UUID | None, indexes: Collection[int], decide: Decide
    ) -> Results:
        assert (name, topic_id) == ("orders", TOPIC_ID)
        self.asked.append(list(indexes))
        if self.failures:
            raise self.failures.pop()
        self.decided += [(index, decide(self.partitions[index])) for index in indexes]
        return dict.fromkeys(indexes)

    def node(
        self, leader: NodeId, in_sync: Collection[NodeId], *, move: Move = TO_A_AND_C, life: int = 0
    ) -> PartitionNode:
        """A partition of A and B that moves to A and C."""
        epochs = self.brokers.epochs()
        members = tuple(ReplicaIncarnation(node_id, epochs[node_id] + life) for node_id in in_sync)
        state = PartitionState(leader, LeaderEpoch(5), members)
        return PartitionNode(len(self.partitions), (A, C, B), state, 7, move)

    async def see(self, *partitions: PartitionNode) -> None:
        self.partitions = [each._replace(partition_index=index) for index, each in enumerate(partitions)]
        self.view_version += 1
        topic = Topic("orders", TOPIC_ID, tuple(self.partitions))
        self.reassigner.on_view(TopicsView.of(self.view_version, {"orders": topic}))
        for _ in range(5):
            await asyncio.sleep(0)


async def test_leader_ends_the_moves_of_which_all_later_replicas_are_in_sync() -> None:
    setup = Setup()
    await setup.see(
        setup.node(A, [A, B, C]),
        setup.node(A, [A, B]),
        setup.node(B, [A, B, C]),
        setup.node(A, [A, B, C], move=NO_MOVE),
        setup.node(A, [A, C], life=1),
    )
    assert setup.asked == [[0]]
    ((index, after),) = setup.decided
    assert after is not None
    assert (index, after.replicas, after.move) == (0, (A, C), NO_MOVE)
    await setup.reassigner.stop()


async def test_move_is_looked_at_again_with_each_view() -> None:
    setup = Setup()
    await setup.see(setup.node(A, [A, B]))
    assert setup.asked == []
    await setup.see(setup.node(A, [A, B, C]))
    assert setup.asked == [[0]]
    await setup.see(setup.node(A, [A, C], move=NO_MOVE))
    assert setup.asked == [[0]]
    await setup.reassigner.stop()


async def test_broker_that_is_not_registered_ends_nothing() -> None:
    setup = Setup()
    setup.lifecycle.unregistered()
    await setup.see(setup.node(A, [A, B, C]))
    assert setup.asked == []
    await setup.reassigner.stop()


async def test_write_that_failed_is_tried_again_at_the_next_view() -> None:
    setup = Setup()
    setup.failures.append(ConnectionLoss("/brokers/topics/orders"))
    await setup.see(setup.node(A, [A, B, C]))
    assert (setup.asked, setup.decided) == ([[0]], [])
    await setup.see(setup.node(A, [A, B, C]))
    assert len(setup.decided) == 1
    await setup.reassigner.stop()


async def test_nothing_is_written_after_the_stop() -> None:
    setup = Setup()
    await setup.reassigner.stop()
    await setup.see(setup.node(A, [A, B, C]))
    assert setup.asked == []
