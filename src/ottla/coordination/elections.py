"""Elections.  Pure: from a partition's state and the live brokers to the state to write.

Every replica computes the same result; the one that is to lead writes it, and the others only after a delay.  Writing
is a compare-and-set on the state's version, so the races between them are safe.

A member of the in-sync or eligible set counts only in the incarnation (broker epoch) in which it was written there.  A
broker that restarts must *reaffirm*: it enters its new incarnation if its log holds what the old one reported, and
leaves the sets otherwise.  So a broker that lost records never leads because of what it once had (KIP-903, KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.coordination.state_changes import StateChange
from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_LEADER_EPOCH, LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import NO_LEADER, PartitionState, ReplicaIncarnation

LiveEpochs = Mapping[NodeId, int]
"""The broker epoch of every live broker."""

_NOTHING_KNOWN: Final[Mapping[NodeId, bool]] = MappingProxyType({})


def is_due(state: PartitionState, live: LiveEpochs) -> bool:
    """Whether the partition needs another leader: it has none, or one that is dead or in another incarnation."""
    return not state.has_current_leader(live)


def elected(
    replicas: Sequence[NodeId],
    state: PartitionState,
    live: LiveEpochs,
    min_in_sync: int,
    *,
    excluded: Collection[NodeId] = (),
) -> PartitionState | None:
    """The state under the next leader, or None while no replica that holds every committed record is alive.

    The leader is the first replica in assignment order that is in sync, else the first that is eligible.  Replicas in
    `excluded` stay what they are and do not lead: they are about to stop.
    """
    in_sync = state.current_in_sync(live)
    leader = _first(replicas, in_sync, excluded)
    if leader is None:
        if _first(replicas, in_sync, ()) is not None:
            return None  # only excluded ones are in sync
        leader = _first(replicas, state.current_eligible(live), excluded)
        if leader is None:
            return None
        in_sync = (leader,)
    return _led(state.with_in_sync(in_sync, replicas, min_in_sync), leader.node_id)


def elected_unclean(state: PartitionState, leader: ReplicaIncarnation) -> PartitionState:
    """The state when a replica leads that may lack committed records: its log is the partition's from now on."""
    return _led(state._replace(in_sync=(leader,), eligible=()), leader.node_id)


def unclean_candidates(
    replicas: Sequence[NodeId],
    state: PartitionState,
    live: LiveEpochs,
    usability: Mapping[NodeId, bool] = _NOTHING_KNOWN,
) -> list[ReplicaIncarnation]:
    """The live replicas for an unclean election, the first one first; not those whose log is known to be unusable.

    None while a member of the sets is alive in another incarnation: it will show at once whether its log is complete.
    One whose log cannot be used will not.
    """
    able = {node_id: epoch for node_id, epoch in live.items() if usability.get(node_id, True)}
    members = (*state.in_sync, *state.eligible)
    if any(member.node_id in able and not member.is_current(live) for member in members):
        return []
    return [ReplicaIncarnation(node_id, able[node_id]) for node_id in replicas if node_id in able]


def preferred(
    replicas: Sequence[NodeId], state: PartitionState, live: LiveEpochs, min_in_sync: int
) -> PartitionState | None:
    """The state under the first assigned replica, or None when it leads already or cannot lead."""
    is_in_sync = any(member.node_id == replicas[0] for member in state.current_in_sync(live))
    if not is_in_sync or (state.leader == replicas[0] and not is_due(state, live)):
        return None
    return elected(replicas, state, live, min_in_sync)  # the first in assignment order


def requested(
    replicas: Sequence[NodeId],
    state: PartitionState,
    live: LiveEpochs,
    min_in_sync: int,
    *,
    is_unclean: bool,
    usability: Mapping[NodeId, bool] = _NOTHING_KNOWN,
) -> PartitionState | ErrorCode:
    """The state after an election that an operator requested, or why there is none.

    A preferred election lets the first assigned replica lead.  An unclean one is only for a partition without a leader;
    it may lose records, and does so only if no replica that has them all is live.  `usability`: whether a replica's log
    can be used, where that is known.
    """
    if not is_unclean:
        if state.leader == replicas[0] and not is_due(state, live):
            return ErrorCode.ELECTION_NOT_NEEDED
        return preferred(replicas, state, live, min_in_sync) or ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    if not is_due(state, live):
        return ErrorCode.ELECTION_NOT_NEEDED
    after = elected(replicas, state, live, min_in_sync)
    if after is not None:
        return after
    candidates = unclean_candidates(replicas, state, live, usability)
    if not candidates:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return elected_unclean(state, next((each for each in candidates if each.node_id in usability), candidates[0]))


def reaffirmed(state: PartitionState, own: ReplicaIncarnation, *, is_complete: bool) -> PartitionState | None:
    """The state after a broker has seen itself in it under another broker epoch; None when it is not there so.

    With `is_complete`, its log holds all that its former incarnation reported, and it continues in the same place.
    Otherwise it leaves the sets, also in its present incarnation: so an unusable log leaves them.
    The broker leads no longer: a new incarnation needs a new leader epoch, and so an election.
    """
    members = [member for member in (*state.in_sync, *state.eligible) if member.node_id == own.node_id]
    if not members:
        return None
    if not is_complete:
        return state.without(own.node_id)
    if all(member == own for member in members):
        return None
    return PartitionState(
        NO_LEADER if state.leader == own.node_id else state.leader,
        state.leader_epoch,
        tuple(own if member.node_id == own.node_id else member for member in state.in_sync),
        tuple(own if member.node_id == own.node_id else member for member in state.eligible),
    )


def given_way(
    state: PartitionState, own: ReplicaIncarnation, live: LiveEpochs, min_in_sync: int
) -> PartitionState | None:
    """The state without a replica in sync whose disk is stuck or full; None where it is not in sync, or has to stay.

    It stays where the others could not acknowledge without it.  So each change leaves enough members that hold every
    committed record, as when a leader drops a replica that lags, and when all disks are stuck or full the changes end.
    """
    if own not in state.in_sync:
        return None
    left = state.without(own.node_id)
    return left if len(left.current_in_sync(live)) >= max(min_in_sync, 1) else None


class DueElection(NamedTuple):
    """An election that this broker may write.  `rank` 0 writes at once, each further rank waits longer."""

    change: StateChange
    rank: int
    is_unclean: bool = False


class ElectionRules(NamedTuple):
    """What an election needs to know of a topic."""

    min_in_sync: Callable[[Topic, PartitionNode], int]
    """The effective `min.insync.replicas`: not more than the replicas that are assigned."""

    allows_unclean: Callable[[Topic], bool]


def due(
    topic: Topic, partitions: Iterable[PartitionNode], own: ReplicaIncarnation, live: LiveEpochs, rules: ElectionRules
) -> list[DueElection]:
    """The elections of these partitions that this broker may write, being one of their live replicas."""
    found: list[DueElection] = []
    for partition in partitions:
        replicas, state = partition.replicas, partition.state
        if own.node_id not in replicas or state.has_current_leader(live) or not own.is_current(live):
            continue
        after = elected(replicas, state, live, rules.min_in_sync(topic, partition))
        if after is not None:
            others = [node_id for node_id in replicas if node_id in live and node_id != after.leader]
            rank = 0 if after.leader == own.node_id else 1 + others.index(own.node_id)
            found.append(DueElection(StateChange.of(topic, partition, after), rank))
        elif rules.allows_unclean(topic):
            candidates = unclean_candidates(replicas, state, live)
            if candidates:
                # Each elects itself alone: only it knows whether its log can be used.
                change = StateChange.of(topic, partition, elected_unclean(state, own))
                found.append(DueElection(change, candidates.index(own), is_unclean=True))
    return found


def after_start(
    view: TopicsView,
    node_id: NodeId,
    broker_epoch: int,
    log_epochs: Mapping[TopicPartition, int],
    *,
    was_clean: bool,
) -> list[StateChange]:
    """The state changes of a sole broker at its start: none after a clean stop, a new epoch everywhere after a crash.

    A crash may have lost records that were appended but not acknowledged, and later ones get their offsets; the epoch
    distinguishes the two, for consumers that check (KIP-320) and for later replicas.  After a clean stop the log is
    whole, no other broker could have led, and a new epoch would only invalidate clients' metadata.

    `log_epochs` has the greatest epoch in each log.  One above the tree's means that the tree is older than the log, as
    after a restore from a copy: the next epoch is above both, since a log's epochs never decrease.

    Partitions with other replicas are unchanged: one broker's start does not show which replicas are in sync.
    """
    changes: list[StateChange] = []
    for topic, partition in view.partitions():
        if partition.replicas != (node_id,):
            continue
        state = partition.state
        log_epoch = log_epochs.get(TopicPartition(topic.name, partition.partition_index), NO_LEADER_EPOCH)
        if was_clean and state.leader == node_id and log_epoch <= state.leader_epoch:
            continue
        next_epoch = LeaderEpoch(max(state.leader_epoch, log_epoch) + 1)
        led = PartitionState(node_id, next_epoch, (ReplicaIncarnation(node_id, broker_epoch),))
        assert led.leader_epoch > state.leader_epoch
        changes.append(StateChange.of(topic, partition, led))
    return changes


def _first(
    replicas: Sequence[NodeId], members: Sequence[ReplicaIncarnation], excluded: Collection[NodeId]
) -> ReplicaIncarnation | None:
    by_node = {member.node_id: member for member in members}
    return next((by_node[node_id] for node_id in replicas if node_id in by_node and node_id not in excluded), None)


def _led(state: PartitionState, leader: NodeId) -> PartitionState:
    return state._replace(leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1))


def departed(
    replicas: Sequence[NodeId], state: PartitionState, node_id: NodeId, live: LiveEpochs, min_in_sync: int
) -> PartitionState | None:
    """The state without this broker in the in-sync set, under another leader where it leads.

    None where it is not in sync, or no other replica is: then it keeps its place until it is gone, and again
    afterwards.
    """
    others = tuple(member for member in state.current_in_sync(live) if member.node_id != node_id)
    if not others or all(member.node_id != node_id for member in state.in_sync):
        return None
    if state.leader == node_id:
        led = elected(replicas, state, live, min_in_sync, excluded={node_id})
        assert led is not None, "one of the others is in sync"
        state = led
    remaining = tuple(member for member in state.in_sync if member.node_id != node_id)
    return state.with_in_sync(remaining, replicas, min_in_sync)
