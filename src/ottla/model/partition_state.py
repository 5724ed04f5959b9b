"""The state of one partition in the tree: leader, leader epoch, in-sync replicas.

Shared by elections, replication and the broker, so it lives below them all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.model.identifiers import LeaderEpoch, NodeId

NO_LEADER: Final = NodeId(-1)


class ReplicaIncarnation(NamedTuple):
    """One life of a broker as a replica: a restart gives the same node another broker epoch (KIP-903)."""

    node_id: NodeId
    broker_epoch: int


class PartitionState(NamedTuple):
    """The content of a partition's state node.

    `in_sync` may acknowledge, `eligible` are the members that left it only because it fell below
    `min.insync.replicas` and so still hold every committed record (KIP-966).  Both keep assignment order.
    """

    leader: NodeId
    leader_epoch: LeaderEpoch
    in_sync: tuple[ReplicaIncarnation, ...]
    eligible: tuple[ReplicaIncarnation, ...] = ()

    def in_sync_nodes(self) -> tuple[NodeId, ...]:
        return tuple(member.node_id for member in self.in_sync)
