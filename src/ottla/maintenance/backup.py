"""A backup of a data directory, beside its broker or without: `begin`, `copy_logs`, the tree by its owner, `finish`.

All is written below `TARGET.unfinished`, made durable, and then gets its name: what has the name is whole.

Nothing stops the broker, so logs are copied at different moments, in an order that keeps what refers to others true:
logs of positions (committed offsets) first, then all others, then schemas, which records name
by their ids; the tree last, which has every topic that was copied.  Logs of topics that it does not have any more were
deleted meanwhile, and are left out.

`restore` makes a data directory of a backup: a new or empty one, which no broker takes before it is whole.
`.restoring` is in it from the first file on until `meta.properties`, which makes it a broker's, is durable.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final
from uuid import UUID

from ottla.maintenance.log_copy import CopiedLog, LogCopying
from ottla.maintenance.manifest import (
    ROOM_LEFT_BYTES,
    BackupDamaged,
    BackupFile,
    BackupLog,
    Manifest,
    chunks,
    encode_manifest,
    file_crc,
    read_manifest,
)
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition, uuid_from_text, uuid_to_text
from ottla.model.own_names import MIRROR_PROGRESS_TOPIC, REPLAY_CLAIMS_TOPIC
from ottla.observe.events import fields
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, replace_file, write_fully
from ottla.storage import checkpoints
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_identity import BACKUP_MANIFEST_FILE, DIRECTORY_ID, RESTORING_FILE, Owner
from ottla.storage.directory.directory_lock import LOCK_FILE, DirectoryLock
from ottla.storage.directory.directory_tree import TREE_FILE
from ottla.storage.directory.flushed_ends import FlushedEnds, read_flushed_ends
from ottla.storage.directory.log_checkpoints import LogStarts
from ottla.storage.directory.log_completeness import KEPT_FROM
from ottla.storage.directory.partition_directory import MissingLog, is_no_log, missing_logs
from ottla.storage.directory.removals import remove_tree
from ottla.storage.errors import DirectoryLocked, DiskFull, ForeignDirectory, StorageError
from ottla.storage.log_files import (
    FLUSHED_ENDS_FILE,
    SEGMENT_SUFFIXES,
    base_offsets_in,
    segment_file_name,
    topic_partition_of,
)
from ottla.storage.recovery.recovery import holds_records


class RecordedEnds:
    """Read before the logs are, so that each of them reaches its end, or has lost something."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        """Raises `OSError`."""
        self._disk = disk
        self._data_dir = data_dir
        self._ends = read_flushed_ends(disk, data_dir)
        # After a clean stop a broker restores lost records from these, and opens a log without any.
        is_clean = checkpoints.has_clean_shutdown_mark(disk, data_dir)
        self._points = checkpoints.read_recovery_points(disk, data_dir) if is_clean else None

    def of(self, topic_partition: TopicPartition, topic_id: UUID | None, *, held_batches: bool) -> int | None:
        """The exclusive flushed end of a log; None when nothing proves it, so that its broker refuses the log.

        `held_batches`: whether it did before this call.  Raises `OSError`.
        """
        if topic_id is None:
            return None if held_batches else 0
        key = topic_id, topic_partition.partition
        if key in self._ends:
            return self._ends[key]
        if self._points is not None:
            return self._points.get(topic_partition, 0)
        # Of a topic that was made meanwhile: a log has its record before its first batch.
        found = read_flushed_ends(self._disk, self._data_dir).get(key)
        return found if found is not None or held_batches else 0

    def gone(self, topics: Mapping[str, UUID], copied: Collection[TopicPartition]) -> Iterator[MissingLog]:
        """The logs of these topics that held something before the backup started, and of which nothing was copied."""
        return missing_logs(self._ends, topics, copied)


UNFINISHED_SUFFIX: Final = ".unfinished"
# In it from its first file on: a directory with neither this nor the manifest is no backup.
BACKING_UP_FILE: Final = ".backing-up"

_log = logging.getLogger(__name__)


class UnfinishedBackup:
    """`path` is the directory's while it is written; `target` the name that it gets."""

    def __init__(self, disk: Disk, target: str, lock: DirectoryLock) -> None:
        self.path: Final = target + UNFINISHED_SUFFIX
        self._disk = disk
        self._target = target
        self._lock = lock

    def begin(self) -> None:
        """Make the directory, or take over what an interrupted backup left of it, and empty it.

        Raises `StorageError`: another backup is writing to it, or it is not a backup; and `OSError`.
        """
        disk = self._disk
        self._check_remains()
        disk.make_directory(self.path)
        try:
            self._lock.acquire(self.path)
        except DirectoryLocked as error:
            raise StorageError(
                f"another backup writes to {self._target}: {error}", hint="wait for it, or name another directory"
            ) from None
        # Before anything is written, so that the sync of `publish` reports every lost write-back.
        disk.hold_directory(self.path)
        disk.open(f"{self.path}/{BACKING_UP_FILE}", create=True).close()
        disk.sync_directory(self.path)
        self._remove_content()

    def publish(self, manifest: Manifest) -> None:
        """All is written: make it durable, and give it its name.  Raises `OSError`."""
        disk = self._disk
        disk.sync_file_system(self.path)
        replace_file(disk, f"{self.path}/{BACKUP_MANIFEST_FILE}", encode_manifest(manifest))
        disk.rename(self.path, self._target)
        # Only now: until then another backup of this name finds the lock.
        self._remove_marks(self._target)
        disk.sync_directory(self._target.rpartition("/")[0] or "/")
        self._close()

    def abandon(self) -> None:
        """Remove the files written so far; the next backup of this name removes the rest."""
        try:
            self._remove_content()
            self._remove_marks(self.path)
            self._disk.remove_directory(self.path)
        except OSError as error:
            _log.warning("backup.not_removed", extra=fields(path=self.path, error=str(error)))
        self._close()

    def _check_remains(self) -> None:
        if not self._disk.exists(self.path):
            return
        names = self._disk.list_directory(self.path) if self._disk.is_directory(self.path) else [self.path]
        if set(names) - {LOCK_FILE} and not {BACKING_UP_FILE, BACKUP_MANIFEST_FILE} & set(names):
            raise StorageError(
                f"{self.path} is there, and is not what an interrupted backup left",
                hint="a backup is written there until it is whole: move it away, or give the backup another name",
            )

    def _remove_content(self) -> None:
        for name in self._disk.list_directory(self.path):
            path = f"{self.path}/{name}"
            if self._disk.is_directory(path):
                remove_tree(self._disk, path)
            elif name not in (LOCK_FILE, BACKING_UP_FILE):
                self._disk.remove(path)

    def _remove_marks(self, path: str) -> None:
        for name in (BACKING_UP_FILE, LOCK_FILE):
            if self._disk.exists(f"{path}/{name}"):
                self._disk.remove(f"{path}/{name}")

    def _close(self) -> None:
        self._disk.release_directory(self.path)
        self._lock.release()


SCHEMAS_TOPIC: Final = "_schemas"
_PROGRESS_TOPICS: Final = frozenset({OFFSETS_TOPIC, MIRROR_PROGRESS_TOPIC, REPLAY_CLAIMS_TOPIC})


class Backup:
    """One backup of `data_dir` into the new directory `target`; both are absolute paths."""

    def __init__(
        self,
        disk: Disk,
        data_dir: str,
        target: str,
        lock: DirectoryLock,
        *,
        links: bool = False,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._target = target
        self._unfinished = UnfinishedBackup(disk, target, lock)
        self._links = links
        self._copying = LogCopying(disk, links=links, pause=pause)
        self._identity: dict[str, str] = {}
        self._ends: RecordedEnds
        self._copied: dict[TopicPartition, tuple[UUID | None, CopiedLog]] = {}

    @property
    def tree_path(self) -> str:
        """Where the copy of the tree belongs, after `copy_logs`."""
        return f"{self._unfinished.path}/{TREE_FILE}"

    def begin(self) -> None:
        """Check both directories, and remove what an interrupted backup left.

        Raises `StorageError`: `ForeignDirectory`, `DiskFull`, and others; and `OSError`.
        """
        self._check_source()
        self._check_target()
        self._ends = RecordedEnds(self._disk, self._data_dir)
        parent = self._target.rpartition("/")[0] or "/"
        if not self._disk.exists(parent):
            raise StorageError(f"{parent} does not exist", hint="make the directory above the backup first")
        self._unfinished.begin()
        try:
            # The remains of a former one take no room any more.
            self._check_room(parent)
        except BaseException:
            self._unfinished.abandon()
            raise

    def partitions(self) -> list[TopicPartition]:
        """In the order in which they are copied."""
        found = [
            partition
            for name in self._disk.list_directory(self._data_dir)
            if (partition := topic_partition_of(name)) is not None
            and self._disk.is_directory(f"{self._data_dir}/{name}")
        ]
        return sorted(found, key=lambda each: (_turn_of(each.topic), each))

    def copy_log(self, partition: TopicPartition) -> None:
        """Copy one log; one whose topic was deleted meanwhile is left out.  Raises `StorageError`, `OSError`."""
        source, target = f"{self._data_dir}/{partition}", f"{self._unfinished.path}/{partition}"
        try:
            if is_no_log(self._disk, source):
                return
            held_batches = self._held_batches(source)
            topic_id = checkpoints.read_topic_id(self._disk, source)
        except FileNotFoundError:
            return
        except checkpoints.DamagedCheckpoint:
            topic_id = None
        flushed_end = self._ends.of(partition, topic_id, held_batches=held_batches)
        copied = self._copying.copy(source, target, flushed_end)
        if copied is None:
            self._remove_log(partition)
            return
        self._copied[partition] = (topic_id, copied)

    def finish(self, topics: Mapping[str, UUID], began_ms: int, ended_ms: int) -> Manifest:
        """The tree has been copied, and has these topics: leave out logs of others, and give the backup its name.

        Raises `StorageError`, `OSError`.
        """
        for partition, (topic_id, _) in list(self._copied.items()):
            if topics.get(partition.topic) is None or topic_id not in (None, topics[partition.topic]):
                self._remove_log(partition)
        logs = self._logs(topics)
        files = [file for _, copied in self._copied.values() for file in copied.files]
        files += [self._file(TREE_FILE), *self._write_records(logs)]
        for partition in self._copied:
            self._disk.sync_directory(f"{self._unfinished.path}/{partition}")
        manifest = Manifest(self._identity, began_ms, ended_ms, sorted(files), [logs[each] for each in sorted(logs)])
        self._unfinished.publish(manifest)
        return manifest

    def abandon(self) -> None:
        """Remove the files written so far; the next backup of this name removes the rest."""
        self._unfinished.abandon()

    def _check_source(self) -> None:
        disk, path = self._disk, self._data_dir
        if not disk.exists(path) or directory_identity.owner_of(disk, path) is not Owner.OTTLA:
            raise ForeignDirectory(
                f"{path} is not a data directory of Ottla", hint="name the broker's data directory: --data-dir"
            )
        if directory_tree.shared_home(disk, path) == directory_tree.OF_PROCESSES:
            raise ForeignDirectory(
                f"{path} belongs to one of the brokers of `ottla serve --processes`, and a backup has the logs of one",
                hint=f"{directory_tree.how_to_own(disk, path)}; or copy topics and groups with `ottla mirror`",
            )
        if directory_tree.is_shared(disk, path):
            raise ForeignDirectory(
                f"{path} is one of a cluster, whose topics and settings are in ZooKeeper",
                hint="a cluster's copies are its replicas; `ottla mirror` copies topics and groups to another cluster",
            )
        found = checkpoints.read_meta_properties(disk, path) or {}
        # A restored directory is another disk, and nothing of it was reported to a cluster.
        self._identity = {name: text for name, text in found.items() if name not in (DIRECTORY_ID, KEPT_FROM)}

    def _check_target(self) -> None:
        if self._disk.exists(self._target):
            raise StorageError(
                f"{self._target} is there already", hint="each backup is a new directory: give it another name"
            )
        if f"{self._target}/".startswith(f"{self._data_dir}/"):
            raise StorageError(
                f"{self._target} is inside the data directory", hint="put the backup elsewhere, best on another disk"
            )

    def _check_room(self, parent: str) -> None:
        needed = ROOM_LEFT_BYTES + sum(self._bytes_of(partition) for partition in self.partitions())
        free = self._disk.free_bytes(parent)
        if free < needed:
            raise DiskFull(
                f"the backup needs about {needed} bytes in {parent}, and {free} are free",
                hint="make room, name a directory on another disk, or --link the segments on the same file system",
            )

    def _bytes_of(self, partition: TopicPartition) -> int:
        """Its segments and their indexes; files removed meanwhile count as empty."""
        path, sum_bytes = f"{self._data_dir}/{partition}", 0
        with contextlib.suppress(FileNotFoundError):
            names = self._disk.list_directory(path)
            linked = {segment_file_name(base) for base in base_offsets_in(names)[:-1]} if self._links else set()
            for name in names:
                if name.endswith(SEGMENT_SUFFIXES) and name not in linked:
                    with contextlib.suppress(FileNotFoundError):
                        sum_bytes += self._disk.file_size_bytes(f"{path}/{name}")
        return sum_bytes

    def _held_batches(self, source: str) -> bool:
        try:
            return holds_records(self._disk, source)
        except FileNotFoundError:
            # A segment that was removed just now was not empty.
            return self._disk.exists(source)

    def _remove_log(self, partition: TopicPartition) -> None:
        self._copied.pop(partition, None)
        path = f"{self._unfinished.path}/{partition}"
        if self._disk.exists(path):
            remove_tree(self._disk, path)

    def _logs(self, topics: Mapping[str, UUID]) -> dict[TopicPartition, BackupLog]:
        """What was copied, and what should have been there: the restored broker refuses it as this one does."""
        # Read after the logs: a segment is deleted only after the start that follows it is durable.
        starts = LogStarts(self._disk, self._data_dir)
        logs = {
            partition: _log_of(partition, topic_id, copied, starts.start_of(partition))
            for partition, (topic_id, copied) in self._copied.items()
        }
        for gone in self._ends.gone(topics, self._copied):
            partition, start = gone.topic_partition, starts.start_of(gone.topic_partition) or 0
            topic_id = uuid_to_text(gone.topic_id)
            logs[partition] = BackupLog(str(partition), topic_id, start, gone.flushed_end, gone.problem)
        return logs

    def _write_records(self, logs: Mapping[TopicPartition, BackupLog]) -> list[BackupFile]:
        """What a broker's directory records of its logs, for these; as after a clean stop, since all is synced."""
        disk, path = self._disk, self._unfinished.path
        checkpoints.write_log_starts(disk, path, {each: log.start for each, log in logs.items() if log.start})
        unproven = {each for each, (_, copied) in self._copied.items() if not copied.is_proven}
        ends = {each: log.end for each, log in logs.items() if each not in unproven}
        checkpoints.write_recovery_points(disk, path, ends)
        flushed_ends = FlushedEnds.open(disk, path)
        try:
            flushed_ends.add(
                (uuid_from_text(topic_id), each.partition, end)
                for each, end in ends.items()
                if (topic_id := logs[each].topic_id) is not None
            )
            flushed_ends.sync()
        finally:
            flushed_ends.close()
        names = [checkpoints.LOG_START_FILE, checkpoints.RECOVERY_POINT_FILE, FLUSHED_ENDS_FILE]
        if not any(log.problem for log in logs.values()):
            checkpoints.write_clean_shutdown_mark(disk, path)
            names.append(checkpoints.CLEAN_SHUTDOWN_FILE)
        return [self._file(name) for name in names]

    def _file(self, name: str) -> BackupFile:
        file = self._disk.open(f"{self._unfinished.path}/{name}", read_only=True)
        try:
            size_bytes = file.size_bytes()
            return BackupFile(name, size_bytes, file_crc(file, size_bytes))
        finally:
            file.close()


def _log_of(
    partition: TopicPartition, topic_id: UUID | None, copied: CopiedLog, recorded_start: int | None
) -> BackupLog:
    """`recorded_start` is None where it is unknown: then the log starts with its first segment."""
    start, problem = recorded_start, copied.problem
    if start is None:
        start = copied.first_offset
    elif start < copied.first_offset:
        problem = problem or f"no file holds its offsets {start} to {copied.first_offset - 1}"
    else:
        # It may have advanced since.
        start = min(start, copied.end)
    return BackupLog(str(partition), None if topic_id is None else uuid_to_text(topic_id), start, copied.end, problem)


def _turn_of(topic: str) -> int:
    if topic in _PROGRESS_TOPICS:
        return 0
    return 2 if topic == SCHEMAS_TOPIC else 1


_KEPT: Final = frozenset({"lost+found", LOCK_FILE})


def restore(disk: Disk, backup: str, data_dir: str, lock: DirectoryLock) -> Manifest:
    """Copy the backup into `data_dir`, new or empty, whose parent exists; each file is held against its checksum.

    Raises `StorageError`: `BackupDamaged`, `DirectoryLocked`, `DiskFull`; and `OSError`.  After that, and after a
    crash, no broker starts on `data_dir`, and it may be restored into again.
    """
    manifest = read_manifest(disk, backup)
    parent = data_dir.rpartition("/")[0] or "/"
    if not disk.exists(parent):
        raise StorageError(f"{parent} does not exist", hint="make the directory above the data directory first")
    if data_dir.startswith(f"{backup}/"):
        raise StorageError(f"{data_dir} is inside the backup", hint="restore into a directory elsewhere")
    is_new = not disk.exists(data_dir)
    if not is_new:
        _check_empty(disk, data_dir)
    if not disk.exists(f"{data_dir}/{RESTORING_FILE}"):
        # Nothing is written where it would not fit.
        _check_room(disk, parent if is_new else data_dir, manifest)
    disk.make_directory(data_dir)
    lock.acquire(data_dir)
    try:
        # Once more, now that the lock excludes others: another restore may have ended.
        _check_empty(disk, data_dir)
        _empty(disk, data_dir)
        _check_room(disk, data_dir, manifest)
        _fill(disk, backup, data_dir, manifest)
        disk.sync_directory(parent)
    finally:
        disk.release_directory(data_dir)
        lock.release()
    return manifest


def _check_empty(disk: Disk, data_dir: str) -> None:
    if not disk.is_directory(data_dir):
        raise StorageError(f"{data_dir} is not a directory", hint="name a new --data-dir, or an empty one")
    names = [name for name in disk.list_directory(data_dir) if name not in _KEPT]
    if names and RESTORING_FILE not in names:
        raise StorageError(
            f"{data_dir} is not empty: it holds {names[0]}",
            hint="a backup is restored into a new directory; move the former one away, or name another --data-dir",
        )


def _check_room(disk: Disk, path: str, manifest: Manifest) -> None:
    free = disk.free_bytes(path)
    if free < manifest.size_bytes + ROOM_LEFT_BYTES:
        raise DiskFull(
            f"the backup has {manifest.size_bytes} bytes, a broker needs {ROOM_LEFT_BYTES} beside them, "
            f"and {free} are free in {path}",
            hint="make room, or name a --data-dir on another disk",
        )


def _fill(disk: Disk, backup: str, data_dir: str, manifest: Manifest) -> None:
    for file in manifest.files:
        directory, slash, _ = file.path.rpartition("/")
        if slash:
            disk.make_directory(f"{data_dir}/{directory}")
        _copy(disk, f"{backup}/{file.path}", f"{data_dir}/{file.path}", file)
    for name in sorted({file.path.rpartition("/")[0] for file in manifest.files} - {""}):
        disk.sync_directory(f"{data_dir}/{name}")
    disk.sync_file_system(data_dir)
    disk.sync_directory(data_dir)
    checkpoints.write_meta_properties(disk, data_dir, manifest.identity)
    disk.remove(f"{data_dir}/{RESTORING_FILE}")
    disk.sync_directory(data_dir)


def _empty(disk: Disk, data_dir: str) -> None:
    """Mark the directory, and remove what an interrupted restore left in it."""
    disk.hold_directory(data_dir)
    disk.open(f"{data_dir}/{RESTORING_FILE}", create=True).close()
    disk.sync_directory(data_dir)
    for name in disk.list_directory(data_dir):
        path = f"{data_dir}/{name}"
        if name in _KEPT or name == RESTORING_FILE:
            continue
        if disk.is_directory(path):
            remove_tree(disk, path)
        else:
            disk.remove(path)


def _copy(disk: Disk, source_path: str, target_path: str, wanted: BackupFile) -> None:
    if not disk.exists(source_path):
        raise BackupDamaged(f"{source_path} is missing")
    source = disk.open(source_path, read_only=True)
    try:
        if source.size_bytes() != wanted.size_bytes:
            raise BackupDamaged(f"{source_path} has {source.size_bytes()} bytes, {wanted.size_bytes} were backed up")
        target = disk.open(target_path, create=True)
        try:
            done = crc = 0
            for chunk in chunks(source, wanted.size_bytes):
                write_fully(target, done, chunk)
                crc = crc32c(chunk, crc)
                done += len(chunk)
        finally:
            target.close()
    finally:
        source.close()
    if crc != wanted.crc:
        raise BackupDamaged(f"{source_path} has other bytes than were backed up")
