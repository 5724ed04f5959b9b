"""A follower's fetch of one partition: the request, the leader's answer, and what that means."""

from __future__ import annotations

import enum
from collections.abc import Sized
from typing import NamedTuple, Protocol

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
