"""Offsets of partitions in memory, and the checkpoint that has them on disk.

The event loop changes the offsets, a thread of its pool writes them: a sync may take as long as the disk likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ottla.model.identifiers import TopicPartition


class OffsetCheckpoint:
    """`offsets` are changed on the loop; after a change call `changed`, and `write` to make it durable."""

    def __init__(
        self, offsets: Mapping[TopicPartition, int], write: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None:  # fmt: skip
        """`offsets`: as the file has them.  `write` replaces the file, durably, or raises `OSError`."""
        self.offsets = dict(offsets)
        self._write = write
        self._writing = threading.Lock()
        self._is_stale = False

    @property
    def is_stale(self) -> bool:
        """Whether the file may differ from `offsets`."""
        return self._is_stale

    def changed(self) -> None:
        self._is_stale = True

    def write(self) -> None:
        """Make all changes before this call durable.  May be called in any thread.  Raises `OSError`: call it again."""
        with self._writing:
            if not self._is_stale:
                return
            self._is_stale = False
            # A copy, made in one operation of the interpreter: the loop may change the offsets meanwhile.
            offsets = dict(self.offsets)
            try:
                self._write(offsets)
            except OSError:
                self._is_stale = True
                raise
