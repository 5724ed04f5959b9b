"""Moving a partition's replicas to other brokers (KIP-455).  Pure: from a partition to its next replicas and state.

While replicas move, those of before and after are replicas alike: the added ones fetch, come in sync, count, and may
lead.  When all that are to stay are in sync, the others leave, in one change of replicas and state.

The replicas are written with the state, whose version they raise, in one request; and no view has a state that is newer
than its replicas.  So a change of a state is decided by the replicas that it is applied to.  A change that
removes a replica starts another leader epoch: a fetch that the removed one sent before it dropped its log is never
taken for a promise of the empty log that it has when it is added again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.coordination.elections import LiveEpochs, elected
from ottla.coordination.topics_view import NO_MOVE, Move, PartitionNode
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import NO_LEADER, PartitionState, in_assignment_order

MinInSync = Callable[[PartitionNode], int]
"""The effective `min.insync.replicas` of a partition with these replicas."""


class Reassigned(NamedTuple):
    """A partition's replicas and state, to be written together."""

    replicas: tuple[NodeId, ...]
    move: Move
    state: PartitionState


def requested(
    partition: PartitionNode,
    target: Sequence[NodeId] | None,
    live: LiveEpochs,
    min_in_sync: MinInSync,
    *,
    may_change_count: bool = True,
) -> Reassigned | None:
    """An operator's request: these replicas, or with None an end of the move; None when nothing changes.

    Another request while replicas move replaces the first: what it added and the second does not leaves at once.
    Raises `RequestError` with the code that AlterPartitionReassignments answers.
    """
    if target is None:
        if not partition.is_moving:
            raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "its replicas are not being moved")
        replicas, move = partition.origin, NO_MOVE
    else:
        _check(partition, target, live, may_change_count=may_change_count)
        origin = partition.origin
        removing = tuple(node_id for node_id in origin if node_id not in target)
        move = Move(tuple(node_id for node_id in target if node_id not in origin), removing)
        replicas = (*target, *removing)
    if (replicas, move) == (partition.replicas, partition.move):
        return None
    after = _reassigned(partition, replicas, move, live, min_in_sync)
    if after is None:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "all replicas that have its acknowledged records would leave: wait until others are in sync",
        )
    return after


def completed(partition: PartitionNode, live: LiveEpochs, min_in_sync: MinInSync) -> Reassigned | None:
    """The end of a move, None while a replica that is to stay is not in sync."""
    if not partition.is_moving:
        return None
    in_sync = {member.node_id for member in partition.state.current_in_sync(live)}
    target = partition.target
    return _reassigned(partition, target, NO_MOVE, live, min_in_sync) if in_sync.issuperset(target) else None


def _check(partition: PartitionNode, target: Sequence[NodeId], live: LiveEpochs, *, may_change_count: bool) -> None:
    problem = None
    unknown = [node_id for node_id in target if node_id not in live and node_id not in partition.replicas]
    if not target:
        problem = "a partition has at least one replica"
    elif len(set(target)) != len(target):
        problem = f"a broker is named twice in {list(target)}"
    elif unknown:
        problem = f"no broker {unknown[0]} is registered"
    if problem is not None:
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if not may_change_count and len(target) != len(partition.target):
        problem = f"it has {len(partition.target)} replicas, and {list(target)} are {len(target)}"
        raise RequestError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)


def _reassigned(
    partition: PartitionNode, replicas: tuple[NodeId, ...], move: Move, live: LiveEpochs, min_in_sync: MinInSync
) -> Reassigned | None:
    """The state with other replicas; None when none that remains has every acknowledged record.

    Each in-sync replica has them all, and so has each eligible one, since nothing is acknowledged meanwhile.
    """
    state = partition.state
    in_sync = tuple(member for member in state.in_sync if member.node_id in replicas)
    eligible = tuple(member for member in state.eligible if member.node_id in replicas)
    if (state.in_sync or state.eligible) and not (in_sync or eligible):
        return None
    required = min_in_sync(partition._replace(replicas=replicas, move=move))
    if len(in_sync) >= required:
        eligible = ()
    after = PartitionState(
        state.leader if state.leader in replicas else NO_LEADER,
        state.leader_epoch,
        in_assignment_order(in_sync, replicas),
        in_assignment_order(eligible, replicas),
    )
    if set(partition.replicas).difference(replicas):
        led = elected(replicas, after, live, required) if after.leader == NO_LEADER else None
        after = led or after._replace(leader_epoch=LeaderEpoch(state.leader_epoch + 1))
    return Reassigned(replicas, move, after)
