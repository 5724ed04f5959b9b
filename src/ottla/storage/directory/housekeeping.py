"""The periodic work of a log directory, in slices: retention, and removing files after their delay.

A slice is bounded work for the event loop; the caller runs the next one at once while more is due.

When something is due is by the monotonic clock: a jump of the wall clock neither takes files from their readers nor
stops retention until the former time comes again.  Only the age of records is by the wall clock, as users give it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage.log.log import Log

RETENTION_CHECK_INTERVAL_MS: Final = 300_000
# While the disk is full: an operator who shortens retention then waits for the effect.
URGENT_CHECK_INTERVAL_MS: Final = 5_000
# Checking a log costs microseconds, but the first time the indexes of a segment are loaded: a millisecond of full ones.
# Dropping segments costs some syncs on the loop's thread.
LOGS_PER_SLICE: Final = 8
LOGS_CUT_PER_SLICE: Final = 4
REMOVALS_PER_SLICE: Final = 16
REMOVAL_RETRY_MS: Final = 60_000


class Removal(NamedTuple):
    """Files to remove at `due_ms`, of the monotonic clock."""

    due_ms: int
    sequence: int
    paths: tuple[str, ...]
    # Removed with its remaining content, after its files.
    directory: str | None


class Removals:
    """Files waiting to be removed, ordered by when they are due.

    No log has them open: a read or flush in progress has the file open, which outlives its name.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[Removal] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, due_ms: int, paths: tuple[str, ...] = (), directory: str | None = None) -> None:
        self._sequence += 1
        heapq.heappush(self._waiting, Removal(due_ms, self._sequence, paths, directory))

    def remove_due(self, monotonic_ms: int, count_max: int = REMOVALS_PER_SLICE) -> bool:
        """Remove due files, up to a maximum count; returns whether more are due at once.

        Raises `OSError`: what could not be removed is retried after `REMOVAL_RETRY_MS`.
        """
        while self._waiting and self._waiting[0].due_ms <= monotonic_ms:
            if count_max == 0:
                return True
            count_max -= 1
            removal = heapq.heappop(self._waiting)
            try:
                self._remove(removal)
            except OSError:
                # Later, so that it does not hold up the others.
                heapq.heappush(self._waiting, removal._replace(due_ms=monotonic_ms + REMOVAL_RETRY_MS))
                raise
        return False

    def _remove(self, removal: Removal) -> None:
        for path in removal.paths:
            if self._disk.exists(path):
                self._disk.remove(path)
        if removal.directory is not None and self._disk.exists(removal.directory):
            remove_tree(self._disk, removal.directory)


def remove_tree(disk: Disk, directory: str) -> None:
    """Remove a partition's directory with its files."""
    for name in disk.list_directory(directory):
        disk.remove(f"{directory}/{name}")
    disk.remove_directory(directory)


class RetentionPass:
    """Applies retention to all logs once in each interval, a slice at a time."""

    def __init__(self, logs: Mapping[TopicPartition, Log], interval_ms: int = RETENTION_CHECK_INTERVAL_MS) -> None:
        self._logs = logs
        self._interval_ms = interval_ms
        self._is_urgent = False
        self._next_ms = 0
        self._round: Iterator[Log] | None = None

    def set_urgent(self, is_urgent: bool) -> None:
        """Whether room is needed: then a round starts at once, and the next ones follow soon."""
        if is_urgent and not self._is_urgent:
            self._next_ms = 0
        self._is_urgent = is_urgent

    def begin(self) -> None:
        """Let the next slice start a round."""
        self._next_ms = 0
        self._round = None

    def run_slice(self, now_ms: int, monotonic_ms: int) -> bool:
        """Apply retention as of `now_ms` to the next logs; returns whether more remain in this round."""
        if self._round is None:
            if monotonic_ms < self._next_ms:
                return False
            interval_ms = min(self._interval_ms, URGENT_CHECK_INTERVAL_MS) if self._is_urgent else self._interval_ms
            self._next_ms = monotonic_ms + interval_ms
            self._round = iter(list(self._logs.values()))
        cut_count = 0
        for _ in range(LOGS_PER_SLICE):
            log = next(self._round, None)
            if log is None:
                self._round = None
                return False
            if log.is_deleted:
                continue
            log.expire_producers(now_ms)
            if log.delete_old_segments(now_ms):
                cut_count += 1
                if cut_count == LOGS_CUT_PER_SLICE:
                    break
        return True
