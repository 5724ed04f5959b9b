"""Roles of partitions as tests give them: what the tree would say."""

from __future__ import annotations

from ottla.broker.membership import Membership
from ottla.broker.partition import Partition
from ottla.coordination.topics_view import Partition as PartitionNode
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation

HERE, ELSEWHERE = NodeId(1), NodeId(2)
SOLE = Membership.sole(HERE)
SOLE.registered(1)


def led_by(leader: NodeId, leader_epoch: int, index: int = 0, version: int = 0) -> PartitionNode:
    """The node of a partition whose only replica leads."""
    state = PartitionState(leader, LeaderEpoch(leader_epoch), (ReplicaIncarnation(leader, 1),))
    return PartitionNode(index, (leader,), state, version)


def lead(partition: Partition, leader_epoch: int) -> None:
    """This broker leads the partition, alone."""
    partition.on_state(led_by(HERE, leader_epoch, partition.index, leader_epoch), SOLE)


def resign(partition: Partition) -> None:
    """Another broker leads the partition now."""
    epoch = partition.leader_epoch + 1
    partition.on_state(led_by(ELSEWHERE, epoch, partition.index, epoch), SOLE)
