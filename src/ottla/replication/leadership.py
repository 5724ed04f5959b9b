"""One leader epoch of one partition: followers' progress, in-sync sets, committed records.

The *committed* state is the newest one that the tree is known to hold.  The *maximal* in-sync set is its members and
those of each change that was proposed over it and may still be applied.  The high watermark counts all of them, so
each replica that becomes leader by either state has every record below it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET, NodeId
from ottla.model.partition_state import ChangeResult, PartitionState, ReplicaIncarnation


class FollowerLag(NamedTuple):
    """How far a follower is behind its leader, for metrics and `cluster status`."""

    node_id: NodeId
    is_in_sync: bool
    lag_records: int
    lag_ms: int


class FollowerProgress:
    """The end that a follower reported, and when it was last caught up.

    A fetch offset is the follower's stable end: it flushes before it fetches again.  Nothing is known before the first
    fetch in the leader's epoch, so the end is -1 then and holds the high watermark.
    """

    __slots__ = (
        "_fetched_at_ms",
        "_leader_end_at_fetch",
        "caught_up_ms",
        "end_offset",
        "incarnation",
        "is_gone",
        "last_epoch",
        "log_start_offset",
    )

    def __init__(self, incarnation: ReplicaIncarnation, now_ms: int) -> None:
        self.incarnation: Final = incarnation
        self.end_offset = NO_OFFSET
        self.last_epoch = NO_LEADER_EPOCH
        self.log_start_offset = NO_OFFSET
        # A new leader gives each member the whole time to arrive.
        self.caught_up_ms = now_ms
        # Its process was found to have ended: it is not waited for until it fetches again.
        self.is_gone = False
        self._fetched_at_ms = now_ms
        self._leader_end_at_fetch = 0

    def on_fetch(
        self, fetch_offset: int, last_epoch: int, leader_end: int, now_ms: int, log_start_offset: int = NO_OFFSET
    ) -> None:
        """It holds everything from `log_start_offset`, where it reported that, to below `fetch_offset`.

        It was caught up when it has what the leader had now, or else at the last fetch: under constant load a follower
        is always a little behind the end.
        """
        if fetch_offset >= leader_end:
            self.caught_up_ms = now_ms
        elif fetch_offset >= self._leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_at_ms)
        self.is_gone = False
        self.end_offset = fetch_offset
        self.last_epoch = last_epoch
        self.log_start_offset = log_start_offset
        self._fetched_at_ms = now_ms
        self._leader_end_at_fetch = leader_end

    def on_look(self, leader_end: int, now_ms: int) -> None:
        """The leader looks at it.  While nothing is appended its fetches do not name the partition any more: it is
        caught up all the time, and has its whole time again from the next record on.
        """
        if self.end_offset == leader_end and not self.is_gone:
            self.caught_up_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it is in sync by time.  A follower that has everything stays so while nothing is appended."""
        if self.is_gone:
            return False
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= lag_time_max_ms

    def can_serve(self, offset: int) -> bool:
        """Whether a consumer can continue there: it holds the record at `offset`, or everything below and no more."""
        return not self.is_gone and 0 <= self.log_start_offset <= offset <= self.end_offset

    def lag_ms(self, leader_end: int, now_ms: int) -> int:
        return 0 if self.end_offset == leader_end else max(0, now_ms - self.caught_up_ms)


class InSyncChange(NamedTuple):
    """A state that the leader wants in the tree, over the version that it was computed from."""

    change_id: int
    state: PartitionState
    expected_version: int


class Leadership:
    """A leader's state in its epoch.  The high watermark follows `end_of_in_sync`."""

    __slots__ = (
        "_began_ms",
        "_change_id",
        "_counted",
        "_followers",
        "_is_outcome_open",
        "_lag_time_max_ms",
        "_live",
        "_min_in_sync",
        "_proposed",
        "_stale_version",
        "epoch_start_offset",
        "in_sync_count",
        "is_alone",
        "is_frozen",
        "own",
        "replicas",
        "state",
        "version",
    )

    def __init__(
        self,
        own: ReplicaIncarnation,
        epoch_start_offset: int,
        state: PartitionState,
        version: int,
        replicas: Sequence[NodeId],
        min_in_sync: int,
        live: Mapping[NodeId, int],
        lag_time_max_ms: int,
        now_ms: int,
    ) -> None:
        self.own: Final = own
        self.epoch_start_offset: Final = epoch_start_offset
        self.state = state
        self.version = version
        self.in_sync_count = len(state.in_sync)
        # Whether the high watermark is frozen.
        self.is_frozen = False
        # Whether it follows this replica's stable end alone, as it does without followers.
        self.is_alone = False
        self.replicas = replicas
        # At most the number of replicas: one replica alone can meet acks=all.
        self._min_in_sync = min(min_in_sync, len(replicas))
        self._live = live
        self._lag_time_max_ms = lag_time_max_ms
        self._began_ms = now_ms
        self._followers: dict[NodeId, FollowerProgress] = {}
        self._change_id = 0
        self._is_outcome_open = False
        # The last change at this version was refused: the tree has a newer state that was not read yet.
        self._stale_version = -1
        # Members of changes over the committed state that may still be applied.
        self._proposed: set[ReplicaIncarnation] = set()
        # The maximal in-sync set without the leader.
        self._counted: tuple[FollowerProgress, ...] = ()
        self._count_members(now_ms)

    def commit(self, state: PartitionState, version: int, now_ms: int) -> None:
        """The tree holds `state`.  A higher version ends every change that was proposed over a lower one."""
        if version <= self.version:
            return
        assert state.leader_epoch == self.state.leader_epoch
        self.state = state
        self.version = version
        self._proposed.clear()
        self._is_outcome_open = False
        self._count_members(now_ms)

    def configure(self, replicas: Sequence[NodeId], min_in_sync: int, now_ms: int) -> None:
        """The assigned replicas, and how many of them must be in sync."""
        min_in_sync = min(min_in_sync, len(replicas))
        if replicas != self.replicas or min_in_sync != self._min_in_sync:
            self.replicas = replicas
            self._min_in_sync = min_in_sync
            # A replica that is assigned again has another log: the progress of the former one does not count for it.
            self._followers = {node: progress for node, progress in self._followers.items() if node in replicas}
            self._count_members(now_ms)

    def on_live(self, live: Mapping[NodeId, int]) -> None:
        """The registered brokers and their incarnations."""
        self._live = live

    @property
    def has_min_in_sync(self) -> bool:
        return self.in_sync_count >= self._min_in_sync

    def _count_members(self, now_ms: int) -> None:
        state = self.state
        self.in_sync_count = len(state.in_sync)
        # An eligible member may be elected, and would lack records committed without it.
        self.is_frozen = self.in_sync_count < self._min_in_sync or bool(state.eligible)
        members = dict.fromkeys(state.in_sync)
        members.update(dict.fromkeys(sorted(self._proposed)))
        self._counted = tuple(self._progress_of(member, now_ms) for member in members if member != self.own)
        self.is_alone = not self._counted and not self.is_frozen

    def _progress_of(self, member: ReplicaIncarnation, now_ms: int) -> FollowerProgress:
        """The member's progress.  A former incarnation of its broker never reports again."""
        for counted in self._counted:
            if counted.incarnation == member:
                return counted
        progress = self._followers.get(member.node_id)
        if progress is not None and progress.incarnation == member:
            return progress
        progress = FollowerProgress(member, now_ms)
        if self._live.get(member.node_id) == member.broker_epoch:
            self._followers[member.node_id] = progress
        return progress

    def follower(self, node_id: NodeId, broker_epoch: int, now_ms: int) -> FollowerProgress | None:
        """The progress of a follower that fetches now; None unless assigned, and registered in this incarnation."""
        if self._live.get(node_id) != broker_epoch or node_id == self.own.node_id:
            return None
        progress = self._followers.get(node_id)
        if progress is not None and progress.incarnation.broker_epoch == broker_epoch:
            return progress
        if node_id not in self.replicas:
            return None
        incarnation = ReplicaIncarnation(node_id, broker_epoch)
        # A member whose registration was not known yet may be counted already.
        counted = next((each for each in self._counted if each.incarnation == incarnation), None)
        progress = self._followers[node_id] = counted or FollowerProgress(incarnation, now_ms)
        return progress

    def on_gone(self, incarnation: ReplicaIncarnation) -> bool:
        """The process of a follower has ended; returns whether the leader waited for it and did not know."""
        known = [*self._counted, self._followers.get(incarnation.node_id)]
        found = [each for each in known if each is not None and each.incarnation == incarnation and not each.is_gone]
        for progress in found:
            progress.is_gone = True
        return bool(found)

    def end_of_in_sync(self, own_end: int) -> int:
        """Exclusive end of what the whole maximal in-sync set holds."""
        end_offset = own_end
        for follower in self._counted:
            if follower.end_offset < end_offset:
                end_offset = follower.end_offset
        return end_offset

    def may_join(self, follower: FollowerProgress, high_watermark: int) -> bool:
        """Whether a follower that fetched holds every committed record, but is not in sync yet.

        What the last leader committed may be above the high watermark that is known here, but never above the end that
        the log had when the epoch started.
        """
        end_offset = follower.end_offset
        return (
            end_offset >= high_watermark
            and end_offset >= self.epoch_start_offset
            and follower.incarnation not in self.state.in_sync
            and self._is_replica(follower.incarnation)
        )

    def lags(self, log_end_offset: int, now_ms: int) -> list[FollowerLag]:
        """The lag of each assigned follower; one that never fetched in this epoch counts as lacking the whole epoch."""
        in_sync = set(self.state.in_sync_nodes())
        lags: list[FollowerLag] = []
        for node_id in self.replicas:
            progress = self._followers.get(node_id)
            if node_id == self.own.node_id:
                continue
            if progress is None or progress.end_offset < 0:
                lag_records = log_end_offset
                lag_ms = now_ms - (self._began_ms if progress is None else progress.caught_up_ms)
            else:
                lag_records = max(0, log_end_offset - progress.end_offset)
                lag_ms = progress.lag_ms(log_end_offset, now_ms)
            lags.append(FollowerLag(node_id, node_id in in_sync, lag_records, lag_ms))
        return lags

    def low_watermark(self, own_start: int) -> int:
        """The least log start of the live replicas; -1 while one of them has not fetched in its present incarnation."""
        low_watermark = own_start
        for node_id in self.replicas:
            broker_epoch = self._live.get(node_id)
            if broker_epoch is None or node_id == self.own.node_id:
                continue
            progress = self._followers.get(node_id)
            if progress is None or progress.incarnation.broker_epoch != broker_epoch:
                return NO_OFFSET
            if not progress.is_gone:
                low_watermark = min(low_watermark, progress.log_start_offset)
        return low_watermark

    def nearest(self, nodes: Collection[NodeId], offset: int) -> NodeId | None:
        """The in-sync follower among `nodes` with the greatest end that can serve a consumer at `offset`.

        One that is not in sync may fall behind for good, and the consumer with it.
        """
        found: list[tuple[int, int, NodeId]] = []
        for member in self.state.in_sync:
            progress = self._followers.get(member.node_id)
            if (
                member.node_id in nodes
                and progress is not None
                and progress.incarnation == member
                and member.is_current(self._live)
                and progress.can_serve(offset)
            ):
                found.append((progress.end_offset, progress.caught_up_ms, member.node_id))
        return max(found)[2] if found else None

    def propose(self, high_watermark: int, log_end_offset: int, now_ms: int) -> InSyncChange | None:
        """The change that is due, unless another one is under way.

        Its new members count for the high watermark from now on, and those that it removes until it is known to be
        applied: `end_of_in_sync` never needs the outcome.
        """
        for follower in self._followers.values():
            follower.on_look(log_end_offset, now_ms)
        if self._is_outcome_open or self._stale_version == self.version:
            return None
        members = tuple(
            member
            for member in self.state.in_sync
            if member == self.own or self._is_in_sync(member, log_end_offset, now_ms)
        )
        nodes = {member.node_id for member in members}
        joining = tuple(
            follower.incarnation
            for follower in self._followers.values()
            if follower.incarnation.node_id not in nodes
            and self.may_join(follower, high_watermark)
            and follower.is_caught_up(log_end_offset, now_ms, self._lag_time_max_ms)
        )
        state = self.state.with_in_sync((*members, *joining), self.replicas, self._min_in_sync)
        if state == self.state:
            return None
        self._change_id += 1
        self._is_outcome_open = True
        self._proposed.update(state.in_sync)
        self._count_members(now_ms)
        return InSyncChange(self._change_id, state, self.version)

    def resolve(self, change: InSyncChange, outcome: ChangeResult, version: int, now_ms: int) -> None:
        """The outcome of a change.  `version` is the new one when it was applied.

        Unknown: the same or another change is proposed over the same version, since only one of them can be applied.
        Stale: the state that the tree holds is yet to be read; until then both sets count.
        """
        if outcome is ChangeResult.APPLIED:
            self.commit(change.state, version, now_ms)
            return
        if change.change_id != self._change_id or change.expected_version != self.version:
            return
        self._is_outcome_open = False
        if outcome is ChangeResult.STALE:
            self._stale_version = self.version

    def _is_in_sync(self, member: ReplicaIncarnation, log_end_offset: int, now_ms: int) -> bool:
        if not self._is_replica(member):
            return False
        progress = self._followers.get(member.node_id)
        if progress is None or progress.incarnation != member:
            # Registered in this incarnation, but it did not fetch yet.
            progress = next(each for each in self._counted if each.incarnation == member)
        return progress.is_caught_up(log_end_offset, now_ms, self._lag_time_max_ms)

    def _is_replica(self, incarnation: ReplicaIncarnation) -> bool:
        return incarnation.is_current(self._live) and incarnation.node_id in self.replicas

    def check_invariants(self) -> None:
        """What must hold between calls; for tests."""
        assert self.own in self.state.in_sync
        counted = {follower.incarnation for follower in self._counted}
        assert counted | {self.own} == {*self.state.in_sync, *self._proposed, self.own}
        assert all(follower.end_offset >= NO_OFFSET for follower in self._counted)
        assert all(node_id == follower.incarnation.node_id for node_id, follower in self._followers.items())
