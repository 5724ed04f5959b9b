"""One replica of one partition: its role, epochs, in-sync sets and high watermark.

It decides and does no I/O: the broker's partition and the simulation call it with what they saw, and carry out what it
returns.  The rules are in docs/replication.md.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET, NodeId
from ottla.model.partition_state import NO_LEADER, ChangeResult, PartitionState, ReplicaIncarnation
from ottla.replication.following import FollowerAction, FollowerFetch, FollowerStep, Following, LeaderAnswer, ReplicaLog
from ottla.replication.leadership import FollowerLag, InSyncChange, Leadership


class FetchVerdict(NamedTuple):
    """An error, the point where the follower's history diverges from the leader's, or neither: it may read."""

    error_code: int = 0
    # (epoch, end offset): the follower cuts its log there (KIP-595).
    diverging: tuple[int, int] | None = None
    # Whether the follower may join the in-sync set: the leader proposes that now.
    may_join: bool = False


READ: Final = FetchVerdict()
READ_AND_JOIN: Final = FetchVerdict(may_join=True)
NOT_LEADER: Final = FetchVerdict(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
FENCED_EPOCH: Final = FetchVerdict(int(ErrorCode.FENCED_LEADER_EPOCH))
# The leader, or its view of the brokers, is behind the follower's: the follower tries again.
UNKNOWN_EPOCH: Final = FetchVerdict(int(ErrorCode.UNKNOWN_LEADER_EPOCH))
STALE_BROKER: Final = FetchVerdict(int(ErrorCode.STALE_BROKER_EPOCH))
OUT_OF_RANGE: Final = FetchVerdict(int(ErrorCode.OFFSET_OUT_OF_RANGE))


class EpochBehindLog(OttlaError):
    """The tree's leader epoch is below one that the log has: the tree is older than the log."""

    hint = "the tree was restored from an older copy, or the log is another cluster's"


# The version of a state that was never read.
_NO_VERSION: Final = -1


class Role(enum.Enum):
    """A replica's role for its partition."""

    LEADER = "leader"
    FOLLOWER = "follower"


_LEADER: Final = Role.LEADER


class Replica:
    """A replica starts as a follower without a leader.  Others read the public fields and assign none of them.

    log start <= high watermark <= stable end of this replica's log.  The high watermark rises, except when the log is
    truncated below it, which only an unclean election can cause.
    """

    __slots__ = (
        "_following",
        "_lag_time_max_ms",
        "_leadership",
        "_live",
        "_log",
        "_version",
        "high_watermark",
        "leader",
        "leader_epoch",
        "node_id",
        "role",
    )

    def __init__(self, node_id: NodeId, log: ReplicaLog, high_watermark: int, lag_time_max_ms: int) -> None:
        """`high_watermark` is the checkpointed one; 0 when there is none."""
        self.node_id: Final = node_id
        self._log: Final = log
        self._lag_time_max_ms = lag_time_max_ms
        self.role = Role.FOLLOWER
        self.leader: NodeId = NO_LEADER
        self.leader_epoch: int = NO_LEADER_EPOCH
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.stable_end))
        self._version = _NO_VERSION
        self._live: Mapping[NodeId, int] = {}
        self._leadership: Leadership | None = None
        self._following = Following(log)

    def on_state(
        self,
        replicas: Sequence[NodeId],
        state: PartitionState,
        version: int,
        min_in_sync: int,
        live: Mapping[NodeId, int],
        own_broker_epoch: int,
        now_ms: int,
    ) -> None:
        """The tree's state of the partition, or a change of what belongs to it, was seen.

        `min_in_sync` is the topic's setting; `live` has the broker epochs of the registered brokers and may be shared;
        `own_broker_epoch` is -1 while this broker is not registered.  A state that is older than one seen before is not
        applied.  A broker that registered again leads nothing until an election in its present incarnation.
        Raises `EpochBehindLog`: the replica then neither leads nor follows.
        """
        self._live = live
        if version < self._version:
            return
        self._version = version
        own = ReplicaIncarnation(self.node_id, own_broker_epoch)
        if not state.is_led_by(own):
            self._follow(state)
            return
        if state.leader_epoch < self._log.last_epoch():
            self._follow(state)
            raise EpochBehindLog(
                f"the tree's leader epoch is {state.leader_epoch}, the log has records of {self._log.last_epoch()}"
            )
        leadership = self._leadership
        if leadership is not None and leadership.own == own and self.leader_epoch == state.leader_epoch:
            leadership.on_live(live)
            leadership.commit(state, version, now_ms)
            leadership.configure(replicas, min_in_sync, now_ms)
        else:
            leadership = self._lead(replicas, state, version, min_in_sync, live, own, now_ms)
        self._advance(leadership)

    def _lead(
        self,
        replicas: Sequence[NodeId],
        state: PartitionState,
        version: int,
        min_in_sync: int,
        live: Mapping[NodeId, int],
        own: ReplicaIncarnation,
        now_ms: int,
    ) -> Leadership:
        log = self._log
        epoch_start_offset = log.log_end_offset
        log.start_epoch(state.leader_epoch)
        self._following.follow(None, state.leader_epoch)
        leadership = self._leadership = Leadership(
            own, epoch_start_offset, state, version, replicas, min_in_sync, live, self._lag_time_max_ms, now_ms
        )
        self.role = Role.LEADER
        self.leader = self.node_id
        self.leader_epoch = state.leader_epoch
        return leadership

    def _follow(self, state: PartitionState) -> None:
        """Follow the state's leader.  An earlier incarnation of this broker is no leader."""
        leader = NO_LEADER if state.leader == self.node_id else state.leader
        self.role = Role.FOLLOWER
        self.leader = leader
        self.leader_epoch = state.leader_epoch
        self._leadership = None
        self._following.follow(None if leader == NO_LEADER else leader, state.leader_epoch)

    def on_live(self, live: Mapping[NodeId, int]) -> None:
        """Other brokers are registered now, or the same ones in other incarnations; `propose` returns the resulting
        change.

        This broker's own incarnation is part of `on_state`.
        """
        self._live = live
        if self._leadership is not None:
            self._leadership.on_live(live)

    def on_min_in_sync(self, min_in_sync: int, now_ms: int) -> None:
        """The topic's `min.insync.replicas` was changed."""
        leadership = self._leadership
        if leadership is not None:
            leadership.configure(leadership.replicas, min_in_sync, now_ms)
            self._advance(leadership)

    @property
    def in_sync_count(self) -> int:
        """As the tree has it; 0 for a follower."""
        leadership = self._leadership
        return 0 if leadership is None else leadership.in_sync_count

    @property
    def has_min_in_sync(self) -> bool:
        """Whether acks=all can be met: enough replicas are in sync."""
        leadership = self._leadership
        return leadership is not None and leadership.has_min_in_sync

    @property
    def is_frozen(self) -> bool:
        """Whether the high watermark stays where it is, since too few replicas are in sync; False for a follower."""
        leadership = self._leadership
        return leadership is not None and leadership.is_frozen

    @property
    def epoch_start_offset(self) -> int:
        """The log's end when this replica started to lead; 0 for a follower."""
        leadership = self._leadership
        return 0 if leadership is None else leadership.epoch_start_offset

    @property
    def has_reached_epoch_start(self) -> bool:
        """Whether the high watermark covers all that earlier leaders committed (KIP-207)."""
        leadership = self._leadership
        return leadership is not None and self.high_watermark >= leadership.epoch_start_offset

    def on_stable(self) -> None:
        """The log's stable end moved, so the high watermark may."""
        stable_end = self._log.stable_end
        if stable_end > self.high_watermark:
            leadership = self._leadership
            if leadership is None:
                self._advance_as_follower()
            elif leadership.is_alone:
                # Under flush policy `os` this is a part of each append.
                self.high_watermark = stable_end
            else:
                self._advance(leadership)

    def on_fetch(
        self,
        node_id: NodeId,
        broker_epoch: int,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        now_ms: int,
        log_start_offset: int = NO_OFFSET,
    ) -> FetchVerdict:
        """A follower fetches: it holds everything below `fetch_offset`, stable, if its history is a prefix of this
        log's.

        Constant time, and nothing is allocated unless it diverges.
        """
        leadership = self._leadership
        if leader_epoch != self.leader_epoch:
            return UNKNOWN_EPOCH if leader_epoch > self.leader_epoch else FENCED_EPOCH
        if leadership is None:
            return NOT_LEADER
        follower = leadership.follower(node_id, broker_epoch, now_ms)
        if follower is None:
            return STALE_BROKER if self._live.get(node_id, -1) > broker_epoch else UNKNOWN_EPOCH
        log = self._log
        end_offset = log.log_end_offset
        if fetch_offset != follower.end_offset or last_fetched_epoch != follower.last_epoch:
            # A position that was found good before still is: a leader never truncates in its epoch.
            if last_fetched_epoch >= 0:
                diverging = log.epoch_end_offset(last_fetched_epoch)
                if diverging[0] >= 0 and (diverging[0] < last_fetched_epoch or diverging[1] < fetch_offset):
                    return FetchVerdict(diverging=diverging)
                if diverging[0] < 0:
                    return OUT_OF_RANGE
            if fetch_offset > end_offset:
                # An empty log that starts above this one's end, after an unclean election: it is reset to this end.
                return FetchVerdict(diverging=(leader_epoch, end_offset))
            if fetch_offset == log.log_start_offset > log_start_offset >= 0 and 0 <= last_fetched_epoch < leader_epoch:
                # No record is left here to compare with: the follower resets its log when it has this answer
                # (`Following`), and its fetch counts after that.
                return READ
        if fetch_offset < log.log_start_offset:
            return OUT_OF_RANGE
        limited = follower.end_offset <= self.high_watermark
        follower.on_fetch(fetch_offset, last_fetched_epoch, end_offset, now_ms, log_start_offset)
        if limited and fetch_offset > self.high_watermark:
            self._advance(leadership)
        if leadership.may_join(follower, self.high_watermark):
            return READ_AND_JOIN
        return READ

    def on_gone(self, node_id: NodeId, broker_epoch: int) -> bool:
        """The process of a follower has ended, though its registration may be there until its session times out.

        It leaves the in-sync set by the next `propose`, unless it fetches before.  Returns whether that is due.  To
        leave too early costs safety nothing: the follower joins again by fetching.
        """
        leadership = self._leadership
        return leadership is not None and leadership.on_gone(ReplicaIncarnation(node_id, broker_epoch))

    def nearest(self, nodes: Collection[NodeId], offset: int) -> NodeId | None:
        """A follower among `nodes` that a consumer at `offset` can fetch from as well as here (KIP-392)."""
        leadership = self._leadership
        return None if leadership is None else leadership.nearest(nodes, offset)

    @property
    def low_watermark(self) -> int:
        """Below it no live replica has records, as far as the leader knows; -1 for a follower."""
        leadership = self._leadership
        return NO_OFFSET if leadership is None else leadership.low_watermark(self._log.log_start_offset)

    def propose(self, now_ms: int) -> InSyncChange | None:
        """The change of the in-sync set that is due now; `on_outcome` has to follow.  None while another is under way.

        Called when a follower may join, after each change of the state, of the registered brokers or of the settings,
        and from time to time, since followers also leave by falling behind.
        """
        leadership = self._leadership
        if leadership is None:
            return None
        return leadership.propose(self.high_watermark, self._log.log_end_offset, now_ms)

    def on_outcome(self, change: InSyncChange, outcome: ChangeResult, version: int, now_ms: int) -> None:
        """What became of a change that `propose` returned; `version` is the state's new one when it was applied."""
        leadership = self._leadership
        # A change of an earlier epoch has an outcome too, but nothing follows from it.
        if leadership is None or change.state.leader_epoch != self.leader_epoch:
            return
        leadership.resolve(change, outcome, version, now_ms)
        self._version = max(self._version, leadership.version)
        self._advance(leadership)

    def lags(self, now_ms: int) -> Sequence[FollowerLag]:
        """How far each follower is behind; empty for a follower."""
        leadership = self._leadership
        return () if leadership is None else leadership.lags(self._log.log_end_offset, now_ms)

    def _advance(self, leadership: Leadership) -> None:
        if leadership.is_frozen:
            return
        end_offset = leadership.end_of_in_sync(self._log.stable_end)
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset

    def next_fetch(self) -> FollowerFetch | None:
        """The fetch to send to the leader now, None when there is none: see `Following.next_fetch`."""
        return self._following.next_fetch()

    def on_response(self, request_id: int, answer: LeaderAnswer) -> FollowerStep:
        """What to do after the leader's answer to a fetch.

        After `APPEND` the caller appends the records; after `TRUNCATE` it cuts the log and calls `on_cut`, and after
        `RESET` it empties the log and calls `on_reset`.
        """
        step = self._following.on_response(request_id, answer)
        if step.action is FollowerAction.FETCH or step.action is FollowerAction.APPEND:
            self._advance_as_follower()
        return step

    def is_current_fetch(self, request_id: int) -> bool:
        """Whether an answer to this fetch counts."""
        return self._following.is_current(request_id)

    def on_cut(self) -> None:
        """A truncation was made, or given up: the next fetch is from where the log ends now."""
        self._following.forget_fetch()
        self.on_truncated()

    def on_truncated(self) -> None:
        """The log was truncated or reset, before this."""
        end_offset = self._log.log_end_offset
        if end_offset < self.high_watermark:
            self.high_watermark = end_offset

    def on_reset(self) -> None:
        """The log is empty and starts elsewhere."""
        self._following.forget_fetch()
        log = self._log
        self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))

    def _advance_as_follower(self) -> None:
        """The leader's high watermark holds for the part of it that is stable here too."""
        end_offset = min(self._following.leader_high_watermark, self._log.stable_end)
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset

    def check_invariants(self) -> None:
        """What must hold between calls; for tests."""
        log = self._log
        assert log.log_start_offset <= self.high_watermark <= log.stable_end
        assert (self.role is _LEADER) == (self._leadership is not None) == (self.leader == self.node_id)
        if self._leadership is not None:
            self._leadership.check_invariants()
