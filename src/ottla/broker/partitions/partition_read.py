"""The result of one fetch for one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET, NodeId
from ottla.model.partition_state import ReplicaIncarnation
from ottla.protocol.fetch import NO_PREFERRED_REPLICA
from ottla.runtime.disk import FileRun

# A read without records is waited out with either of these; any other code is answered at once.
WAITED_OUT: Final = frozenset({int(ErrorCode.NONE), int(ErrorCode.OFFSET_NOT_AVAILABLE)})


class PartitionRead(NamedTuple):
    """One partition's part of a fetch response; offsets are -1 where an error leaves them unknown."""

    partition: int
    error_code: int
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    # (epoch, end offset) where the reader's history diverges from the log's (KIP-595).
    diverging: tuple[int, int] | None = None
    # (producer id, first offset) of each aborted transaction that the run touches.
    aborted: Sequence[tuple[int, int]] = ()
    run: FileRun | None = None
    # The broker that the consumer should fetch from instead (KIP-392); then there are no records.
    preferred_replica: int = NO_PREFERRED_REPLICA


class ConsumerReader(NamedTuple):
    """Where a consumer may be served (KIP-392), and whether it reads only what is committed.

    `may_follow`: by a follower too.  `nearby`: the brokers in its rack, where it should be served; empty when it has no
    rack, when no other broker is in it, and on followers of that rack.
    """

    may_follow: bool
    nearby: frozenset[NodeId] = frozenset()
    # Below the last stable offset, and with the aborted transactions of what it gets.
    reads_committed: bool = False


LEADER_ONLY: Final = ConsumerReader(may_follow=False)
ANY_REPLICA: Final = ConsumerReader(may_follow=True)


class ReplicaReader:
    """A follower's fetch request: whose, and when.  `is_counted` once its positions have been counted as progress.

    A request that waits reads its partitions again later; then its positions are no progress of the follower.
    """

    __slots__ = ("broker_epoch", "is_counted", "node_id", "now_ms")

    def __init__(self, node_id: NodeId, broker_epoch: int, now_ms: int) -> None:
        self.node_id: Final = node_id
        self.broker_epoch: Final = broker_epoch
        # By the monotonic clock.
        self.now_ms: Final = now_ms
        self.is_counted = False

    @property
    def incarnation(self) -> ReplicaIncarnation:
        """The broker, and its life."""
        return ReplicaIncarnation(self.node_id, self.broker_epoch)

    def count(self) -> None:
        """All its partitions were read once."""
        self.is_counted = True
