"""The state of one partition in the tree: leader, leader epoch, in-sync replicas.

Shared by elections, replication and the broker, so it is below them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla.model.identifiers import LeaderEpoch, NodeId

NO_LEADER: Final = NodeId(-1)
# No broker ever has it: broker epochs are change ids of the tree, which start above it.  A broker that finds its
# replica with this epoch in a set must reaffirm itself.
NO_BROKER_EPOCH: Final = 0


class ReplicaIncarnation(NamedTuple):
    """One incarnation of a broker as a replica: a restart gives the same node another broker epoch (KIP-903)."""

    node_id: NodeId
    broker_epoch: int

    def is_current(self, live: Mapping[NodeId, int]) -> bool:
        """Whether this is the node's present incarnation.  `live` has the epochs of the registered brokers."""
        return live.get(self.node_id) == self.broker_epoch


Members = tuple[ReplicaIncarnation, ...]


class PartitionState(NamedTuple):
    """The content of a partition's state node.

    `in_sync` may acknowledge, `eligible` are the members that left it only because it fell below
    `min.insync.replicas` and so still hold every committed record (KIP-966).  Both keep assignment order.
    """

    leader: NodeId
    leader_epoch: LeaderEpoch
    in_sync: Members
    eligible: Members = ()

    def in_sync_nodes(self) -> tuple[NodeId, ...]:
        return tuple(member.node_id for member in self.in_sync)

    def is_led_by(self, incarnation: ReplicaIncarnation) -> bool:
        """Whether this incarnation of a broker leads.  A restarted broker resumes no old leader epoch."""
        return self.leader == incarnation.node_id and incarnation in self.in_sync

    def has_current_leader(self, live: Mapping[NodeId, int]) -> bool:
        """Whether the leader is alive, in the incarnation that is in sync."""
        broker_epoch = live.get(self.leader)
        return broker_epoch is not None and ReplicaIncarnation(self.leader, broker_epoch) in self.in_sync

    def current_in_sync(self, live: Mapping[NodeId, int]) -> Members:
        return tuple(member for member in self.in_sync if member.is_current(live))

    def current_eligible(self, live: Mapping[NodeId, int]) -> Members:
        return tuple(member for member in self.eligible if member.is_current(live))

    def with_in_sync(self, in_sync: Members, replicas: Sequence[NodeId], min_in_sync: int) -> PartitionState:
        """The same leader with other members in sync.

        While they are fewer than `min_in_sync`, the high watermark does not move: the members that leave keep every
        committed record, and become eligible.  With enough of them it moves on without the others.
        """
        eligible: Members = ()
        if len(in_sync) < min_in_sync:
            kept = {member.node_id: member for member in (*self.eligible, *self.in_sync)}
            for member in in_sync:
                kept.pop(member.node_id, None)
            eligible = in_assignment_order(kept.values(), replicas)
        return self._replace(in_sync=in_assignment_order(in_sync, replicas), eligible=eligible)

    def without(self, node_id: NodeId) -> PartitionState:
        """The state when the records of a replica can no longer be relied on: it is neither in sync nor eligible."""
        in_sync = tuple(member for member in self.in_sync if member.node_id != node_id)
        eligible = tuple(member for member in self.eligible if member.node_id != node_id)
        leader = NO_LEADER if self.leader == node_id else self.leader
        return PartitionState(leader, self.leader_epoch, in_sync, eligible)


def in_assignment_order(members: Iterable[ReplicaIncarnation], replicas: Sequence[NodeId]) -> Members:
    """The members, the preferred leader first; those that are no longer assigned come last."""
    order = {node_id: position for position, node_id in enumerate(replicas)}
    return tuple(sorted(members, key=lambda member: order.get(member.node_id, len(order))))


class ChangeResult(Enum):
    """What became of a change of a state node."""

    APPLIED = "applied"
    STALE = "stale"
    """Nothing was written: the node has another version than the expected one, or is gone."""

    UNKNOWN = "unknown"
    """No answer came: it was written, or will be, or not.  Only a read that shows a higher version decides."""


class ChangeOutcome(NamedTuple):
    """`version` is the node's after a change that was applied, else `NO_STATE_VERSION`."""

    result: ChangeResult
    version: int


NO_STATE_VERSION: Final = -1
