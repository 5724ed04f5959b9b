"""What a leader knows of one follower in one incarnation of its broker."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET, NodeId
from ottla.model.partition_state import ReplicaIncarnation


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
