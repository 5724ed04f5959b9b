"""All logs of one directory: its lock, opening with recovery, creating, deleting, checkpoints, clean shutdown."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk
from ottla.runtime.mutex import Mutex
from ottla.runtime.offload import INLINE, Offload, run_inline
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage import checkpoints
from ottla.storage.compaction.compactor import Compactor
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.cut_copies import CUT_HINT, CutCopies, report_not_kept
from ottla.storage.directory.directory_identity import BOOT_ID_PATH, is_same_boot, remove_boot_note, write_boot_note
from ottla.storage.directory.directory_lock import DirectoryLock, FileLock, NoLock
from ottla.storage.directory.directory_space import DirectorySpace
from ottla.storage.directory.log_checkpoints import LogCheckpoints, LogStartMoves
from ottla.storage.directory.log_completeness import LogCompleteness
from ottla.storage.directory.open_files import too_many_open_files
from ottla.storage.directory.partition_directory import (
    LogCreation,
    PartitionDirectory,
    cannot_be_opened,
    is_foreign,
    read_topic_id,
)
from ottla.storage.directory.removals import Removals, remove_tree
from ottla.storage.errors import (
    CorruptLog,
    DirectoryOffline,
    DiskFull,
    LogExists,
    StorageError,
    lacks_descriptors,
    lacks_room,
    shortage_of,
)
from ottla.storage.log.flush import FlushPlan, FlushScheduler
from ottla.storage.log.log import CutRun, Log, LogParts
from ottla.storage.log_config import LogConfig
from ottla.storage.log_files import (
    CUT_DIRECTORY_SUFFIX,
    DAMAGED_DIRECTORY_SUFFIX,
    DELETED_DIRECTORY_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    UNFINISHED_CUT_SUFFIX,
    UNFLUSHED_FILE,
    deleted_directory_name,
    deleted_log_of,
    topic_partition_of,
)
from ottla.storage.recovery.recovery import LogRecovery
from ottla.storage.room import Room
from ottla.storage.segment.indexes import IndexCache

_log = logging.getLogger(__name__)

_DAMAGED_HINT: Final = "another replica's records replaced it; remove the directory when it was examined"
_STRAY_HINT: Final = "no topic of the cluster had its id; remove the directory when its records are not wanted"
_FOREIGN_HINT: Final = "it holds other files than a log's; move it out of the data directory"
_UNFLUSHED_HINT: Final = (
    "their only replica acknowledged records before they were flushed (flush.policy=os), and a power cut may have "
    "taken some; use flush.policy=ack, or more replicas"
)
_STALE_HINT: Final = (
    "an operator accepted this directory, which may lack acknowledged records; of these partitions there is no other "
    "replica that could have them"
)

RETENTION_CHECK_INTERVAL_MS: Final = 300_000
# While the disk is full: an operator who shortens retention then waits for the effect.
URGENT_CHECK_INTERVAL_MS: Final = 5_000
# Checking a log costs microseconds, but the first time the indexes of a segment are loaded: a millisecond of full ones.
# Dropping segments costs some syncs on the loop's thread.
LOGS_PER_SLICE: Final = 8
LOGS_CUT_PER_SLICE: Final = 4


class RetentionPass:
    """Applies retention to all logs once in each interval, a slice at a time.

    When a round is due is by the monotonic clock: a jump of the wall clock does not stop retention until the former
    time comes again.  Only the age of records is by the wall clock, as users give it.
    """

    def __init__(self, logs: Mapping[TopicPartition, Log], interval_ms: int = RETENTION_CHECK_INTERVAL_MS) -> None:
        self._logs = logs
        self._interval_ms = interval_ms
        self._is_urgent = False
        self._next_ms = 0
        self._round: Iterator[Log] | None = None

    def set_urgent(self, is_urgent: bool) -> None:
        """Whether room is needed: then a round starts at once, and the next ones follow soon."""
        if is_urgent and not self._is_urgent:
            self._next_ms = 0
        self._is_urgent = is_urgent

    def postpone(self, delay_ms: int, monotonic_ms: int) -> None:
        """Start no round for a while, unless rounds come more often or room is needed."""
        if not self._is_urgent:
            self._next_ms = monotonic_ms + min(delay_ms, self._interval_ms)

    def begin(self) -> None:
        """Let the next slice start a round."""
        self._next_ms = 0
        self._round = None

    def run_slice(self, now_ms: int, monotonic_ms: int) -> bool:
        """Apply retention as of `now_ms` to the next logs; returns whether more remain in this round."""
        if self._round is None:
            if monotonic_ms < self._next_ms:
                return False
            interval_ms = min(self._interval_ms, URGENT_CHECK_INTERVAL_MS) if self._is_urgent else self._interval_ms
            self._next_ms = monotonic_ms + interval_ms
            self._round = iter(list(self._logs.values()))
        cut_count = 0
        for _ in range(LOGS_PER_SLICE):
            log = next(self._round, None)
            if log is None:
                self._round = None
                return False
            if log.is_deleted:
                continue
            log.expire_producers(now_ms)
            if log.delete_old_segments(now_ms):
                cut_count += 1
                if cut_count == LOGS_CUT_PER_SLICE:
                    break
        return True


class FailedSyncs:
    """Brings a failed sync from the thread that met it to the event loop's, which takes the directory offline for it.

    Constructed in the event loop's thread.
    """

    def __init__(self, stop_flushes: Callable[[], None], on_failed: Callable[[OSError], None]) -> None:
        """`stop_flushes` is called in any thread, `on_failed` in the loop's."""
        self._stop_flushes = stop_flushes
        self._on_failed = on_failed
        self._thread_id = threading.get_ident()
        # Of another thread, until `check` reports it on the loop.
        self._failed: OSError | None = None

    def report(self, error: OSError) -> None:
        """Any sync failed, in any thread; other threads' callers bring their error to the loop, or `check` does.

        Linux reports a lost write-back once for a descriptor: a flush that succeeds from now on proves nothing.
        """
        self._stop_flushes()
        if threading.get_ident() == self._thread_id:
            self._on_failed(error)
        elif self._failed is None:
            self._failed = error

    def check(self) -> None:
        """Whether another thread's sync failed: then it counts from now on."""
        if self._failed is not None:
            self._on_failed(self._failed)


def _ignore(_event: object) -> None:
    return None


class LogDirectoryObserver(NamedTuple):
    """What a log directory calls, on the event loop's thread, when something happened to it or to one of its logs."""

    on_offline: Callable[[DirectoryOffline], None] = _ignore
    # Damage was read in the log; see `Log.distrust`.
    on_log_damaged: Callable[[Log], None] = _ignore
    # Fetch answers carry a partition's first offset.
    on_log_start_moved: Callable[[Log], None] = _ignore


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
        space: DirectorySpace,
        observer: LogDirectoryObserver,
    ) -> None:
        self.path = path
        self._observer = observer
        self.space: Final = space
        self._cut_copies = CutCopies(disk, path, space)
        self.logs: dict[TopicPartition, Log] = {}
        self.failed: dict[TopicPartition, StorageError] = {}
        # Topics of those in `failed`, where they could be read.
        self._refused_ids: dict[TopicPartition, UUID] = {}
        # Deleted logs, and their topics where known: renamed, but not durably.
        self._renamed: dict[TopicPartition, UUID | None] = {}
        self.was_clean = False
        # Of this directory, until it is recreated.
        self.disk_id: UUID
        self.offline: DirectoryOffline | None = None
        self.scheduler = FlushScheduler(path, clock, on_flushed=self._record_flushed, on_failed=self.directory_failed)
        self.batch_opening = Mutex()
        self._failed_syncs = FailedSyncs(self.scheduler.stop_planning, self.directory_failed)
        self._disk = disk
        self._clock = clock
        self._config_of = config_of
        self._lock = lock
        self._creation = LogCreation(disk, path)
        self._cache = IndexCache()
        self._removals = Removals(disk)
        self._retention = RetentionPass(self.logs, retention_check_interval_ms)
        self._start_moves = LogStartMoves(disk, clock, self._removals)
        self._housekeeping_failure = ""
        self._flushes_count = 0
        # Of logs that are not in `logs` any more.
        self._appended_before_count = 0
        self.compactor: Compactor
        self._log_checkpoints: LogCheckpoints
        self._completeness: LogCompleteness

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
        boot_id_path: str = BOOT_ID_PATH,
        is_only_replica: Callable[[TopicPartition], bool] = lambda _: False,
        space: DirectorySpace | None = None,
        observer: LogDirectoryObserver | None = None,
    ) -> LogDirectory:
        """Lock the directory and open every log in it, recovering those that were not closed cleanly.

        Raises `DirectoryLocked`, `ForeignDirectory`, `DirectoryOffline`, `TooManyOpenFiles`; a log that is damaged is
        in `failed` instead.  `lock` is the file lock on the real disk and none on any other unless given.
        `is_only_replica`: whether no other replica can have what a log lost.  `space`: of this directory; None: it has
        no reserve.
        """
        if lock is None:
            lock = FileLock() if isinstance(disk, PosixDisk) else NoLock()
        space = space or DirectorySpace(disk, path)
        observer = observer or LogDirectoryObserver()
        directory = cls(disk, path, clock, config_of, lock, retention_check_interval_ms, space, observer)
        try:
            _make_directories(disk, path)
            lock.acquire(path)
            # Before anything is written: from here on no lost write-back can escape the directory's descriptor.
            disk.hold_directory(path)
            disk.report_failed_syncs(directory._failed_syncs.report)
            directory_identity.check_or_write(disk, path, node_id, cluster_id)
            directory.disk_id = directory_identity.directory_id(disk, path)
            directory._open_logs(boot_id_path, is_only_replica)
            directory._require_online()
        except OSError as error:
            directory.abandon()
            if lacks_descriptors(error):
                raise too_many_open_files(disk, path) from error
            raise StorageError(f"the log directory {path} cannot be used: {error}") from error
        except BaseException:
            directory.abandon()
            raise
        return directory

    def _open_logs(self, boot_id_path: str, is_only_replica: Callable[[TopicPartition], bool]) -> None:
        disk = self._disk
        self._log_checkpoints = LogCheckpoints(disk, self.path)
        present = list(self._readable_directories())
        if checkpoints.has_clean_shutdown_mark(disk, self.path):
            self._log_checkpoints.restore(each[:2] for each in present)
        # The mark of a clean shutdown is removed, durably, before any log is touched: a crash from here on is unclean.
        self.was_clean = checkpoints.take_clean_shutdown_mark(disk, self.path)
        self._completeness = LogCompleteness(disk, self.path, has_logs=bool(present))
        if not self.was_clean and not is_same_boot(disk, self.path, boot_id_path):
            self._unflushed_lost([each for each in present if self._may_lack_unflushed(each)], is_only_replica)
        if self._completeness.complete_from is None and directory_tree.is_shared(disk, self.path):
            self._keep_only_replicas(present, is_only_replica)
        write_boot_note(disk, self.path, boot_id_path)
        self.compactor = Compactor(disk, self.path, self._clock, self.logs, self._removals, self.directory_failed)
        found: list[tuple[PartitionDirectory, LogParts]] = []
        needs_sync = False
        for each in present:
            try:
                config = self._config_of(each.topic_partition)
                needs_sync = self._mark_unflushed(each, config) or needs_sync
                parts, has_changed = self._recover(each, config)
                found.append((each, parts))
                needs_sync = needs_sync or has_changed
            except StorageError as error:
                self._refuse(each.topic_partition, each.topic_id, error)
            except OSError as error:
                if lacks_descriptors(error):  # not the log's fault, and the next logs would fail in the same way
                    _close_all(parts for _, parts in found)
                    raise
                self._refuse(each.topic_partition, each.topic_id, cannot_be_opened(each.path, error))
        if needs_sync:
            self._sync_file_system()
        for each, parts in found:
            self.logs[each.topic_partition] = self._log(each, parts)
            self._unmark_flushed(each, parts.config)
        deleted = (deleted_log_of(name) for name in disk.list_directory(self.path))
        # A log may have come back since its deletion (a reassignment, a change of --processes), whose record is needed.
        here = {(each.topic_id, each.topic_partition.partition) for each in present}
        unread = {name.partition for name in self.failed if name not in self._refused_ids}
        gone = (key for key in deleted if key is not None and key not in here and key[1] not in unread)
        self._log_checkpoints.opened(self.logs.values(), gone, were_all_opened=not self.failed)

    def _may_lack_unflushed(self, present: PartitionDirectory) -> bool:
        """Whether it acknowledged records before they were flushed.  The policy of that time counts, not the present
        one; of a version that did not note it nothing else is known.
        """
        return UNFLUSHED_FILE in present.names or self._is_os_policy(present.topic_partition)

    def _is_os_policy(self, topic_partition: TopicPartition) -> bool:
        return self._config_of(topic_partition).flush_policy == "os"

    def _unflushed_lost(
        self, present: Collection[PartitionDirectory], is_only_replica: Callable[[TopicPartition], bool]
    ) -> None:
        """A power cut took what these logs had not flushed.

        Other replicas may have it, so these count as not kept.  Where there are none nothing better can come: the log
        keeps leading with what it has, as that of a standalone broker.
        """
        alone = {each.topic_partition for each in present if is_only_replica(each.topic_partition)}
        run_inline(
            self._completeness.mark_incomplete(
                each.topic_partition for each in present if each.topic_partition not in alone
            )
        )
        if alone:
            _log.warning(
                "log.unflushed_lost", extra=fields(path=self.path, partitions_count=len(alone), hint=_UNFLUSHED_HINT)
            )

    def _keep_only_replicas(
        self, present: Collection[PartitionDirectory], is_only_replica: Callable[[TopicPartition], bool]
    ) -> None:
        """No log of the directory is known to be whole.  Those without another replica lead on with what they have."""
        alone = [each.topic_partition for each in present if is_only_replica(each.topic_partition)]
        self._completeness.count_sole_replicas_complete(alone)
        for topic_partition in alone:
            facts = fields(partition=topic_partition, path=self.path, hint=_STALE_HINT)
            _log.warning("log.stale_one_is_kept", extra=facts)

    def _mark_unflushed(self, present: PartitionDirectory, config: LogConfig) -> bool:
        """Note that flush policy `os` starts, for the next start; whether that must be synced."""
        if UNFLUSHED_FILE in present.names or config.flush_policy != "os":
            return False
        self._disk.open(f"{present.path}/{UNFLUSHED_FILE}", create=True).close()
        return True

    def _unmark_flushed(self, present: PartitionDirectory, config: LogConfig) -> None:
        """All of it is flushed now, and from now on before it is acknowledged."""
        if UNFLUSHED_FILE in present.names and config.flush_policy != "os":
            with contextlib.suppress(OSError):  # the next start does it
                self._disk.remove(f"{present.path}/{UNFLUSHED_FILE}")

    def _readable_directories(self) -> Iterator[PartitionDirectory]:
        """The logs of the directory; those without a readable topic id are refused, half-created ones removed.

        A directory that only has the name of one is left as it is.
        """
        for topic_partition, path in self._partition_directories():
            try:
                names = self._disk.list_directory(path)
                topic_id = read_topic_id(self._disk, path, names)
                if topic_id is not None:
                    yield PartitionDirectory(topic_partition, topic_id, path, names)
                    continue
                if is_foreign(self._disk, path, names):
                    _log.warning("directory.foreign_one_is_kept", extra=fields(path=path, hint=_FOREIGN_HINT))
                    continue
                remove_tree(self._disk, path)
                _log.warning("log.half_created_removed", extra=fields(path=path))
            except StorageError as error:
                self._refuse(topic_partition, None, error)
            except OSError as error:
                if lacks_descriptors(error):
                    raise
                self._refuse(topic_partition, None, cannot_be_opened(path, error))

    def _partition_directories(self) -> Iterator[tuple[TopicPartition, str]]:
        """(partition, path) of each; housekeeping removes the remains of deleted topics."""
        for name in self._disk.list_directory(self.path):
            path = f"{self.path}/{name}"
            if not self._disk.is_directory(path):
                continue
            topic_partition = topic_partition_of(name)
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                self._removals.add(self._clock.monotonic_ms(), directory=path)
            elif name.endswith(DAMAGED_DIRECTORY_SUFFIX):
                _log.warning("log.damaged_one_is_kept", extra=fields(path=path, hint=_DAMAGED_HINT))
            elif name.endswith(CUT_DIRECTORY_SUFFIX):
                _log.warning("log.cut_one_is_kept", extra=fields(path=path, hint=CUT_HINT))
            elif name.endswith(CUT_DIRECTORY_SUFFIX + UNFINISHED_CUT_SUFFIX):
                self._removals.add(self._clock.monotonic_ms(), (), directory=path)
            elif name.endswith(STRAY_DIRECTORY_SUFFIX):
                _log.warning("log.stray_one_is_kept", extra=fields(path=path, hint=_STRAY_HINT))
            elif topic_partition is None:
                _log.debug("directory.ignored", extra=fields(path=path, reason="its name is not topic-partition"))
            else:
                yield topic_partition, path

    def _recover(self, present: PartitionDirectory, config: LogConfig) -> tuple[LogParts, bool]:
        """The log's parts, and whether files were changed that must be synced.

        A recovery writes indexes and snapshots: a full disk must not keep the log from its readers.
        """
        recovery = self._recovery(present, config)
        try:
            return recovery.run(), recovery.needs_sync
        except OSError as error:
            if not self._makes_room(error):
                raise
        # What was removed or cut before the error stays so.
        names = self._disk.list_directory(present.path)
        recovery = self._recovery(present._replace(names=names), config)
        return recovery.run(), True

    def _recovery(self, present: PartitionDirectory, config: LogConfig) -> LogRecovery:
        topic_partition = present.topic_partition
        recorded = self._log_checkpoints.of(topic_partition, present.topic_id, was_clean=self.was_clean)
        now_ms = self._clock.now_ms()
        return LogRecovery(self._disk, present.path, present.names, config, self._cache, recorded, now_ms)

    def _refuse(self, topic_partition: TopicPartition, topic_id: UUID | None, error: StorageError) -> None:
        _log.error("log.refused", extra=fields(partition=topic_partition, reason=str(error), hint=error.hint))
        self.failed[topic_partition] = error
        if topic_id is not None:
            self._refused_ids[topic_partition] = topic_id

    def refuse_lost(self, topic_partition: TopicPartition, topic_id: UUID) -> StorageError | None:
        """The error of a log that held flushed batches and whose directory is gone; None when it never held any.

        An empty log in its place would assign offsets to new records that consumers have read already.
        """
        flushed_end = self._log_checkpoints.flushed_ends.end_of(topic_id, topic_partition.partition)
        if not flushed_end:
            return None
        error = StorageError(
            f"{self.path}/{topic_partition} is gone; it was flushed up to offset {flushed_end}",
            hint="stop the broker and restore the directory from a backup, or delete the topic",
        )
        self._refuse(topic_partition, topic_id, error)
        return error

    def _log(self, present: PartitionDirectory, parts: LogParts) -> Log:
        return Log(self._disk, present.path, present.topic_partition, present.topic_id, parts, self, self._cache)

    def _require_online(self) -> None:
        if self.offline is not None:
            raise self.offline

    def _sync_file_system(self) -> None:
        try:
            self._disk.sync_file_system(self.path)
        except OSError as error:
            raise DirectoryOffline(f"{self.path} cannot be synced: {error}") from error

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def room_of(self, topic_partition: TopicPartition) -> Room:
        return self.space.room_of(topic_partition)

    def on_no_room(self) -> None:
        self.space.on_no_room()

    def log_start_moved(self, log: Log) -> None:
        self._start_moves.add(log)
        self._observer.on_log_start_moved(log)

    def log_damaged(self, log: Log, damage: CorruptLog) -> None:
        _log.error("log.damaged", extra=fields(partition=log.topic_partition, reason=str(damage), hint=damage.hint))
        self._observer.on_log_damaged(log)

    def finish_swap(self) -> None:
        self.compactor.finish_swap()

    async def finish_swap_in_steps(self, offload: Offload) -> None:
        await self.compactor.finish_swap_in_steps(offload)

    async def lower_records(self, log: Log, end_offset: int, offload: Offload) -> None:
        self.compactor.begin_cut(log, end_offset)
        self._log_checkpoints.begin_cut(log, end_offset)

        def write() -> None:
            self.compactor.write_cut(log.path, end_offset)
            self._log_checkpoints.write_cut()

        with self._syncs_checked():
            await offload(write)

    async def record_begin(self, log: Log, base_offset: int, log_start_offset: int, offload: Offload) -> None:
        former_start = log.log_start_offset
        self.compactor.begin_cut(log, base_offset)
        self._log_checkpoints.begin_cut(log, base_offset)
        self._log_checkpoints.begin_at(log, log_start_offset)

        def write() -> None:
            self.compactor.write_cut(log.path, base_offset)
            self._log_checkpoints.write_cut()

        try:
            with self._syncs_checked():
                await offload(write)
        except OSError:
            self._log_checkpoints.begin_at(log, former_start)
            raise

    async def keep_cut(self, log: Log, end_offset: int, runs: list[CutRun], offload: Offload) -> None:
        target = await self._cut_copies.copy(log, end_offset, runs, offload)
        if target is None:
            return
        try:
            await self.sync_files(offload)
            await offload(lambda: self._cut_copies.finish(log, target))
        except OSError as error:
            report_not_kept(log, str(error))
            # An unfinished copy counts for no limit, and the next start may be far.
            await offload(lambda: self._cut_copies.drop(target))

    def end_cut(self, log: Log) -> None:
        self._log_checkpoints.end_cut(log)

    async def sync_files(self, offload: Offload) -> None:
        with self._syncs_checked():
            await offload(lambda: self._disk.sync_file_system(self.path))

    def directory_failed(self, error: OSError) -> None:
        """A sync failed: the whole directory is offline until this process ends (a retry may wrongly succeed)."""
        self.scheduler.stop_planning()
        if self.offline is not None:
            return
        self.offline = DirectoryOffline(f"the log directory {self.path} is offline: {error}")
        # What was lost with the failed sync is gone although the machine runs on.
        remove_boot_note(self._disk, self.path)
        _log.critical("directory.offline", extra=fields(path=self.path, error=str(error)))
        for log in self.logs.values():
            log.take_offline(self.offline)
        self._observer.on_offline(self.offline)

    def stored(self) -> tuple[int, int]:
        """Another value whenever a log took records or a flush ended; looks at each log."""
        appended_count = sum(log.appended.records_count for log in self.logs.values())
        return self._flushes_count, self._appended_before_count + appended_count

    def _record_flushed(self, plan: FlushPlan) -> None:
        self._flushes_count += 1
        self._log_checkpoints.flushed(flush.log for flush in plan.flushes if not flush.log.is_deleted)

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether there is a log: in use, refused, or deleted but not durably."""
        return topic_partition in self.logs or topic_partition in self.failed or topic_partition in self._renamed

    def topic_id_of(self, topic_partition: TopicPartition) -> UUID | None:
        """The topic of this partition's files on the disk: a log, or the remains of a failed creation.

        None when there is nothing, or when its topic cannot be read.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            return log.topic_id
        found = self._refused_ids.get(topic_partition) or self._renamed.get(topic_partition)
        return found or self._creation.half_made.get(topic_partition)

    async def create(self, partitions: Iterable[tuple[TopicPartition, UUID]], offload: Offload = INLINE) -> list[Log]:
        """Create logs, durably; `logs` has them, all at once, when this returns.  Many at once cost few syncs.

        Raises `LogExists`, `DirectoryOffline`, `StorageError`: none of them was created then, and their files are
        removed (by the next `create` or `delete` of these partitions, where that fails too).
        """
        wanted = list(partitions)
        self._require_online()
        for topic_partition, topic_id in wanted:
            if self.room_of(topic_partition).is_closed:
                # The broker's own logs may be made from the reserve.
                raise DiskFull(f"{topic_partition} was not created in {self.path}: the disk is full")
            if self.holds(topic_partition):
                raise LogExists(f"{topic_partition} is in {self.path} already")
            lost = self.refuse_lost(topic_partition, topic_id)
            if lost is not None:
                raise lost
            self._require_place(topic_partition)
        created: list[Log] = []
        try:
            names = [topic_partition for topic_partition, _ in wanted]
            await self.compactor.forget(names, offload)
            await self._log_checkpoints.before_creation(names, offload)
            await self._creation.make(wanted, self._is_os_policy, self._log_checkpoints.flushed_ends, offload)
            for topic_partition, topic_id in wanted:
                created.append(self._open_created(topic_partition, topic_id))
                await offload.pause()
            # Its own sync, or another one meanwhile, may have failed: then these must not accept appends.
            self._failed_syncs.check()
            self._require_online()
        except (OSError, OttlaError) as error:
            self._failed_syncs.check()
            for log in created:
                log.close()
            await self._creation.remove(wanted, offload)
            if isinstance(error, OSError):
                raise self._creation_error(error) from error
            raise
        for log in created:
            self.logs[log.topic_partition] = log
        return created

    def _require_place(self, topic_partition: TopicPartition) -> None:
        try:
            is_taken = self._creation.is_place_taken(topic_partition)
        except OSError as error:
            raise self._creation_error(error) from error
        if is_taken:
            raise StorageError(f"{self.path}/{topic_partition} is no log, and a log needs its name", hint=_FOREIGN_HINT)

    def _creation_error(self, error: OSError) -> StorageError:
        message = f"creating logs in {self.path} failed: {error}"
        return self.offline or shortage_of(error, message) or StorageError(message)

    def _open_created(self, topic_partition: TopicPartition, topic_id: UUID) -> Log:
        path = f"{self.path}/{topic_partition}"
        present = PartitionDirectory(topic_partition, topic_id, path, self._disk.list_directory(path))
        return self._log(present, self._recovery(present, self._config_of(topic_partition)).run())

    def delete(self, *partitions: TopicPartition) -> None:
        """`delete_in_steps`, at once."""
        run_inline(self.delete_in_steps(partitions))

    async def delete_in_steps(self, partitions: Sequence[TopicPartition], offload: Offload = INLINE) -> None:
        """Take logs out of service, durably; their files are removed after the delay of their readers.

        One call at a time, and none beside `create`.  Raises `OSError`: those that are in `logs` and `failed` still are
        there as they were.  Call it again with the same partitions: the others are out of service, but may reappear
        after a crash.
        """
        now_ms = self._clock.now_ms()
        with self._syncs_checked():
            await self.compactor.finish_swap_in_steps(offload)
            for topic_partition in partitions:
                self._creation.remove_half_made(topic_partition)
                if topic_partition in self.logs or topic_partition in self.failed:
                    self._rename_deleted(topic_partition, now_ms)
            await self._forget_renamed(offload)
            await self._completeness.forget(partitions, offload)

    @contextlib.contextmanager
    def _syncs_checked(self) -> Iterator[None]:
        """After an error of work that other threads did: if it was a sync's, the directory is offline at once."""
        try:
            yield
        except OSError:
            self._failed_syncs.check()
            raise

    async def _forget_renamed(self, offload: Offload) -> None:
        if not self._renamed:
            return
        await offload(lambda: self._disk.sync_directory(self.path))
        # Only now: a log that is still there after a crash needs both to be opened.
        await self._log_checkpoints.forget(self._renamed, offload)
        await self.compactor.forget(self._renamed, offload)
        self._renamed.clear()

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The recorded high watermark of each replicated log: never above the true one, but perhaps far below."""
        return self._log_checkpoints.high_watermarks()

    def record_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """`record_high_watermarks_in_steps`, at once."""
        run_inline(self.record_high_watermarks_in_steps(high_watermarks))

    async def record_high_watermarks_in_steps(
        self, high_watermarks: Mapping[TopicPartition, int], offload: Offload = INLINE
    ) -> None:
        """Record those of all replicated logs, durably, if any has changed.  Raises `OSError`."""
        if self.offline is None:
            with self._syncs_checked():
                await self._log_checkpoints.record_high_watermarks(high_watermarks, offload)

    @property
    def gives_way(self) -> bool:
        """Whether the disk is stuck or has been full for some seconds: other replicas should do without this one."""
        return self.scheduler.is_stuck or self.space.is_long_full

    def is_usable(self, topic_partition: TopicPartition, *, though_stuck: bool = False) -> bool:
        """Whether there is a log that takes appends, and is not known to be damaged while other replicas are whole.

        `though_stuck`: also while the disk is stuck, which passes.
        """
        log = self.logs.get(topic_partition)
        is_sound = log is not None and log.failure is None and not log.is_distrusted
        return is_sound and (though_stuck or not self.scheduler.is_stuck)

    @property
    def complete_from(self) -> int | None:
        """The broker epoch from which on logs may be complete; None before `set_complete_from`."""
        return self._completeness.complete_from

    def is_complete(self, topic_partition: TopicPartition, broker_epoch: int, *, though_failed: bool = False) -> bool:
        """Whether a log of before this registration has all that was reported of it under `broker_epoch`.

        Of an entry of the present registration only `is_usable` counts.  `though_failed`: also a log that was opened
        and refuses appends; the next start decides what its failure has lost.
        """
        log = self.logs.get(topic_partition)
        is_there = log is not None and not log.is_distrusted and (though_failed or log.failure is None)
        return is_there and self._completeness.is_complete(topic_partition, broker_epoch)

    def set_complete_from(self, broker_epoch: int) -> None:
        """`set_complete_from_in_steps`, without pauses."""
        run_inline(self.set_complete_from_in_steps(broker_epoch))

    async def set_complete_from_in_steps(self, broker_epoch: int, offload: Offload = INLINE) -> None:
        """This broker was registered: call it before anything is fetched or led under this epoch.  Raises `OSError`."""
        with self._syncs_checked():
            await self._completeness.set_complete_from(broker_epoch, offload)

    def set_aside(self, topic_partition: TopicPartition, topic_id: UUID, broker_epoch: int | None = None) -> None:
        """`set_aside_in_steps`, at once."""
        run_inline(self.set_aside_in_steps(topic_partition, topic_id, broker_epoch))

    async def set_aside_in_steps(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        broker_epoch: int | None = None,
        offload: Offload = INLINE,
    ) -> None:
        """Take a damaged or lost log out of service, durably, and keep its files under another name.

        For a partition with other replicas in sync: `create` then makes an empty log, which fetches all from its
        leader.  `topic_id` is the tree's, since the log's own may be unreadable.  `broker_epoch`: of the present
        registration, None when there is none.  Raises `OSError`: call it again.
        """
        with self._syncs_checked():
            log = self.logs.get(topic_partition)
            # One that was open may have reported something under this registration.
            await self._completeness.mark_incomplete([topic_partition], broker_epoch if log is None else None, offload)
            await self.compactor.finish_swap_in_steps(offload)
            target = self._rename_aside(topic_partition, topic_id, DAMAGED_DIRECTORY_SUFFIX)
            if target is not None:
                reason = self.failed.get(topic_partition) or (None if log is None else log.failure)
                facts = fields(partition=topic_partition, path=target, reason=str(reason), hint=_DAMAGED_HINT)
                _log.error("log.set_aside", extra=facts)
            await self._take_out_aside(topic_partition, topic_id, offload)

    def set_stray(self, topic_partition: TopicPartition, broker_epoch: int) -> None:
        """`set_stray_in_steps`, at once."""
        run_inline(self.set_stray_in_steps(topic_partition, broker_epoch))

    async def set_stray_in_steps(
        self, topic_partition: TopicPartition, broker_epoch: int, offload: Offload = INLINE
    ) -> None:
        """Take the log of a topic that the cluster does not know out of service, durably, and keep its files under
        another name.

        Should the topic be in the tree again one day, after a restore, then what was reported of the log counts as
        lost: its flushed end stays recorded.  `broker_epoch`: of the present registration.  Raises `OSError`: call it
        again.
        """
        topic_id = self.topic_id_of(topic_partition)
        assert topic_id is not None, "an unreadable log cannot be known to be a stray one"
        with self._syncs_checked():
            await self._completeness.mark_incomplete([topic_partition], broker_epoch, offload)
            await self.compactor.finish_swap_in_steps(offload)
            target = self._rename_aside(topic_partition, topic_id, STRAY_DIRECTORY_SUFFIX)
            if target is not None:
                _log.warning("log.stray", extra=fields(partition=topic_partition, path=target, hint=_STRAY_HINT))
            await self._take_out_aside(topic_partition, None, offload)

    def _rename_aside(self, topic_partition: TopicPartition, topic_id: UUID, suffix: str) -> str | None:
        """Where the log's files are now, None when there are none."""
        path = f"{self.path}/{topic_partition}"
        if not self._disk.exists(path):
            return None
        unique = f"{topic_id.hex}.{self._clock.now_ms():x}"
        target = f"{self.path}/{deleted_directory_name(topic_partition, unique, suffix)}"
        self._disk.rename(path, target)
        return target

    async def _take_out_aside(
        self, topic_partition: TopicPartition, forgotten_id: UUID | None, offload: Offload
    ) -> None:
        self._take_out(topic_partition, forgotten_id)
        await self._forget_renamed(offload)

    def _take_out(self, topic_partition: TopicPartition, topic_id: UUID | None) -> None:
        log = self.logs.pop(topic_partition, None)
        self.failed.pop(topic_partition, None)
        self._refused_ids.pop(topic_partition, None)
        self._renamed[topic_partition] = topic_id
        if log is not None:
            self._appended_before_count += log.appended.records_count
            log.mark_deleted()
            self.scheduler.forget(log)
            self._start_moves.forget(log)

    def _rename_deleted(self, topic_partition: TopicPartition, now_ms: int) -> None:
        path = f"{self.path}/{topic_partition}"
        topic_id = self.topic_id_of(topic_partition)
        log = self.logs.get(topic_partition)
        unique = f"{now_ms:x}" if topic_id is None else topic_id.hex
        target = f"{self.path}/{deleted_directory_name(topic_partition, unique)}"
        is_there = log is not None or self._disk.exists(path)
        monotonic_ms = self._clock.monotonic_ms()
        if is_there:
            self._disk.rename(path, target)
        self._take_out(topic_partition, topic_id)
        if log is not None:
            self._removals.add(monotonic_ms + log.config.file_delete_delay_ms, directory=target)
        elif is_there:
            self._removals.add(monotonic_ms, directory=target)

    def look_at_space(self) -> int:
        """Look at the room on the disk; returns in how many milliseconds to do it again."""
        next_look_ms = self.space.look(makes=self.offline is None)
        self._retention.set_urgent(self.space.is_full)
        return next_look_ms

    def _with_reserve(self, work: Callable[[], None]) -> None:
        """Do work that needs little room, and that a full disk must not prevent; it is done again after an error."""
        try:
            work()
        except OSError as error:
            if not self._makes_room(error):
                raise
            work()

    def _makes_room(self, error: OSError) -> bool:
        return lacks_room(error) and self.space.relieve()

    def checkpoint(self) -> None:
        """Make moved log starts durable; files of segments below them may then be removed.  Raises `OSError`."""
        self._with_reserve(lambda: self._start_moves.settle(self._log_checkpoints.log_starts))

    async def checkpoint_in_steps(self, offload: Offload) -> None:
        """The same with pauses, and the disk's part elsewhere: what was moved before the call is durable after it."""
        try:
            await self._start_moves.settle_in_steps(self._log_checkpoints.log_starts, offload)
        except OSError as error:
            if not self._makes_room(error):
                raise
            await self._start_moves.settle_in_steps(self._log_checkpoints.log_starts, offload)

    def postpone_retention(self, delay_ms: int) -> None:
        """Start no pass of retention for a while, unless passes come more often or the disk is full."""
        self._retention.postpone(delay_ms, self._clock.monotonic_ms())

    def begin_retention(self) -> None:
        """Let the next `housekeep` start a whole pass of retention, before its interval is over."""
        self._retention.begin()

    def housekeep(self, now_ms: int) -> bool:
        """`housekeep_in_steps`, at once."""
        return run_inline(self.housekeep_in_steps(now_ms))

    async def housekeep_in_steps(self, now_ms: int, offload: Offload = INLINE) -> bool:
        """One slice of retention as of `now_ms`, checkpoints and removals; True when the next slice is due at once.

        `OSError`s are reported and the work is retried in the next slice.
        """
        self._failed_syncs.check()
        if self.offline is not None:
            return False
        try:
            monotonic_ms = self._clock.monotonic_ms()
            goes_on = self._retention.run_slice(now_ms, monotonic_ms)
            await self.checkpoint_in_steps(offload)
            goes_on = self._removals.remove_due(monotonic_ms) or goes_on
        except (OSError, StorageError) as error:
            self._failed_syncs.check()
            # The same failure every second is one line.
            if str(error) != self._housekeeping_failure:
                _log.error("directory.housekeeping_failed", extra=fields(path=self.path, error=str(error)))
            self._housekeeping_failure = str(error)
            return False
        if not goes_on:
            self._housekeeping_failure = ""
        return goes_on

    def close(self) -> None:
        """Flush everything and write the mark of a clean shutdown; no plan may be in flight.

        If anything of it fails there is no mark, and the next start recovers as after a crash.
        """
        assert self.scheduler.in_flight is None, "complete the flush in flight first"
        try:
            if self.offline is None:
                self._with_reserve(self._close_cleanly)
        except OSError as error:
            _log.error("directory.close_failed", extra=fields(path=self.path, error=str(error)))
        finally:
            self._close_files()
            self._lock.release()

    def abandon(self) -> None:
        """Close files and release the lock without flushing or marking anything, as a killed process leaves them."""
        self._close_files()
        self._lock.release()

    def _close_cleanly(self) -> None:
        self.finish_swap()
        logs = [log for log in self.logs.values() if log.failure is None]
        for log in logs:
            log.write_caches()
        flushes = [log.begin_flush() for log in logs]
        self._disk.sync_file_system(self.path)
        # Another thread may have learned of a lost write-back: then this success proves nothing.
        self._failed_syncs.check()
        if self.offline is not None:
            return
        for flush in flushes:
            flush.log.end_flush(flush)
        self._log_checkpoints.flushed(logs)
        self._log_checkpoints.flushed_ends.sync()
        self.checkpoint()
        # For Apache Kafka's tools; our own recovery uses the flushed ends.
        recovery_points = {log.topic_partition: log.flushed_end for log in self.logs.values()}
        checkpoints.write_recovery_points(self._disk, self.path, recovery_points)
        # If one log is not whole, the next start trusts none; that costs one scan each.
        if len(logs) == len(self.logs) and not self.failed:
            checkpoints.write_clean_shutdown_mark(self._disk, self.path)

    def _close_files(self) -> None:
        for log in self.logs.values():
            log.close()
        if hasattr(self, "_log_checkpoints"):
            self._log_checkpoints.close()
        self._disk.report_failed_syncs(None)
        self._disk.release_directory(self.path)


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
