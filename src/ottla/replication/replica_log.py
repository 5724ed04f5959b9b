"""The log under a replica, as replication uses it."""

from __future__ import annotations

from typing import Protocol


class ReplicaLog(Protocol):
    """Ends are exclusive: log start <= stable end <= log end.  The storage's log and the simulation's satisfy it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def stable_end(self) -> int:
        """What this replica will not lose: it is flushed, or the flush policy does not ask for that."""
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

    def truncate_to(self, offset: int) -> None:
        """Cut the log to end at `offset`, or below where that is inside of a batch.  Raises `OttlaError`."""
        ...
