"""Files of a log directory that are removed after their delay, in slices.

When one is due is by the monotonic clock: a jump of the wall clock does not take files from their readers.
"""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

from ottla.runtime.disk import Disk

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
