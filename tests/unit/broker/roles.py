"""Roles of partitions as tests give them: what the tree would say."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.partitions.partition import Partition
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.broker_registry import BrokerRegistration, BrokersView, LiveBroker
from ottla.coordination.topics_view import PartitionNode
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation

HERE, ELSEWHERE = NodeId(1), NodeId(2)
SOLE = BrokerLifecycle.sole(HERE)
SOLE.registered(1)


def led_by(leader: NodeId, leader_epoch: int, index: int = 0, version: int = 0) -> PartitionNode:
    """The node of a partition whose only replica leads."""
    state = PartitionState(leader, LeaderEpoch(leader_epoch), (ReplicaIncarnation(leader, 1),))
    return PartitionNode(index, (leader,), state, version)


def lead(partition: Partition, leader_epoch: int) -> None:
    """This broker leads the partition, alone."""
    partition.on_state(led_by(HERE, leader_epoch, partition.index, leader_epoch), SOLE, 0)


def one_of(*node_ids: NodeId) -> BrokerLifecycle:
    """This broker among live ones; the broker epoch of each is its node id times ten."""
    lifecycle = BrokerLifecycle(HERE)
    lifecycle.saw(BrokersView(1, {node_id: _live(node_id) for node_id in node_ids}))
    lifecycle.registered(10 * HERE)
    return lifecycle


def _live(node_id: NodeId) -> LiveBroker:
    return LiveBroker(BrokerRegistration(node_id, ()), 10 * node_id)


def replicated(
    leader: NodeId,
    leader_epoch: int,
    version: int,
    in_sync: Sequence[NodeId] = (HERE, ELSEWHERE),
    replicas: Sequence[NodeId] = (HERE, ELSEWHERE),
) -> PartitionNode:
    """The node of partition 0 with several replicas, of brokers as in `one_of`."""
    members = tuple(ReplicaIncarnation(node_id, 10 * node_id) for node_id in in_sync)
    return PartitionNode(0, tuple(replicas), PartitionState(leader, LeaderEpoch(leader_epoch), members), version)


def resign(partition: Partition) -> None:
    """Another broker leads the partition now."""
    epoch = partition.leader_epoch + 1
    partition.on_state(led_by(ELSEWHERE, epoch, partition.index, epoch), SOLE, 0)
