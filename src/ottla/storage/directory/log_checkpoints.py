"""What a directory records of its logs outside of their own directories: flushed ends, log starts, high watermarks.

A record must never promise what a log does not have, at a crash neither.  So it is lowered before its log is cut, and a
change that concerns several records is made here, for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk
from ottla.runtime.offload import Offload
from ottla.storage.checkpoints import (
    LOG_START_FILE,
    OffsetCheckpoint,
    read_high_watermarks,
    read_log_starts,
    write_high_watermarks,
    write_log_starts,
)
from ottla.storage.directory.flushed_ends import FlushedEnds, LogEnd, LogKey, restore_flushed_ends
from ottla.storage.directory.removals import Removals
from ottla.storage.log.log import Log
from ottla.storage.log_files import DELETED_SUFFIX
from ottla.storage.producers.producer_snapshot import sync_snapshot
from ottla.storage.recovery.recovery import Recorded
from ottla.storage.segment.segment import Segment

# The high watermark of each replicated log of a directory: the `replication-offset-checkpoint`, in memory and on disk.
#
# A watermark that is too low is harmless: it rises again with the first fetches.  One that is too high would show
# records that a new leader may not have, so it is lowered, durably, before its log is truncated, deleted or created
# again.
# As the checksum's: of a partition that no topic has, which Apache Kafka's reader ignores.
OTHERS_UNKNOWN_ENTRY: Final = TopicPartition("__ottla_others_unknown", 0)


class LogStarts:
    """Where each log starts, if above 0: the `log-start-offset-checkpoint`, in memory and on disk.

    It has also the logs that are refused, or whose directories are gone, until a deletion.  It must be durable before
    the files below a log's start are removed: after a crash a missing first file is damage unless the log is known to
    start after it.

    When the file is lost, each log starts where its first segment starts.  That can be seen only of logs that are
    there: a directory may be away, to come back from a backup.  Until all are there again the file has a mark that says
    so, and names also the logs that start at 0.
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
    """Logs whose start moved: collects them and handles them together, one checkpoint for all."""

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
        """Make all changes before this call durable.  Raises `OSError`: the recorded ends are unknown then."""
        self._checkpoint.write()


class LogCheckpoints:
    """Every change is durable when its call returns, except where it says otherwise.  All calls raise `OSError`.

    The loop changes what is in memory; `offload` syncs.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.log_starts = LogStarts(disk, path)
        self._high_watermarks = HighWatermarks(disk, path)
        # Of logs that are being cut: where they will end.  A flush that ends meanwhile must not raise a lowered end.
        self._cut_ends: dict[TopicPartition, int] = {}
        # Last: it holds a descriptor.
        self.flushed_ends = FlushedEnds.open(disk, path)

    def restore(self, logs: Iterable[tuple[TopicPartition, UUID]]) -> None:
        """The stop was clean, so lost flushed ends are known; the mark of that must not be removed before."""
        restore_flushed_ends(self._disk, self._path, self.flushed_ends, logs)

    def of(self, topic_partition: TopicPartition, topic_id: UUID, *, was_clean: bool) -> Recorded:
        """What the opening of this log needs."""
        flushed_end = self.flushed_ends.end_of(topic_id, topic_partition.partition)
        return Recorded(flushed_end, self.log_starts.start_of(topic_partition), was_clean)

    def opened(self, logs: Collection[Log], deleted: Iterable[LogKey], *, were_all_opened: bool) -> None:
        """These logs were opened: those that had no flushed end get one, durably, since it must exist from now on.

        `deleted` are not there: a crash may have occurred between the removal of a log and that of its record.
        `were_all_opened`: of those that are there, none was refused.
        """
        ends = [_end_of(log) for log in logs]
        if all(self.flushed_ends.end_of(topic_id, partition) is not None for topic_id, partition, _ in ends):
            self.flushed_ends.record(ends)
        else:
            self.flushed_ends.add(ends)
            self.flushed_ends.sync()
        self.flushed_ends.forget(deleted)
        # Starts of logs whose directories are gone stay: a backup's files may be restored.
        # One that was refused may have lost its record, too.
        are_all = were_all_opened and len(self.flushed_ends) == len(logs)
        self.log_starts.opened(((log.topic_partition, log.log_start_offset) for log in logs), are_all=are_all)
        self._write_stale_starts()

    def flushed(self, logs: Iterable[Log]) -> None:
        """The logs' files were synced.  Not durable, and no error: at worst a record is older than the truth."""
        if self._cut_ends:
            logs = [log for log in logs if log.topic_partition not in self._cut_ends]
        self.flushed_ends.record(_end_of(log) for log in logs)

    def begin_cut(self, log: Log, end_offset: int) -> None:
        """The log will end at `end_offset`: its recorded ends stay at or below that from now on, until `end_cut`.

        Durable after `write_cut`.
        """
        self._cut_ends[log.topic_partition] = end_offset
        if end_offset < log.log_start_offset:
            # Else a restart would hide the batches that follow the cut below the recorded start.
            self.log_starts.set(log.topic_partition, end_offset)
            self.log_starts.is_stale = True
        self._high_watermarks.lower(log.topic_partition, end_offset)
        self.flushed_ends.lower_unsynced(log.topic_id, log.topic_partition.partition, end_offset)

    def begin_at(self, log: Log, log_start_offset: int) -> None:
        """The log, which is empty, will be read from `log_start_offset` on.  Durable after `write_cut`."""
        self.log_starts.set(log.topic_partition, log_start_offset)
        self.log_starts.is_stale = True

    def write_cut(self) -> None:
        """Runs in any thread."""
        self._write_stale()
        self.flushed_ends.sync()

    def end_cut(self, log: Log) -> None:
        """The cut is done, or was given up: the recorded ends follow the log again."""
        self._cut_ends.pop(log.topic_partition, None)

    async def before_creation(self, partitions: Collection[TopicPartition], offload: Offload) -> None:
        """Logs of these names will be made: nothing counts for them that was recorded of others."""
        self.log_starts.made(partitions)
        await self._forget_names(partitions, offload)

    async def forget(self, deleted: Mapping[TopicPartition, UUID | None], offload: Offload) -> None:
        """Logs were deleted, durably, with their topics where these are known."""
        keys = [(topic_id, name.partition) for name, topic_id in deleted.items() if topic_id]
        await self.flushed_ends.forget_in_steps(keys, offload)
        self.log_starts.forget(deleted)
        await self._forget_names(deleted, offload)

    async def _forget_names(self, partitions: Collection[TopicPartition], offload: Offload) -> None:
        self._high_watermarks.forget(partitions)
        if self.log_starts.is_stale or self._high_watermarks.is_stale:
            await offload(self._write_stale)

    def _write_stale(self) -> None:
        """Runs in any thread."""
        self._write_stale_starts()
        self._high_watermarks.write()

    def _write_stale_starts(self) -> None:
        if self.log_starts.is_stale:
            self.log_starts.write()

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """That of each replicated log: never above the true one, but perhaps far below."""
        return self._high_watermarks.recorded()

    async def record_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int], offload: Offload) -> None:
        """Those of all replicated logs, if any has changed."""
        if self._cut_ends:
            limits = self._cut_ends
            high_watermarks = {name: min(each, limits.get(name, each)) for name, each in high_watermarks.items()}
        self._high_watermarks.set(high_watermarks)
        if self._high_watermarks.is_stale:
            await offload(self._high_watermarks.write)

    def close(self) -> None:
        self.flushed_ends.close()


def _end_of(log: Log) -> LogEnd:
    return log.topic_id, log.topic_partition.partition, log.flushed_end
