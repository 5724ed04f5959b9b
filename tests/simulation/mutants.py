"""Known bugs, planted one at a time: each must break a guarantee within a bounded number of seeds.

A simulation that no bug can break proves nothing.  Most are bugs that Kafka had; the reference is named.  The product
has no switches for them: they are patched in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from ottla.coordination import elections, reassignment
from ottla.coordination.reassignment import Reassigned
from ottla.coordination.topics_view import PartitionNode
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import ChangeResult, Members, PartitionState, ReplicaIncarnation
from ottla.replication.following import BACK_OFF, FollowerAction, FollowerFetch, FollowerStep, Following, LeaderAnswer
from ottla.replication.leadership import InSyncChange, Leadership
from ottla.replication.replica import FetchVerdict, Replica
from tests.seeds.planted import Mutant
from tests.simulation.broker import Disk
from tests.simulation.kinds import Kinds
from tests.simulation.plan import Plan
from tests.simulation.simulated_log import SimulatedLog

Live = Mapping[NodeId, int]

_reassigned = reassignment._reassigned


_follow: Final = Replica._follow
_on_state: Final = Replica.on_state
_on_fetch: Final = Replica.on_fetch
_on_response: Final = Replica.on_response
_next_fetch: Final = Following.next_fetch
_resolve: Final = Leadership.resolve
_propose: Final = Leadership.propose
_commit: Final = Leadership.commit
_reaffirmed: Final = elections.reaffirmed
_count_members: Final = Leadership._count_members


def follow_after_cutting_to_the_high_watermark(self: Replica, state: PartitionState) -> None:
    if state.leader_epoch != self.leader_epoch:
        cast(SimulatedLog[object], self._log).truncate_to(self.high_watermark)
    _follow(self, state)


def fetch_without_last_epoch(
    self: Replica, node_id: NodeId, broker_epoch: int, leader_epoch: int, fetch_offset: int, last: int, *rest: int
) -> FetchVerdict:
    offset = min(fetch_offset, self._log.log_end_offset)
    return _on_fetch(self, node_id, broker_epoch, leader_epoch, offset, -1, *rest)


def truncate_to_the_leaders_end_alone(
    self: Following, diverging: tuple[int, int], log_start_offset: int
) -> FollowerStep:
    return FollowerStep(FollowerAction.TRUNCATE, diverging[1], diverging[1])


def response_that_moves_the_high_watermark_before_truncating(
    self: Replica, request_id: int, answer: LeaderAnswer
) -> FollowerStep:
    following, high_watermark = self._following, answer.high_watermark
    has_diverged = answer.diverging is not None and following._fetch is not None
    if has_diverged and following.leader_high_watermark < high_watermark:
        following.leader_high_watermark = high_watermark
        self._advance_as_follower()
        return BACK_OFF
    return _on_response(self, request_id, answer)


def fetch_of_any_leader_epoch(
    self: Replica, node_id: NodeId, broker_epoch: int, leader_epoch: int, *rest: int
) -> FetchVerdict:
    return _on_fetch(self, node_id, broker_epoch, self.leader_epoch, *rest)


def commit_of_any_age(self: Leadership, state: PartitionState, version: int, now_ms: int) -> None:
    self.state = state
    self.version = version
    self._proposed.clear()
    self._count_members(now_ms)


def state_of_any_age(self: Replica, *arguments: Any) -> None:
    self._version = -1
    _on_state(self, *arguments)


def response_to_any_fetch(self: Replica, request_id: int, answer: LeaderAnswer) -> FollowerStep:
    fetch = self._following.next_fetch()
    request_id = request_id if fetch is None else fetch.request_id
    return _on_response(self, request_id, answer)


def reaffirmed_as_leader(state: PartitionState, own: ReplicaIncarnation, *, is_complete: bool) -> PartitionState | None:
    """It continues in the leader epoch of its former life."""
    after = _reaffirmed(state, own, is_complete=is_complete)
    if after is not None and is_complete and state.leader == own.node_id and own in after.in_sync:
        return after._replace(leader=state.leader)
    return after


def any_life_is_current(self: ReplicaIncarnation, live: Live) -> bool:
    return self.node_id in live


def any_life_leads(self: PartitionState, live: Live) -> bool:
    return self.leader in live


def led_by_any_life(self: PartitionState, incarnation: ReplicaIncarnation) -> bool:
    return self.leader == incarnation.node_id and incarnation.broker_epoch >= 0


def count_any_life(self: Leadership, now_ms: int) -> None:
    """A member's progress is that of its broker, from any life."""
    _count_members(self, now_ms)
    self._counted = tuple(self._followers.get(each.incarnation.node_id, each) for each in self._counted)


def life_without_an_end(self: Leadership, node_id: NodeId, broker_epoch: int, now_ms: int) -> Any:
    return self._followers.get(node_id) or _follower(self, node_id, broker_epoch, now_ms)


_follower: Final = Leadership.follower


def propose_and_use_at_once(self: Leadership, high_watermark: int, end: int, now_ms: int) -> InSyncChange | None:
    change = _propose(self, high_watermark, end, now_ms)
    if change is not None:
        members = {member: None for member in change.state.in_sync if member != self.own}
        self._counted = tuple(self._progress_of(member, now_ms) for member in members)
        self.is_frozen = len(change.state.in_sync) < self._min_in_sync
    return change


def resolve_and_forget(
    self: Leadership, change: InSyncChange, outcome: ChangeResult, version: int, now_ms: int
) -> None:
    if outcome is ChangeResult.UNKNOWN and change.expected_version == self.version:
        self._proposed.clear()
        self._count_members(now_ms)
    _resolve(self, change, outcome, version, now_ms)


def join_at_the_high_watermark(self: Leadership, follower: Any, high_watermark: int) -> bool:
    return (
        follower.end_offset >= high_watermark
        and follower.incarnation not in self.state.in_sync
        and self._is_replica(follower.incarnation)
    )


def count_without_the_minimum(self: Leadership, now_ms: int) -> None:
    _count_members(self, now_ms)
    self.is_frozen = bool(self.state.eligible) and self.in_sync_count >= self._min_in_sync


def count_without_the_eligible(self: Leadership, now_ms: int) -> None:
    _count_members(self, now_ms)
    self.is_frozen = self.in_sync_count < self._min_in_sync


def never_frozen(self: Leadership, now_ms: int) -> None:
    _count_members(self, now_ms)
    self.is_frozen = False


def end_of_the_leader_alone(self: Leadership, own_end: int) -> int:
    return own_end


def commit_own_changes_alone(self: Leadership, state: PartitionState, version: int, now_ms: int) -> None:
    """The version is remembered, and the writes of others are not read."""
    if version == self.version + 1 and self._is_outcome_open:
        _commit(self, state, version, now_ms)


def with_too_many_in_sync(self: PartitionState, in_sync: Members, replicas: Any, min_in_sync: int) -> PartitionState:
    """Members that fell behind long before become eligible too: no leader froze the high watermark for them."""
    left = tuple(member for member in (*self.eligible, *self.in_sync) if member not in in_sync)
    return self._replace(in_sync=in_sync, eligible=left)


def fetch_before_the_flush(self: Following) -> FollowerFetch | None:
    log = self._log
    if self.leader is None:
        return None
    if self._fetch is None or self._fetch.fetch_offset != log.log_end_offset:
        self._request_id += 1
        self._fetch = FollowerFetch(
            self._request_id, self.leader, self.leader_epoch, log.log_end_offset, log.last_epoch()
        )
    return self._fetch


def advance_over_what_is_not_flushed(self: Replica, leadership: Leadership) -> None:
    if not leadership.is_frozen:
        self.high_watermark = max(self.high_watermark, leadership.end_of_in_sync(self._log.log_end_offset))


def led_in_the_same_epoch(state: PartitionState, leader: NodeId) -> PartitionState:
    return state._replace(leader=leader)


def rules_that_allow_unclean(self: Kinds, min_in_sync: int, *, allows_unclean: bool) -> Any:
    return _election_rules(self, min_in_sync, allows_unclean=True)


_election_rules: Final = Kinds.election_rules


def always(*arguments: Any) -> bool:
    return True


def never_stale(self: Kinds, *others: Any) -> bool:
    return False


def kept_by_the_last_stop(self: Kinds, disk: Disk, member: ReplicaIncarnation) -> bool:
    return not disk.has_just_lost


def unproven(self: Following, log_start_offset: int) -> bool:
    return False


def unchecked(self: Leadership) -> None:
    return None


def usual(plan: Plan) -> Plan:
    """Without the latest faults: the numbers of seeds in the docs stay comparable."""
    return replace(plan, fault_kinds=tuple(kind for kind in plan.fault_kinds if kind != "stale_directory"))


def clean(plan: Plan) -> Plan:
    return replace(usual(plan), allows_unclean=False)


def with_stale_directories(plan: Plan) -> Plan:
    kinds = ("stale_directory", "crash", "quick_restart", "cut_tree")
    return replace(clean(plan), fault_kinds=kinds, fault_interval_ms=150, is_os_policy=False, bounds_losses=True)


def with_late_copies_and_elections(plan: Plan) -> Plan:
    return replace(
        clean(plan),
        fault_kinds=("expire", "pause", "prefer", "cut_link"),
        fault_interval_ms=60,
        duplication=0.4,
        min_in_sync=2,
        pause_between_sends_ms=5,
    )


def with_retention(plan: Plan) -> Plan:
    kinds = ("crash", "pause", "stop", "cut_link", "cut_tree", "prefer", "retention")
    return replace(clean(plan), fault_kinds=kinds, fault_interval_ms=150, is_os_policy=True)


def with_moves(plan: Plan) -> Plan:
    return replace(
        clean(plan),
        brokers_count=3,
        replicas_count=2,
        partitions_count=1,
        min_in_sync=1,
        fault_kinds=("move", "pause"),
        fault_interval_ms=60,
        duplication=0.4,
        slowness=0.3,
        pause_between_sends_ms=5,
    )


def reassigned_in_the_same_epoch(partition: PartitionNode, *others: Any) -> Reassigned | None:
    after = _reassigned(partition, *others)
    if after is None or after.state.leader != partition.state.leader:
        return after
    return after._replace(state=after.state._replace(leader_epoch=partition.state.leader_epoch))


def mutant(
    bug: str, reference: str, *patches: tuple[Any, str, Any], plan: Callable[[Plan], Plan] = usual
) -> Mutant[Plan]:
    return Mutant(bug, patches, plan, reference)


_ALL: Final = (
    mutant(
        "a follower cuts its log to its high watermark",
        "KIP-101",
        (Replica, "_follow", follow_after_cutting_to_the_high_watermark),
    ),
    mutant("histories are not compared", "KIP-101", (Replica, "on_fetch", fetch_without_last_epoch)),
    mutant(
        "a follower cuts by the leader's log alone",
        "KIP-279",
        (Following, "_cut", truncate_to_the_leaders_end_alone),
    ),
    mutant(
        "the high watermark moves before the log is cut",
        "KAFKA-9807",
        (Replica, "on_response", response_that_moves_the_high_watermark_before_truncating),
    ),
    mutant(
        "a follower keeps what its leader cannot compare any more",
        "found here",
        (Following, "_is_unproven", unproven),
        plan=with_retention,
    ),
    mutant(
        "a fetch counts in any leader epoch",
        "KIP-320",
        (Replica, "on_fetch", fetch_of_any_leader_epoch),
        plan=with_late_copies_and_elections,
    ),
    mutant(
        "an older state is applied",
        "stale LeaderAndIsr",
        (Replica, "on_state", state_of_any_age),
        (Leadership, "commit", commit_of_any_age),
    ),
    mutant("late and repeated answers count", "one request", (Replica, "on_response", response_to_any_fetch)),
    mutant(
        "a restarted leader continues its leader epoch",
        "KIP-380",
        (Kinds, "reaffirmed", staticmethod(reaffirmed_as_leader)),
    ),
    mutant(
        "sets have no broker epochs",
        "KIP-903",
        (ReplicaIncarnation, "is_current", any_life_is_current),
        (PartitionState, "has_current_leader", any_life_leads),
        (PartitionState, "is_led_by", led_by_any_life),
        (Leadership, "check_invariants", unchecked),
        plan=clean,
    ),
    mutant(
        "reports of a former incarnation count",
        "KIP-903",
        (Leadership, "_count_members", count_any_life),
        (Leadership, "follower", life_without_an_end),
    ),
    mutant("a broker that lost records reaffirms itself", "KIP-966", (Kinds, "holds", always)),
    mutant("only the last stop decides which logs are complete", "found here", (Kinds, "holds", kept_by_the_last_stop)),
    mutant(
        "a change counts before its outcome is known",
        "KIP-497",
        (Leadership, "propose", propose_and_use_at_once),
        (Leadership, "check_invariants", unchecked),
    ),
    mutant("an unknown outcome counts as a failure", "KAFKA-13091", (Leadership, "resolve", resolve_and_forget)),
    mutant(
        "a follower joins at the high watermark", "KAFKA-7128", (Leadership, "may_join", join_at_the_high_watermark)
    ),
    mutant("a minimum that is not met freezes nothing", "KAFKA-15583", (Leadership, "_count_members", never_frozen)),
    mutant(
        "an eligible member freezes nothing", "found here", (Leadership, "_count_members", count_without_the_eligible)
    ),
    mutant(
        "each member that leaves becomes eligible",
        "KIP-966",
        (PartitionState, "with_in_sync", with_too_many_in_sync),
        (Leadership, "_count_members", count_without_the_eligible),
    ),
    mutant("the high watermark ignores followers", "control", (Leadership, "end_of_in_sync", end_of_the_leader_alone)),
    mutant("a follower reports before it flushed", "fsync", (Following, "next_fetch", fetch_before_the_flush)),
    mutant("what is not flushed is shown", "2011 paper", (Replica, "_advance", advance_over_what_is_not_flushed)),
    mutant("a state that another wrote is not read", "KAFKA-2729", (Leadership, "commit", commit_own_changes_alone)),
    mutant("an election keeps the leader epoch", "KIP-101", (elections, "_led", led_in_the_same_epoch)),
    mutant(
        "a replica that leaves keeps the leader epoch",
        "late fetch",
        (reassignment, "_reassigned", reassigned_in_the_same_epoch),
        plan=with_moves,
    ),
    mutant("any live replica is elected", "unclean", (Kinds, "election_rules", rules_that_allow_unclean), plan=clean),
    mutant("a stale directory is trusted", "found here", (Kinds, "is_stale", never_stale), plan=with_stale_directories),
    mutant(
        "the tree's generation moves first",
        "found here",
        (Kinds, "moves_directory_first", False),
        plan=with_stale_directories,
    ),
    mutant("a leader acknowledges without a lease", "KAFKA-3083", (Kinds, "has_lease", always)),
)
MUTANTS: Final = {each.bug: each for each in _ALL}
