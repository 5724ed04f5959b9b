"""The high watermark of each replicated log of a directory: the `replication-offset-checkpoint`, in memory and on disk.

A watermark that is too low is harmless: it rises again with the first fetches.  One that is too high would show records
that a new leader may not have, so it is lowered, durably, before its log is truncated, deleted or created again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage.checkpoints import read_high_watermarks, write_high_watermarks
from ottla.storage.offset_checkpoint import OffsetCheckpoint


class HighWatermarks:
    """The loop changes them in memory; `write` makes it durable, in any thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        found = read_high_watermarks(disk, directory)
        self._checkpoint = OffsetCheckpoint(found, lambda offsets: write_high_watermarks(disk, directory, offsets))

    def recorded(self) -> Mapping[TopicPartition, int]:
        """What the file holds, or soon will; its reader limits each to what the log has."""
        return self._checkpoint.offsets

    @property
    def is_stale(self) -> bool:
        """Whether `write` has something to do."""
        return self._checkpoint.is_stale

    def set(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """These are all that there are."""
        if high_watermarks != self._checkpoint.offsets:
            self._checkpoint.offsets = dict(high_watermarks)
            self._checkpoint.changed()

    def lower(self, topic_partition: TopicPartition, end_offset: int) -> None:
        """The log will be truncated to `end_offset`."""
        offsets = self._checkpoint.offsets
        if offsets.get(topic_partition, 0) > end_offset:
            offsets[topic_partition] = end_offset
            self._checkpoint.changed()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Logs are deleted or made: one of the same name has another history."""
        offsets = self._checkpoint.offsets
        for topic_partition in partitions:
            if offsets.pop(topic_partition, None) is not None:
                self._checkpoint.changed()

    def write(self) -> None:
        """Make all changes before this call durable.  Raises `OSError`: what is recorded is not known then."""
        self._checkpoint.write()
