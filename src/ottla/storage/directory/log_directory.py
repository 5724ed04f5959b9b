"""All logs of one directory: who may use it, opening with recovery, creating, deleting, checkpoints, clean shutdown."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk, write_fully
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage import checkpoints
from ottla.storage.compaction.compactor import Compactor
from ottla.storage.directory import directory_identity
from ottla.storage.directory.directory_lock import DirectoryLock, FileLock, NoLock
from ottla.storage.directory.flushed_ends import FlushedEnds
from ottla.storage.directory.housekeeping import RETENTION_CHECK_INTERVAL_MS, Removals, RetentionPass, remove_tree
from ottla.storage.directory.log_start_moves import LogStartMoves
from ottla.storage.directory.log_starts import LogStarts
from ottla.storage.directory.open_files import are_exhausted, too_many_open_files
from ottla.storage.errors import CorruptLog, DirectoryOffline, LogExists, StorageError
from ottla.storage.log.flush import FlushPlan, FlushScheduler
from ottla.storage.log.log import Log
from ottla.storage.log.log_parts import LogParts
from ottla.storage.log_config import LogConfig
from ottla.storage.log_files import DELETED_DIRECTORY_SUFFIX, LOG_SUFFIX, segment_file_name, topic_partition_of
from ottla.storage.recovery.recovery import LogRecovery, Recorded
from ottla.storage.segment.index_cache import IndexCache

_log = logging.getLogger(__name__)

# Each costs two syncs; beyond this one sync of the file system is cheaper, see flush.py.
CREATED_ONE_BY_ONE_MAX: Final = 2


class LogDirectory:
    """Open with `LogDirectory.open`; everything else is called from the event loop's thread.

    `logs` are served, `failed` are the partitions that could not be opened and why.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        clock: Clock,
        config_of: Callable[[TopicPartition], LogConfig],
        lock: DirectoryLock,
        retention_check_interval_ms: int,
    ) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.failed: dict[TopicPartition, StorageError] = {}
        self.was_clean = False
        self.offline: DirectoryOffline | None = None
        self.on_offline: Callable[[DirectoryOffline], None] | None = None
        # Readers are told of a partition's first offset.
        self.on_log_start_moved: Callable[[Log], None] | None = None
        self.scheduler = FlushScheduler(path)
        self.scheduler.on_flushed = self._record_flushed
        self.scheduler.on_failed = self.directory_failed
        self._disk = disk
        self._clock = clock
        self._config_of = config_of
        self._lock = lock
        self._cache = IndexCache()
        self._removals = Removals(disk, self.scheduler)
        self._retention = RetentionPass(self.logs, retention_check_interval_ms)
        self._start_moves = LogStartMoves(disk, clock, self._removals)
        self.compactor: Compactor
        self._flushed_ends: FlushedEnds
        self._log_starts: LogStarts

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
        retention_check_interval_ms: int = RETENTION_CHECK_INTERVAL_MS,
    ) -> LogDirectory:
        """Lock the directory and open every log in it, recovering those that were not closed cleanly.

        Raises `DirectoryLocked`, `ForeignDirectory`, `DirectoryOffline`, `TooManyOpenFiles`; a log that is damaged is
        in `failed` instead.  `lock` is the file lock on the real disk and none on any other unless given.
        """
        if lock is None:
            lock = FileLock() if isinstance(disk, PosixDisk) else NoLock()
        directory = cls(disk, path, clock, config_of, lock, retention_check_interval_ms)
        try:
            _make_directories(disk, path)
            lock.acquire(path)
            directory_identity.check_or_write(disk, path, node_id, cluster_id)
            directory._open_logs()
        except OSError as error:
            directory.abandon()
            if are_exhausted(error):
                raise too_many_open_files(disk, path) from error
            raise StorageError(f"the log directory {path} cannot be used: {error}") from error
        except BaseException:
            directory.abandon()
            raise
        return directory

    def _open_logs(self) -> None:
        disk = self._disk
        self._flushed_ends = FlushedEnds.open(disk, self.path)
        # The mark of a clean shutdown goes, durably, before any log is touched: a crash from here on is unclean.
        self.was_clean = checkpoints.take_clean_shutdown_mark(disk, self.path)
        self._log_starts = LogStarts(disk, self.path)
        self.compactor = Compactor(disk, self.path, self._clock, self.logs, self._removals)
        found: list[tuple[TopicPartition, UUID, LogParts]] = []
        needs_sync = False
        for topic_partition, path in self._partition_directories():
            try:
                names = disk.list_directory(path)
                topic_id = self._read_topic_id(path, names)
                if topic_id is None:
                    _log.warning("log.half_created_removed", extra=fields(path=path))
                    remove_tree(disk, path)
                    continue
                recovery = self._recovery(topic_partition, topic_id, path, names)
                found.append((topic_partition, topic_id, recovery.run()))
                needs_sync = needs_sync or recovery.needs_sync
            except StorageError as error:
                self._refuse(topic_partition, error)
            except OSError as error:
                if are_exhausted(error):  # not the log's fault, and the next ones would fare no better
                    _close_all(parts for _, _, parts in found)
                    raise
                hint = "see to the directory's owner and the disk, then start again; `ottla log verify DIR` looks at it"
                self._refuse(topic_partition, StorageError(f"{path} cannot be opened: {error}", hint=hint))
        if needs_sync:
            self._sync_file_system()
        for topic_partition, topic_id, parts in found:
            self._add(topic_partition, topic_id, parts)
        self._record_flushed_ends(self.logs.values())
        for log in self.logs.values():
            self._log_starts.set(log.topic_partition, log.log_start_offset)
        if self._log_starts.retain([*self.logs, *self.failed]):
            self._log_starts.write()

    def _partition_directories(self) -> Iterator[tuple[TopicPartition, str]]:
        """(partition, path) of each; what is left of deleted topics is removed by housekeeping."""
        for name in self._disk.list_directory(self.path):
            path = f"{self.path}/{name}"
            if not self._disk.is_directory(path):
                continue
            topic_partition = topic_partition_of(name)
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                self._removals.add(self._clock.now_ms(), (), directory=path)
            elif topic_partition is None:
                _log.debug("directory.ignored", extra=fields(path=path, reason="its name is not topic-partition"))
            else:
                yield topic_partition, path

    def _recovery(
        self, topic_partition: TopicPartition, topic_id: UUID, path: str, names: Sequence[str]
    ) -> LogRecovery:  # fmt: skip
        flushed_end = self._flushed_ends.end_of(topic_id, topic_partition.partition)
        recorded = Recorded(flushed_end, self._log_starts.start_of(topic_partition), self.was_clean)
        config = self._config_of(topic_partition)
        return LogRecovery(self._disk, path, names, config, self._cache, recorded, self._clock.now_ms())

    def _refuse(self, topic_partition: TopicPartition, error: StorageError) -> None:
        _log.error("log.refused", extra=fields(partition=topic_partition, reason=str(error), hint=error.hint))
        self.failed[topic_partition] = error

    def refuse_lost(self, topic_partition: TopicPartition, topic_id: UUID) -> StorageError | None:
        """The error of a log that held flushed batches and whose directory is gone; None when it never held any.

        An empty log in its place would take the offsets for new records that consumers know as old ones.
        """
        flushed_end = self._flushed_ends.end_of(topic_id, topic_partition.partition)
        if flushed_end == 0:
            return None
        error = StorageError(
            f"{self.path}/{topic_partition} is gone; it was flushed up to offset {flushed_end}",
            hint="stop the broker and restore the directory from a backup, or delete the topic",
        )
        self._refuse(topic_partition, error)
        return error

    def _read_topic_id(self, path: str, names: Sequence[str]) -> UUID | None:
        """None when a crash came while the log was created: it has no id yet and no batch."""
        metadata_path = f"{path}/{checkpoints.PARTITION_METADATA_FILE}"
        position, problem = -1, "the file with the topic's id is missing"
        if checkpoints.PARTITION_METADATA_FILE in names:
            try:
                return checkpoints.read_topic_id(self._disk, path)
            except checkpoints.DamagedCheckpoint as error:
                position, problem = 0, str(error)
        if any(self._disk.file_size_bytes(f"{path}/{name}") for name in names if name.endswith(LOG_SUFFIX)):
            raise CorruptLog(metadata_path, position, 0, problem)
        return None

    def _add(self, topic_partition: TopicPartition, topic_id: UUID, parts: LogParts) -> Log:
        path = f"{self.path}/{topic_partition}"
        log = Log(self._disk, path, topic_partition, topic_id, parts, self, self._cache)
        self.logs[topic_partition] = log
        return log

    def _sync_file_system(self) -> None:
        try:
            self._disk.sync_file_system(self.path)
        except OSError as error:
            raise DirectoryOffline(f"{self.path} cannot be synced: {error}") from error

    # --- what logs ask for ----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def mark_dirty(self, log: Log) -> None:
        if log.flush_ms_max == 0:
            self.scheduler.mark_due(log)
        else:
            self.scheduler.mark_dirty(log, self._clock.monotonic_ms())

    def mark_due(self, log: Log) -> None:
        self.scheduler.mark_due(log)

    def log_start_moved(self, log: Log) -> None:
        self._start_moves.add(log)
        if self.on_log_start_moved is not None:
            self.on_log_start_moved(log)

    def finish_swap(self) -> None:
        self.compactor.finish_swap()

    def before_truncation(self, log: Log, end_offset: int) -> None:
        if end_offset < log.log_start_offset:
            # Else a restart would hide the batches that follow the cut below the recorded start.
            self._log_starts.set(log.topic_partition, end_offset)
            self._log_starts.write()
        self.compactor.before_truncation(log, end_offset)
        self._flushed_ends.lower(log.topic_id, log.topic_partition.partition, end_offset)

    def directory_failed(self, error: OSError) -> None:
        """A sync failed: the whole directory is out of use for this process's life (a retry may lie)."""
        self.scheduler.has_failed = True
        if self.offline is not None:
            return
        self.offline = DirectoryOffline(f"the log directory {self.path} is offline: {error}")
        _log.critical("directory.offline", extra=fields(path=self.path, error=str(error)))
        for log in self.logs.values():
            log.take_offline(self.offline)
        if self.on_offline is not None:
            self.on_offline(self.offline)

    def _record_flushed(self, plan: FlushPlan) -> None:
        self._record_flushed_ends(flush.log for flush in plan.flushes if not flush.log.is_deleted)

    def _record_flushed_ends(self, logs: Iterable[Log]) -> None:
        self._flushed_ends.record((log.topic_id, log.topic_partition.partition, log.flushed_end) for log in logs)

    # --- creating and deleting ------------------------------------------------------------------------------

    def create(self, partitions: Iterable[tuple[TopicPartition, UUID]]) -> list[Log]:
        """Create logs that are durable when this returns; many at once cost few syncs.

        Raises `LogExists`, `DirectoryOffline`, `StorageError`; then none of them was created.
        """
        steps = self.create_in_steps(partitions)
        try:
            work = next(steps)
            while True:
                try:
                    if work is not None:
                        work()
                except OSError as error:
                    work = steps.throw(error)
                else:
                    work = next(steps)
        except StopIteration as done:
            created: list[Log] = done.value
            return created

    def create_in_steps(
        self, partitions: Iterable[tuple[TopicPartition, UUID]]
    ) -> Generator[Callable[[], None] | None, None, list[Log]]:
        """`create` for those who have other work to do in between; the logs are served when it is at its end.

        It yields None between short steps.  A function that it yields takes long and touches nothing but the disk: it
        is called, in another thread if that is better, before the generator goes on; its `OSError` is thrown in here.
        """
        wanted = list(partitions)
        if self.offline is not None:
            raise self.offline
        for topic_partition, _ in wanted:
            if topic_partition in self.logs or topic_partition in self.failed:
                raise LogExists(f"{topic_partition} stands already in {self.path}")
        syncs_each = len(wanted) <= CREATED_ONE_BY_ONE_MAX
        sync = self._disk.sync_directory if syncs_each else self._disk.sync_file_system
        try:
            self.compactor.forget(topic_partition for topic_partition, _ in wanted)
            for topic_partition, topic_id in wanted:
                self._make_files(f"{self.path}/{topic_partition}", topic_id, syncs_each)
                yield None
            yield lambda: sync(self.path)
        except OSError as error:
            for topic_partition, _ in wanted:
                with contextlib.suppress(OSError):
                    remove_tree(self._disk, f"{self.path}/{topic_partition}")
            raise StorageError(f"creating logs in {self.path} failed: {error}") from error
        created = []
        for topic_partition, topic_id in wanted:
            path = f"{self.path}/{topic_partition}"
            recovery = self._recovery(topic_partition, topic_id, path, self._disk.list_directory(path))
            created.append(self._add(topic_partition, topic_id, recovery.run()))
            yield None
        self._record_flushed_ends(created)
        return created

    def _make_files(self, path: str, topic_id: UUID, syncs: bool) -> None:
        self._disk.make_directory(path)
        self._disk.open(f"{path}/{segment_file_name(0)}", create=True).close()
        file = self._disk.open(f"{path}/{checkpoints.PARTITION_METADATA_FILE}", create=True)
        try:
            write_fully(file, 0, checkpoints.partition_metadata(topic_id))
            if syncs:
                file.sync_data()
        finally:
            file.close()
        if syncs:
            self._disk.sync_directory(path)

    def delete(self, *partitions: TopicPartition) -> None:
        """Take logs out of service at once, durably; their files are removed after the delay of their readers."""
        now_ms = self._clock.now_ms()
        self.finish_swap()
        present = [name for name in partitions if name in self.logs or name in self.failed]
        keys = [(log.topic_id, log.topic_partition.partition) for name in present if (log := self.logs.get(name))]
        self._flushed_ends.forget(keys)
        for topic_partition in present:
            log = self.logs.pop(topic_partition, None)
            self.failed.pop(topic_partition, None)
            unique = log.topic_id.hex if log is not None else f"{now_ms:x}"
            target = _deleted_path(self.path, topic_partition, unique)
            if log is None and not self._disk.exists(f"{self.path}/{topic_partition}"):
                continue
            self._disk.rename(f"{self.path}/{topic_partition}", target)
            if log is None:
                self._removals.add(now_ms, (), directory=target)
                continue
            log.is_deleted = True
            self.scheduler.forget(log)
            self._start_moves.forget(log)
            self._removals.add(now_ms + log.config.file_delete_delay_ms, (), log.close, target)
        self._disk.sync_directory(self.path)
        # Only now: a log that was still there with its start forgotten would look damaged.
        if self._log_starts.forget(present):
            self._log_starts.write()
        self.compactor.forget(present)

    # --- housekeeping ---------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Make moved log starts durable; files of segments below them may then go.  Raises `OSError`."""
        self._start_moves.settle(self._log_starts)

    def housekeep(self, now_ms: int) -> bool:
        """One slice of retention, checkpoints and removals; True when the next slice is due at once.

        `OSError`s are reported and the work is tried again with the next slice.
        """
        if self.offline is not None:
            return False
        try:
            goes_on = self._retention.run_slice(now_ms)
            self.checkpoint()
            return self._removals.remove_due(now_ms) or goes_on
        except (OSError, StorageError) as error:
            _log.error("directory.housekeeping_failed", extra=fields(path=self.path, error=str(error)))
            return False

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
            _log.error("directory.close_failed", extra=fields(path=self.path, error=str(error)))
        finally:
            self._close_files()
            self._lock.release()

    def abandon(self) -> None:
        """Let go of files and lock without flushing or marking anything: what a killed process leaves behind."""
        self._close_files()
        self._lock.release()

    def _close_cleanly(self) -> None:
        self.finish_swap()
        logs = [log for log in self.logs.values() if log.failure is None]
        for log in logs:
            log.write_caches()
        self._disk.sync_file_system(self.path)
        for log in logs:
            log.flushed_end = log.log_end_offset
        self._record_flushed_ends(logs)
        self._flushed_ends.sync()
        self.checkpoint()
        # For Apache Kafka's tools; our own recovery goes by the flushed ends.
        recovery_points = {log.topic_partition: log.flushed_end for log in self.logs.values()}
        checkpoints.write_recovery_points(self._disk, self.path, recovery_points)
        # One log that is not whole keeps all from being believed at the next start; that costs one scan each.
        if len(logs) == len(self.logs) and not self.failed:
            checkpoints.write_clean_shutdown_mark(self._disk, self.path)

    def _close_files(self) -> None:
        for log in self.logs.values():
            log.close()
        self._removals.close_all()
        if hasattr(self, "_flushed_ends"):
            self._flushed_ends.close()


def _close_all(opened: Iterable[LogParts]) -> None:
    for parts in opened:
        for segment in parts.segments:
            segment.close()


def _make_directories(disk: Disk, path: str) -> None:
    """Make a directory and those above it, durably."""
    if disk.exists(path):
        return
    parent = path.rpartition("/")[0]
    if parent:
        _make_directories(disk, parent)
    disk.make_directory(path)
    disk.sync_directory(parent or ".")


def _deleted_path(root_path: str, topic_partition: TopicPartition, unique: str) -> str:
    # 255 bytes is the limit of most file systems; the unique part keeps cut names apart.
    tail = f"-{topic_partition.partition}.{unique}{DELETED_DIRECTORY_SUFFIX}"
    return f"{root_path}/{topic_partition.topic[: 255 - len(tail)]}{tail}"
