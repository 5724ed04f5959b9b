"""The cleaned end (exclusive) of each log of a directory: the `cleaner-offset-checkpoint`, in memory and on disk.

Below its cleaned end a log holds each key once, so a clean need not search for keys there.  An end that is too low
costs work; one that is too high would keep old values, so it is lowered, durably, before a log is truncated or created
again.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage.checkpoints import read_cleaned_ends, write_cleaned_ends
from ottla.storage.offset_checkpoint import OffsetCheckpoint


class CleanedEnds:
    """The loop changes them in memory; `write` makes it durable, in any thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        found = read_cleaned_ends(disk, directory)
        self._checkpoint = OffsetCheckpoint(found, lambda offsets: write_cleaned_ends(disk, directory, offsets))

    def end_of(self, topic_partition: TopicPartition) -> int:
        return self._checkpoint.offsets.get(topic_partition, 0)

    def set(self, topic_partition: TopicPartition, end_offset: int) -> None:
        self._checkpoint.offsets[topic_partition] = end_offset
        self._checkpoint.changed()

    def lower(self, topic_partition: TopicPartition, end_offset: int) -> None:
        """The log will be truncated to `end_offset`."""
        if self.end_of(topic_partition) > end_offset:
            self.set(topic_partition, end_offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in partitions:
            if self._checkpoint.offsets.pop(topic_partition, None) is not None:
                self._checkpoint.changed()

    def write(self) -> None:
        """Make all changes before this call durable.  Raises `OSError`: call it again."""
        self._checkpoint.write()
