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


class CleanedEnds:
    """Every change is on the device when its call returns.  Raises `OSError`."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._ends = read_cleaned_ends(disk, directory)

    def end_of(self, topic_partition: TopicPartition) -> int:
        return self._ends.get(topic_partition, 0)

    def set(self, topic_partition: TopicPartition, end_offset: int) -> None:
        self._ends[topic_partition] = end_offset
        self._write()

    def lower(self, topic_partition: TopicPartition, end_offset: int) -> None:
        """The log will be truncated to `end_offset`."""
        if self.end_of(topic_partition) > end_offset:
            self.set(topic_partition, end_offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        known = [topic_partition for topic_partition in partitions if topic_partition in self._ends]
        for topic_partition in known:
            del self._ends[topic_partition]
        if known:
            self._write()

    def _write(self) -> None:
        write_cleaned_ends(self._disk, self._directory, self._ends)
