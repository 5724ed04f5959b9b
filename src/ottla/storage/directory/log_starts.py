"""Where each log of a directory starts: the `log-start-offset-checkpoint`, in memory and on disk.

It must be durable before the files below a log's start are removed: after a crash a missing first file is damage
unless the log is known to start after it.

When the file is lost, each log starts where its first segment starts.  That can be seen only of logs that are there: a
directory may be away, to come back from a backup.  Until all are there again the file has a mark that says so, and
names also the logs that start at 0.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk
from ottla.runtime.offload import Offload
from ottla.storage.checkpoints import LOG_START_FILE, read_log_starts, write_log_starts
from ottla.storage.directory.removals import Removals
from ottla.storage.log.log import Log
from ottla.storage.log_files import DELETED_SUFFIX
from ottla.storage.producers.producer_snapshot import sync_snapshot
from ottla.storage.segment.segment import Segment

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
        # Whether the file is missing, or differs from memory.
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
        """Make the starts durable.  May be called by any thread: the last write is not older than the call."""
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


# Logs whose start moved up: first the new start is made durable, then the files below it are removed.
#
# A log's start is moved in memory by DeleteRecords and by retention.  Until it is checkpointed here, a crash restores
# the old start with all its files; afterwards files below it may be missing without being damage.


class LogStartMoves:
    """Collects the logs and handles them together: one checkpoint for all."""

    def __init__(self, disk: Disk, clock: Clock, removals: Removals) -> None:
        self._disk = disk
        self._clock = clock
        self._removals = removals
        self._moved: dict[Log, None] = {}

    def __bool__(self) -> bool:
        return bool(self._moved)

    def add(self, log: Log) -> None:
        self._moved[log] = None

    def forget(self, log: Log) -> None:
        self._moved.pop(log, None)

    def settle(self, log_starts: LogStarts) -> None:
        """Make the starts durable and retire the files below them.  After an `OSError` call it again for the rest."""
        if not self._moved:
            return
        for log in self._moved:
            log.write_start_snapshots()
            log_starts.set(log.topic_partition, log.log_start_offset)
        log_starts.write()
        for log in list(self._moved):
            due_ms = self._clock.monotonic_ms() + log.config.file_delete_delay_ms
            log.release_removed_segments(partial(self._retire, due_ms))
            del self._moved[log]

    async def settle_in_steps(self, log_starts: LogStarts, offload: Offload) -> None:
        """`settle` with pauses: `offload` syncs the snapshots, and writes the checkpoint.

        What moves while that is written is left for the next.
        """
        starts: dict[Log, int] = {}
        snapshots: list[tuple[str, int]] = []
        for log in list(self._moved):
            # A log that is being cut has another start recorded until that is done.
            if log in self._moved and not log.is_being_cut:
                snapshots += ((log.path, offset) for offset in log.begin_start_snapshots())
                starts[log] = log.log_start_offset
            await offload.pause()
        if not starts:
            return
        if snapshots:
            await offload(partial(self._sync, snapshots))
        for log, start in starts.items():
            if log in self._moved and not log.is_being_cut:  # else another call has settled it, or it was deleted
                # Where it moved up further it has snapshots for this start, or for the one that another call recorded;
                # it may have been cut below both.
                start = max(start, log_starts.start_of(log.topic_partition) or 0)
                log_starts.set(log.topic_partition, min(start, log.log_start_offset))
            await offload.pause()
        await offload(log_starts.write)
        due_from_ms = self._clock.monotonic_ms()
        for log, start in starts.items():
            if log in self._moved and log.log_start_offset == start and not log.is_being_cut:
                due_ms = due_from_ms + log.config.file_delete_delay_ms
                log.release_removed_segments(partial(self._retire, due_ms))
                del self._moved[log]
            await offload.pause()

    def _sync(self, snapshots: Sequence[tuple[str, int]]) -> None:
        """Runs in any thread."""
        for path, offset in snapshots:
            # A log may be deleted, or have moved on, meanwhile.
            with suppress(FileNotFoundError):
                sync_snapshot(self._disk, path, offset)

    def _retire(self, due_ms: int, segment: Segment) -> None:
        """Remove the files at `due_ms`; the next start removes those that have the new names."""
        deleted = []
        for path in segment.existing_paths():
            self._disk.rename(path, path + DELETED_SUFFIX)
            deleted.append(path + DELETED_SUFFIX)
        self._removals.add(due_ms, tuple(deleted))
