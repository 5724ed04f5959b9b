"""What a leader answers to a follower's fetch."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode


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
