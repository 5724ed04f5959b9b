"""Where each log of a directory starts: the `log-start-offset-checkpoint`, in memory and on disk.

It must be durable before the files below a log's start are removed: after a crash a missing first file is damage
unless the log is known to start after it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage.checkpoints import LOG_START_FILE, read_log_starts, write_log_starts


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
        self._is_known = starts is not None
        # Whether the file is missing, or has starts of logs that were forgotten since.
        self.is_stale = starts is None
        self._starts: dict[TopicPartition, int] = starts or {}

    def start_of(self, topic_partition: TopicPartition) -> int | None:
        """Its first readable offset as recorded, None when that is unknown."""
        return self._starts.get(topic_partition, 0) if self._is_known else None

    def set(self, topic_partition: TopicPartition, log_start_offset: int) -> None:
        if log_start_offset > 0:
            self._starts[topic_partition] = log_start_offset
        else:
            self._starts.pop(topic_partition, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Logs that are deleted, or made: a new log starts at 0.  `write` makes it durable."""
        for topic_partition in partitions:
            if self._starts.pop(topic_partition, None) is not None:
                self.is_stale = True

    def write(self) -> None:
        """Make the starts durable.  May be called by any thread: what is written last is not older than the call."""
        with self._writing:
            self.is_stale = False
            try:
                # A copy, made in one operation of the interpreter: the loop may change the starts meanwhile.
                write_log_starts(self._disk, self._directory, dict(self._starts))
            except OSError:
                self.is_stale = True
                raise
            self._is_known = True
