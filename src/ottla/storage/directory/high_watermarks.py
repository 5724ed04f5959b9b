"""The high watermark of each replicated log of a directory: the `replication-offset-checkpoint`, in memory and on disk.

A watermark that is too low is harmless: it rises again with the first fetches.  One that is too high would show records
that a new leader may not have, so it is lowered, durably, before its log is truncated, deleted or created again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage.checkpoints import read_high_watermarks, write_high_watermarks


class HighWatermarks:
    """Every change is on the device when its call returns.  Raises `OSError`: what is recorded is not known then."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._recorded = read_high_watermarks(disk, directory)
        # Whether a write failed: the file may have what is not in memory any more.
        self._is_stale = False

    def recorded(self) -> Mapping[TopicPartition, int]:
        """What the file holds; its reader limits each to what the log has."""
        return self._recorded

    def record(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """These are all that there are; nothing is written when none has changed."""
        if self._is_stale or high_watermarks != self._recorded:
            self._write(dict(high_watermarks))

    def lower(self, topic_partition: TopicPartition, end_offset: int) -> None:
        """The log will be truncated to `end_offset`."""
        if self._is_stale or self._recorded.get(topic_partition, 0) > end_offset:
            lowered = min(end_offset, self._recorded.get(topic_partition, 0))
            self._write({**self._recorded, topic_partition: lowered})

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Logs are deleted or made: one of the same name has another history."""
        forgotten = set(partitions)
        kept = {name: offset for name, offset in self._recorded.items() if name not in forgotten}
        if self._is_stale or len(kept) != len(self._recorded):
            self._write(kept)

    def _write(self, offsets: dict[TopicPartition, int]) -> None:
        self._recorded = offsets
        self._is_stale = True
        write_high_watermarks(self._disk, self._directory, offsets)
        self._is_stale = False
