"""Logs whose start moved up: first the new start is made durable, then the files below it may go.

A log's start is moved in memory by DeleteRecords and by retention.  Until it is written down here, a crash brings the
old start back with all its files; afterwards files below it may be missing without being damage.
"""

from __future__ import annotations

from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk
from ottla.storage.directory.housekeeping import Removals
from ottla.storage.directory.log_starts import LogStarts
from ottla.storage.log.log import Log
from ottla.storage.log_files import DELETED_SUFFIX
from ottla.storage.producers.producer_snapshot import remove_snapshots
from ottla.storage.producers.replay import ensure_snapshot


class LogStartMoves:
    """Collects the logs and settles them together: one checkpoint for all."""

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
        """Make the starts durable and give the files below them up.  After an `OSError` the rest is tried again."""
        if not self._moved:
            return
        for log in self._moved:
            self._keep_producers(log)
            log_starts.set(log.topic_partition, log.log_start_offset)
        log_starts.write()
        for log in list(self._moved):
            log.epochs.truncate_from_start(log.log_start_offset)
            self._retire_segments(log)
            del self._moved[log]

    def _keep_producers(self, log: Log) -> None:
        """Before the log's start is written down: from then on the segments below it may go, at a restart too."""
        segments = [*log.removed_segments, *log.segments]
        holds_start = log.segments[log.segments.slot_for(log.log_start_offset)]
        for base_offset in sorted({log.segments.first.base_offset, holds_start.base_offset}):
            if base_offset > segments[0].base_offset:
                now_ms, expiration_ms = self._clock.now_ms(), log.producers.expiration_ms
                ensure_snapshot(self._disk, log.path, segments, base_offset, now_ms, expiration_ms)

    def _retire_segments(self, log: Log) -> None:
        """Readers keep the open files for a while; the new names tell the next start that they are done."""
        due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
        while log.removed_segments:
            segment = log.removed_segments[0]
            deleted = []
            for path in segment.existing_paths():
                self._disk.rename(path, path + DELETED_SUFFIX)
                deleted.append(path + DELETED_SUFFIX)
            self._removals.add(due_ms, tuple(deleted), segment.close)
            del log.removed_segments[0]
        remove_snapshots(self._disk, log.path, below=log.segments.first.base_offset)
