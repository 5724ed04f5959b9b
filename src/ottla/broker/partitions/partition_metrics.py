"""What is counted of one partition for metrics, beside the class that keeps it consistent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.model.errors import OttlaError
from ottla.replication.leadership import FollowerLag
from ottla.replication.replica import Replica
from ottla.storage.log.log import Appended, Log


class PartitionMetrics:
    """Appends cost nothing here: the log's own sums are compared at each change of the role, and when it is read."""

    __slots__ = ("_appended_before_role", "_is_leader", "_log", "_produced_before_role", "_replica")

    def __init__(self, log: Log, replica: Replica) -> None:
        self._log: Final = log
        self._replica: Final = replica
        self._is_leader = False
        # Of the former roles: what was appended at all, and what of it as leader.
        self._appended_before_role = log.appended
        self._produced_before_role = Appended(0, 0)

    def on_role(self, *, is_leader: bool) -> None:
        """The partition changes its role."""
        self._produced_before_role, self._appended_before_role = self.produced, self._log.appended
        self._is_leader = is_leader

    @property
    def produced(self) -> Appended:
        """What this broker took as leader since it opened the log."""
        before = self._produced_before_role
        if not self._is_leader:
            return before
        now, then = self._log.appended, self._appended_before_role
        return Appended(
            before.records_count + now.records_count - then.records_count,
            before.size_bytes + now.size_bytes - then.size_bytes,
        )

    @property
    def replicated_bytes(self) -> int:
        """What it took from other leaders."""
        return self._log.appended.size_bytes - self.produced.size_bytes

    @property
    def producers_count(self) -> int:
        """The idempotent producers that the log remembers."""
        return len(self._log.producers)

    def has_open_transaction_since(self, since_ms: int) -> bool:
        """Whether a transaction is open in which no batch came after `since_ms`, by the wall clock."""
        return self._log.transactions.is_open_since(since_ms)

    def lags(self, now_ms: int) -> Sequence[FollowerLag]:
        """How far each follower is behind, at the leader; empty elsewhere."""
        return self._replica.lags(now_ms)

    def lag_bytes(self, lag: FollowerLag) -> int:
        """The size of the batches that a follower lacks; of the whole log where that cannot be read."""
        try:
            return self._log.size_bytes_from(self._log.log_end_offset - lag.lag_records)
        except (OSError, OttlaError):
            return self._log.size_bytes
