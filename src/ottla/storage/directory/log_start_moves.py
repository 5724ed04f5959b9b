"""Logs whose start moved up: first the new start is made durable, then the files below it are removed.

A log's start is moved in memory by DeleteRecords and by retention.  Until it is checkpointed here, a crash restores the
old start with all its files; afterwards files below it may be missing without being damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk
from ottla.runtime.offload import Offload
from ottla.storage.directory.housekeeping import Removals
from ottla.storage.directory.log_starts import LogStarts
from ottla.storage.log.log import Log
from ottla.storage.log_files import DELETED_SUFFIX
from ottla.storage.producers.producer_snapshot import sync_snapshot
from ottla.storage.segment.segment import Segment


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
            # One that is being cut has a start of its own recorded until that is done.
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
