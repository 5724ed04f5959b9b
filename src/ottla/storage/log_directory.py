"""All logs of one directory: who may use it, opening with recovery, creating, deleting, checkpoints, clean shutdown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk, File, write_fully
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage import checkpoints, directory_identity
from ottla.storage.directory_lock import DirectoryLock, FileLock, NoLock
from ottla.storage.errors import CorruptLog, DirectoryOffline, LogExists, StorageError
from ottla.storage.flush import FlushPlan, FlushScheduler
from ottla.storage.flushed_ends import FlushedEnds
from ottla.storage.housekeeping import Removals, RetentionPass
from ottla.storage.index_cache import IndexCache
from ottla.storage.log import Log, LogParts
from ottla.storage.log_config import LogConfig
from ottla.storage.log_files import DELETED_DIRECTORY_SUFFIX, topic_partition_of
from ottla.storage.recovery import LogRecovery, Recorded
from ottla.storage.segment import DELETED_SUFFIX, segment_file_name

_log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL_MS: Final = 60_000


class LogDirectory:
    """Open with `LogDirectory.open`; everything else is called from the event loop's thread.

    `logs` are served, `failed` are the partitions that could not be opened and why.
    """

    def __init__(
        self, disk: Disk, path: str, clock: Clock, config_of: Callable[[TopicPartition], LogConfig], lock: DirectoryLock
    ) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.failed: dict[TopicPartition, StorageError] = {}
        self.was_clean = False
        self.offline: DirectoryOffline | None = None
        self.on_offline: Callable[[DirectoryOffline], None] | None = None
        self.scheduler = FlushScheduler(path)
        self.scheduler.on_flushed = self._record_flushed
        self.scheduler.on_failed = self.directory_failed
        self._disk = disk
        self._clock = clock
        self._config_of = config_of
        self._lock = lock
        self._cache = IndexCache()
        self._removals = Removals(disk)
        self._retention = RetentionPass(self.logs)
        self._log_starts_moved: dict[Log, None] = {}
        self._next_checkpoint_ms = 0
        self._flushed_ends: FlushedEnds

    # --- opening --------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        *,
        clock: Clock,
        config_of: Callable[[TopicPartition], LogConfig] = lambda _: LogConfig(),
        node_id: int = 0,
        cluster_id: str | None = None,
        lock: DirectoryLock | None = None,
    ) -> LogDirectory:
        """Lock the directory and open every log in it, recovering those that were not closed cleanly.

        Raises `DirectoryLocked`, `ForeignDirectory`, `DirectoryOffline`; a log that is damaged is in `failed` instead.
        `lock` is the file lock on the real disk and none on any other unless given.
        """
        if lock is None:
            lock = FileLock() if isinstance(disk, PosixDisk) else NoLock()
        directory = cls(disk, path, clock, config_of, lock)
        disk.make_directory(path)
        lock.acquire(path)
        try:
            directory_identity.check_or_write(disk, path, node_id, cluster_id)
            directory._open_logs()
        except BaseException:
            directory._close_files()
            lock.release()
            raise
        return directory

    def _open_logs(self) -> None:
        disk, now_ms = self._disk, self._clock.now_ms()
        self._flushed_ends = FlushedEnds.open(disk, self.path)
        # The mark of a clean shutdown goes, durably, before any log is touched: a crash from here on is unclean.
        self.was_clean = checkpoints.take_clean_shutdown_mark(disk, self.path)
        log_starts = checkpoints.read_log_starts(disk, self.path)
        recovery_points = checkpoints.read_recovery_points(disk, self.path)
        needs_sync = False
        found: list[tuple[TopicPartition, UUID, LogParts]] = []
        for name in disk.list_directory(self.path):
            path = f"{self.path}/{name}"
            if not disk.is_directory(path):
                continue
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                self._removals.add(now_ms, (), directory=path)
                continue
            topic_partition = topic_partition_of(name)
            if topic_partition is None:
                _log.warning("log.directory_ignored path=%s reason=%s", path, "not named topic-partition")
                continue
            recorded = Recorded(
                max(self._flushed_ends.get(topic_partition, 0), recovery_points.get(topic_partition, 0)),
                log_starts.get(topic_partition, 0),
                self.was_clean,
            )
            try:
                topic_id = checkpoints.read_topic_id(disk, path)
                if topic_id is None:
                    self._forget_half_created(topic_partition, path, recorded)
                    continue
                recovery = LogRecovery(disk, path, self._config_of(topic_partition), self._cache, recorded, now_ms)
                found.append((topic_partition, topic_id, recovery.run()))
                needs_sync = needs_sync or recovery.needs_sync
            except StorageError as error:
                self._refuse(topic_partition, error)
            except OSError as error:
                self._refuse(topic_partition, StorageError(f"{path} cannot be opened: {error}"))
        if needs_sync:
            self._sync_file_system()
        for topic_partition, topic_id, parts in found:
            self._add(topic_partition, topic_id, parts)
        self._flushed_ends.record((log.topic_partition, log.flushed_end) for log in self.logs.values())

    def _refuse(self, topic_partition: TopicPartition, error: StorageError) -> None:
        _log.error("log.refused partition=%s reason=%s", topic_partition, error)
        self.failed[topic_partition] = error

    def _forget_half_created(self, topic_partition: TopicPartition, path: str, recorded: Recorded) -> None:
        """A crash while a topic was created leaves a directory without an id, and without any record."""
        for name in self._disk.list_directory(path):
            if name.endswith(".log") and self._disk.file_size_bytes(f"{path}/{name}") > 0:
                raise CorruptLog(f"{path}/{checkpoints.PARTITION_METADATA_FILE}", -1, 0, "the topic's id is missing")
        if recorded.flushed_end > 0:
            raise CorruptLog(f"{path}/{segment_file_name(0)}", -1, 0, "the log's files are missing")
        _log.warning("log.half_created_removed partition=%s", topic_partition)
        self._removals.add(0, (), directory=path)
        self._removals.remove_due(0, len(self._removals))

    def _add(self, topic_partition: TopicPartition, topic_id: UUID, parts: LogParts) -> Log:
        path = f"{self.path}/{topic_partition}"
        config = self._config_of(topic_partition)
        log = Log(self._disk, path, topic_partition, topic_id, config, parts, self, self._cache)
        self.logs[topic_partition] = log
        return log

    def _sync_file_system(self) -> None:
        try:
            self._disk.sync_file_system(self.path)
        except OSError as error:
            raise DirectoryOffline(f"{self.path} cannot be synced: {error}") from error

    # --- what logs ask for ----------------------------------------------------------------------------------

    def mark_dirty(self, log: Log) -> None:
        if log.flush_ms_max == 0:
            self.scheduler.mark_due(log)
        else:
            self.scheduler.mark_dirty(log, self._clock.monotonic_ms())

    def mark_due(self, log: Log) -> None:
        self.scheduler.mark_due(log)

    def log_start_moved(self, log: Log) -> None:
        self._log_starts_moved[log] = None

    def before_truncation(self, log: Log, end_offset: int) -> None:
        self._flushed_ends.lower(log.topic_partition, end_offset)

    def directory_failed(self, error: OSError) -> None:
        """A sync failed: the whole directory is out of use for this process's life (a retry may lie)."""
        if self.offline is not None:
            return
        self.offline = DirectoryOffline(f"the log directory {self.path} is offline: {error}")
        _log.critical("directory.offline path=%s reason=%s", self.path, error)
        for log in self.logs.values():
            log.take_offline(self.offline)
        if self.on_offline is not None:
            self.on_offline(self.offline)

    def _record_flushed(self, plan: FlushPlan) -> None:
        try:
            self._flushed_ends.record((flush.log.topic_partition, flush.log.flushed_end) for flush in plan.flushes)
        except OSError as error:
            self.directory_failed(error)

    # --- creating and deleting ------------------------------------------------------------------------------

    def create(self, partitions: Iterable[tuple[TopicPartition, UUID]]) -> list[Log]:
        """Create logs that are durable when this returns; many at once cost few syncs.

        Raises `LogExists`, `DirectoryOffline`, `StorageError`; then none of them was created.
        """
        wanted = list(partitions)
        if self.offline is not None:
            raise self.offline
        for topic_partition, _ in wanted:
            if topic_partition in self.logs or topic_partition in self.failed:
                raise LogExists(f"{topic_partition} stands already in {self.path}")
        try:
            for topic_partition, topic_id in wanted:
                self._make_files(f"{self.path}/{topic_partition}", topic_id)
            self._disk.sync_file_system(self.path)
        except OSError as error:
            raise StorageError(f"creating logs in {self.path} failed: {error}") from error
        now_ms = self._clock.now_ms()
        self._flushed_ends.record((topic_partition, 0) for topic_partition, _ in wanted)
        created = []
        for topic_partition, topic_id in wanted:
            recovery = LogRecovery(
                self._disk,
                f"{self.path}/{topic_partition}",
                self._config_of(topic_partition),
                self._cache,
                Recorded(0, 0, was_clean=False),
                now_ms,
            )
            created.append(self._add(topic_partition, topic_id, recovery.run()))
        return created

    def _make_files(self, path: str, topic_id: UUID) -> None:
        self._disk.make_directory(path)
        self._disk.open(f"{path}/{segment_file_name(0)}", create=True).close()
        content = checkpoints.partition_metadata(topic_id)
        file: File = self._disk.open(f"{path}/{checkpoints.PARTITION_METADATA_FILE}", create=True)
        write_fully(file, 0, content)
        file.close()

    def delete(self, *partitions: TopicPartition) -> None:
        """Take logs out of service at once, durably; their files are removed after the delay of their readers."""
        now_ms = self._clock.now_ms()
        for topic_partition in partitions:
            log = self.logs.pop(topic_partition, None)
            self.failed.pop(topic_partition, None)
            target = _deleted_name(self.path, topic_partition, log.topic_id.hex if log is not None else f"{now_ms:x}")
            self._disk.rename(f"{self.path}/{topic_partition}", target)
            delay_ms = 0
            close = None
            if log is not None:
                log.is_deleted = True
                self.scheduler.forget(log)
                self._log_starts_moved.pop(log, None)
                delay_ms, close = log.config.file_delete_delay_ms, log.close
            self._flushed_ends.remove(topic_partition)
            self._removals.add(now_ms + delay_ms, (), close, target)
        self._disk.sync_directory(self.path)

    # --- housekeeping ---------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write log starts and recovery points; files of segments below their log's start may then go."""
        self._write_checkpoints()
        now_ms = self._clock.now_ms()
        moved, self._log_starts_moved = self._log_starts_moved, {}
        for log in moved:
            for segment in log.removed_segments:
                paths = segment.existing_paths()
                for path in paths:
                    self._disk.rename(path, path + DELETED_SUFFIX)
                deleted = tuple(path + DELETED_SUFFIX for path in paths)
                self._removals.add(now_ms + log.config.file_delete_delay_ms, deleted, segment.close)
            log.removed_segments = []

    def _write_checkpoints(self) -> None:
        logs = self.logs.values()
        checkpoints.write_log_starts(
            self._disk, self.path, {log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset}
        )
        checkpoints.write_recovery_points(self._disk, self.path, {log.topic_partition: log.flushed_end for log in logs})

    def housekeep(self, now_ms: int) -> bool:
        """One slice of retention, checkpoints and removals; True when the next slice is due at once."""
        if self.offline is not None:
            return False
        goes_on = self._retention.run_slice(now_ms)
        if self._log_starts_moved or now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + CHECKPOINT_INTERVAL_MS
            self.checkpoint()
        return self._removals.remove_due(now_ms) or goes_on

    # --- closing --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush everything and leave the mark of a clean shutdown; no plan may be in flight.

        If anything of it fails there is no mark, and the next start recovers as after a crash.
        """
        assert self.scheduler.in_flight is None, "complete the flush in flight first"
        try:
            if self.offline is None:
                self._close_cleanly()
        except OSError as error:
            _log.error("directory.close_failed path=%s reason=%s", self.path, error)
        finally:
            self._close_files()
            self._lock.release()

    def _close_cleanly(self) -> None:
        logs = [log for log in self.logs.values() if log.failure is None]
        for log in logs:
            log.write_caches()
        self._disk.sync_file_system(self.path)
        for log in logs:
            log.flushed_end = log.log_end_offset
        self._flushed_ends.record((log.topic_partition, log.flushed_end) for log in logs)
        self._write_checkpoints()
        if len(logs) == len(self.logs):
            checkpoints.write_clean_shutdown_mark(self._disk, self.path)

    def _close_files(self) -> None:
        for log in self.logs.values():
            log.close()
        self._removals.close_all()
        if hasattr(self, "_flushed_ends"):
            self._flushed_ends.close()


def _deleted_name(root_path: str, topic_partition: TopicPartition, unique: str) -> str:
    # 255 bytes is the limit of most file systems; the unique part keeps cut names apart.
    tail = f"-{topic_partition.partition}.{unique}{DELETED_DIRECTORY_SUFFIX}"
    return f"{root_path}/{topic_partition.topic[: 255 - len(tail)]}{tail}"
