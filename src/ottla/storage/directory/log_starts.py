"""Where each log of a directory starts: the `log-start-offset-checkpoint`, in memory and on disk.

It must be durable before the files below a log's start are removed: after a crash a missing first file is damage
unless the log is known to start after it.

When the file is lost, each log starts where its first segment begins.  That can be seen only of logs that are there: a
directory may be away, to come back from a backup.  Until all are there again the file has a mark that says so, and
names also the logs that start at 0.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage.checkpoints import LOG_START_FILE, read_log_starts, write_log_starts

# As the checksum's: of a partition that no topic has, which Apache Kafka's reader ignores.
OTHERS_UNKNOWN_ENTRY: Final = TopicPartition("__ottla_others_unknown", 0)


class LogStarts:
    """Starts above 0 by partition; also of logs that are refused, or whose directories are gone, until a deletion.

    Files below the start may be missing: without its entry such a log could not be opened again.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._writing = threading.Lock()
        # The starts are unknown when the file is missing or damaged: then each log starts with its first segment.
        starts = read_log_starts(disk, directory) if disk.exists(f"{directory}/{LOG_START_FILE}") else None
        # Whether the file is missing, or differs from what is known by now.
        self.is_stale = starts is None
        self._starts: dict[TopicPartition, int] = starts or {}
        # Whether logs that have no entry start at 0.
        self._others_are_known = self._starts.pop(OTHERS_UNKNOWN_ENTRY, None) is None and starts is not None

    def start_of(self, topic_partition: TopicPartition) -> int | None:
        """Its first readable offset as recorded, None when that is unknown."""
        return self._starts.get(topic_partition, 0 if self._others_are_known else None)

    def set(self, topic_partition: TopicPartition, log_start_offset: int) -> None:
        if log_start_offset > 0 or not self._others_are_known:
            self._starts[topic_partition] = log_start_offset
        else:
            self._starts.pop(topic_partition, None)

    def opened(self, log_starts: Iterable[tuple[TopicPartition, int]], *, are_all: bool) -> None:
        """These logs were opened; `are_all`: there is none that was not.  `write` makes it durable."""
        if are_all and not self._others_are_known:
            self._others_are_known = self.is_stale = True
        for topic_partition, log_start_offset in log_starts:
            if not self._others_are_known and topic_partition not in self._starts:
                self.is_stale = True
            self.set(topic_partition, log_start_offset)

    def made(self, partitions: Iterable[TopicPartition]) -> None:
        """New logs, which start at 0.  `write` makes it durable."""
        for topic_partition in partitions:
            if self.start_of(topic_partition) != 0:
                self.is_stale = True
                self.set(topic_partition, 0)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Logs that are deleted.  `write` makes it durable."""
        for topic_partition in partitions:
            if self._starts.pop(topic_partition, None) is not None:
                self.is_stale = True

    def write(self) -> None:
        """Make the starts durable.  May be called by any thread: what is written last is not older than the call."""
        with self._writing:
            self.is_stale = False
            # A copy, made in one operation of the interpreter: the loop may change the starts meanwhile.
            starts = dict(self._starts)
            if not self._others_are_known:
                starts[OTHERS_UNKNOWN_ENTRY] = 0
            try:
                write_log_starts(self._disk, self._directory, starts)
            except OSError:
                self.is_stale = True
                raise
