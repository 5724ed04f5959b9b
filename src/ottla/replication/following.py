"""A follower of one leader in one leader epoch: its fetches, and which answers count.

A follower has one fetch at a time, and an answer counts only for that one: a late or repeated one belongs to another
position.  A step is what an answer means for its log.
"""

from __future__ import annotations

import enum
from collections.abc import Sized
from typing import Final, NamedTuple, Protocol

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId


class FollowerFetch(NamedTuple):
    """Where a follower continues.  Another position, epoch or leader has another `request_id`."""

    request_id: int
    leader: NodeId
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class LeaderAnswer(Protocol):
    """What a leader answers to a fetch, as replication reads it: of the records only whether there are any."""

    @property
    def error_code(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def diverging(self) -> tuple[int, int] | None:
        """(epoch, end offset) where the follower's history leaves the leader's (KIP-595)."""
        ...

    @property
    def records(self) -> Sized: ...


class FollowerAction(enum.Enum):
    """What a follower does after an answer."""

    # The answer belongs to another fetch: nothing of it may be used.
    DROP = "drop"
    # There were no records: fetch again from the same position.
    FETCH = "fetch"
    # Append the records, flush, and fetch again.
    APPEND = "append"
    # Cut the log to end at `FollowerStep.offset`, where its history leaves the leader's, then fetch again.
    TRUNCATE = "truncate"
    # Drop the whole log and start an empty one at `FollowerStep.offset`, then fetch again.
    RESET = "reset"
    # Another leader or epoch: wait for a newer state of the partition, or try again later.
    BACK_OFF = "back off"


class FollowerStep(NamedTuple):
    """An action, and the offset that belongs to `TRUNCATE` and `RESET`.

    `parted_at`: of these two, the end of what both logs have in common: the leader's history lacks all that this log
    has from there on.  -1 for a `RESET` to where the leader's log starts because it deleted what this log has, by
    retention or DeleteRecords: no consumer could read that from the leader any more, so nothing is lost.
    """

    action: FollowerAction
    offset: int = -1
    parted_at: int = -1


DROP = FollowerStep(FollowerAction.DROP)
FETCH = FollowerStep(FollowerAction.FETCH)
APPEND = FollowerStep(FollowerAction.APPEND)
BACK_OFF = FollowerStep(FollowerAction.BACK_OFF)


class ReplicaLog(Protocol):
    """Ends are exclusive: log start <= stable end <= log end.  The storage's log and the simulation's satisfy it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def stable_end(self) -> int:
        """What this replica will not lose: it is flushed, or the flush policy does not require that."""
        ...

    def last_epoch(self) -> int:
        """The leader epoch of the last record, -1 without records."""
        ...

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above `epoch`, its end offset), (-1, -1) when `epoch` was never known."""
        ...

    def start_epoch(self, epoch: int) -> None:
        """Stamp `epoch` into later appends.  It never decreases."""
        ...


_NONE: Final = int(ErrorCode.NONE)
_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)


class Following:
    """The leader that a replica follows, and its position there."""

    __slots__ = ("_fetch", "_log", "_request_id", "leader", "leader_epoch", "leader_high_watermark")

    def __init__(self, log: ReplicaLog) -> None:
        self._log: Final = log
        self.leader: NodeId | None = None
        self.leader_epoch = -1
        # The leader's, received together with the proof that this log is a prefix of the leader's; -1 before that.
        self.leader_high_watermark = -1
        self._request_id = 0
        self._fetch: FollowerFetch | None = None

    def follow(self, leader: NodeId | None, leader_epoch: int) -> None:
        """Fetch from `leader` from now on; None: from no broker.  What was fetched in another epoch does not count."""
        if leader == self.leader and leader_epoch == self.leader_epoch:
            return
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.leader_high_watermark = -1
        self._fetch = None

    def next_fetch(self) -> FollowerFetch | None:
        """The fetch to send now: None without a leader, and while the log's end is not stable.

        The leader takes the fetch offset for what this replica will not lose.  The same fetch is returned until its
        answer moved the position, so it can be sent again.
        """
        log = self._log
        end_offset = log.log_end_offset
        leader = self.leader
        if leader is None or log.stable_end != end_offset:
            return None
        fetch = self._fetch
        if fetch is None:
            self._request_id += 1
            fetch = FollowerFetch(self._request_id, leader, self.leader_epoch, end_offset, log.last_epoch())
            self._fetch = fetch
        return fetch

    def on_response(self, request_id: int, answer: LeaderAnswer) -> FollowerStep:
        """What to do after the leader's answer.

        The fetch stays the current one after `TRUNCATE` and `RESET`, until the caller has cut the log and calls
        `forget_fetch`: a cut may wait for the disk, and `is_current` is false when another state came meanwhile.
        """
        fetch = self._fetch
        if fetch is None or request_id != fetch.request_id:
            return DROP
        log = self._log
        if fetch.fetch_offset != log.log_end_offset:
            self._fetch = None
            return DROP
        log_start_offset = answer.log_start_offset
        if answer.error_code != _NONE:
            if answer.error_code == _OUT_OF_RANGE and log_start_offset > log.log_end_offset:
                return FollowerStep(FollowerAction.RESET, log_start_offset)
            return BACK_OFF
        if answer.diverging is not None:
            return self._cut(answer.diverging, log_start_offset)
        if self._is_unproven(log_start_offset):
            return FollowerStep(FollowerAction.RESET, log_start_offset)
        if answer.high_watermark > self.leader_high_watermark:
            self.leader_high_watermark = answer.high_watermark
        if not len(answer.records):
            return FETCH
        self._fetch = None
        return APPEND

    def forget_fetch(self) -> None:
        """The position changed otherwise: what is under way does not count."""
        self._fetch = None

    def _is_unproven(self, log_start_offset: int) -> bool:
        """Whether the leader's log starts where this one ends.

        The leader has no record to compare with any more: this log's may be of an epoch that it replaced there.  It
        deleted them, in one form or another, so they are deleted here too before anything above them is shown.
        """
        log = self._log
        return log_start_offset == log.log_end_offset and log.log_start_offset < log_start_offset

    def is_current(self, request_id: int) -> bool:
        """Whether an answer to this fetch counts."""
        fetch = self._fetch
        return fetch is not None and request_id == fetch.request_id and fetch.fetch_offset == self._log.log_end_offset

    def _cut(self, diverging: tuple[int, int], log_start_offset: int) -> FollowerStep:
        """To the end of the last epoch that both logs have, as far as both have it (KIP-279)."""
        log = self._log
        epoch, leader_end = diverging
        own_end = log.epoch_end_offset(epoch)[1]
        end_offset = leader_end if own_end < 0 else min(leader_end, own_end)
        if not 0 <= end_offset < log.log_end_offset:
            # The answer contradicts the question.  Nothing is cut on the word of such a leader.
            return BACK_OFF
        if end_offset < log.log_start_offset or log.log_start_offset < end_offset == log_start_offset:
            # Nothing that this log still has is in the leader's history, or the leader has deleted all that could prove
            # it (see `_is_unproven`): what this log has below may be of an epoch that was replaced there.
            return FollowerStep(FollowerAction.RESET, max(log_start_offset, end_offset), end_offset)
        return FollowerStep(FollowerAction.TRUNCATE, end_offset, end_offset)
