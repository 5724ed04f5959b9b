"""A backup of a data directory, beside its broker or without: `begin`, `copy_logs`, the tree by its owner, `finish`.

All is written below `TARGET.unfinished`, made durable, and then gets its name: what has the name is whole.

Nothing stops the broker, so logs are copied at different moments, in an order that keeps what refers to others true:
logs that tell how far something was read (committed offsets) first, then all others, then schemas, which records name
by their ids; the tree last, which has every topic that was copied.  Logs of topics that it does not have any more were
deleted meanwhile, and are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.model.own_names import MIRROR_PROGRESS_TOPIC, REPLAY_CLAIMS_TOPIC
from ottla.model.uuid_text import uuid_to_text
from ottla.observe.events import fields
from ottla.runtime.disk import Disk, replace_file
from ottla.storage import checkpoints
from ottla.storage.backup.log_copy import CopiedLog, LogCopying
from ottla.storage.backup.manifest import (
    BackupFile,
    BackupLog,
    Manifest,
    encode_manifest,
    file_crc,
)
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_identity import BACKUP_MANIFEST_FILE, DIRECTORY_ID, Owner
from ottla.storage.directory.directory_lock import LOCK_FILE, DirectoryLock
from ottla.storage.directory.directory_tree import TREE_FILE
from ottla.storage.directory.flushed_ends import FlushedEnds, LogKey, read_flushed_ends
from ottla.storage.directory.housekeeping import remove_tree
from ottla.storage.directory.kept_logs import KEPT_FROM
from ottla.storage.directory.present_logs import is_no_log
from ottla.storage.errors import DirectoryLocked, DiskFull, ForeignDirectory, StorageError
from ottla.storage.log_files import FLUSHED_ENDS_FILE, base_offsets_in, segment_file_name, topic_partition_of

UNFINISHED_SUFFIX: Final = ".unfinished"
SCHEMAS_TOPIC: Final = "_schemas"
_PROGRESS_TOPICS: Final = frozenset({OFFSETS_TOPIC, MIRROR_PROGRESS_TOPIC, REPLAY_CLAIMS_TOPIC})
_ROOM_LEFT_BYTES: Final = 64 << 20

_log = logging.getLogger(__name__)


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
        self.unfinished = target + UNFINISHED_SUFFIX
        self._disk = disk
        self._data_dir = data_dir
        self._target = target
        self._lock = lock
        self._links = links
        self._copying = LogCopying(disk, links=links, pause=pause)
        self._identity: dict[str, str] = {}
        self._ends: Mapping[LogKey, int] = {}
        self._copied: dict[TopicPartition, tuple[UUID | None, CopiedLog]] = {}
        self._starts: dict[TopicPartition, int] = {}

    @property
    def tree_path(self) -> str:
        """Where the copy of the tree belongs, after `copy_logs`."""
        return f"{self.unfinished}/{TREE_FILE}"

    def begin(self) -> None:
        """Check both directories, and remove what an interrupted backup left.

        Raises `StorageError`: `ForeignDirectory`, `DiskFull`, and others; and `OSError`.
        """
        self._check_source()
        self._check_target()
        self._ends = read_flushed_ends(self._disk, self._data_dir)
        parent = self._target.rpartition("/")[0] or "/"
        if not self._disk.exists(parent):
            raise StorageError(f"{parent} does not exist", hint="make the directory above the backup first")
        self._check_room(parent)
        self._disk.make_directory(self.unfinished)
        try:
            self._lock.acquire(self.unfinished)
        except DirectoryLocked as error:
            raise StorageError(
                f"another backup writes to {self._target}: {error}", hint="wait for it, or name another directory"
            ) from None
        self._remove_content()
        # Before anything is written, so that the sync of `finish` reports every lost write-back.
        self._disk.hold_directory(self.unfinished)

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
        source, target = f"{self._data_dir}/{partition}", f"{self.unfinished}/{partition}"
        try:
            if is_no_log(self._disk, source):
                return
            topic_id = checkpoints.read_topic_id(self._disk, source)
        except FileNotFoundError:
            return
        except checkpoints.DamagedCheckpoint:
            topic_id = None
        flushed_end = 0 if topic_id is None else self._ends.get((topic_id, partition.partition), 0)
        copied = self._copying.copy(source, target, flushed_end)
        if copied is None:
            self._remove_log(partition)
            return
        self._copied[partition] = (topic_id, copied)

    def finish(self, topics: Mapping[str, UUID], began_ms: int, ended_ms: int) -> Manifest:
        """The tree has been copied, and has these topics: leave out logs of others, and give the backup its name.

        Raises `StorageError`, `OSError`.
        """
        disk = self._disk
        for partition, (topic_id, _) in list(self._copied.items()):
            if topics.get(partition.topic) is None or topic_id not in (None, topics[partition.topic]):
                self._remove_log(partition)
        files = [file for _, copied in self._copied.values() for file in copied.files]
        files += [self._file(TREE_FILE), *self._write_records()]
        logs = [
            BackupLog(
                str(partition),
                None if topic_id is None else uuid_to_text(topic_id),
                self._starts[partition],
                copied.end,
                copied.problem,
            )
            for partition, (topic_id, copied) in sorted(self._copied.items())
        ]
        manifest = Manifest(self._identity, began_ms, ended_ms, sorted(files), logs)
        self._remove_lock_file()
        for partition in self._copied:
            disk.sync_directory(f"{self.unfinished}/{partition}")
        disk.sync_file_system(self.unfinished)
        replace_file(disk, f"{self.unfinished}/{BACKUP_MANIFEST_FILE}", encode_manifest(manifest))
        disk.rename(self.unfinished, self._target)
        disk.sync_directory(self._target.rpartition("/")[0] or "/")
        self._close()
        return manifest

    def abandon(self) -> None:
        """Remove what was written so far; what stays, the next backup of this name removes."""
        try:
            self._remove_content()
            self._remove_lock_file()
            self._disk.remove_directory(self.unfinished)
        except OSError as error:
            _log.warning("backup.not_removed", extra=fields(path=self.unfinished, error=str(error)))
        self._close()

    def _close(self) -> None:
        self._disk.release_directory(self.unfinished)
        self._lock.release()

    def _remove_lock_file(self) -> None:
        """It stays locked: whoever finds the name has another file."""
        if self._disk.exists(f"{self.unfinished}/{LOCK_FILE}"):
            self._disk.remove(f"{self.unfinished}/{LOCK_FILE}")

    # --- before ---------------------------------------------------------------------------------------------

    def _check_source(self) -> None:
        disk, path = self._disk, self._data_dir
        if not disk.exists(path) or directory_identity.owner_of(disk, path) is not Owner.OTTLA:
            raise ForeignDirectory(
                f"{path} is not a data directory of Ottla", hint="name the broker's data directory: --data-dir"
            )
        if directory_tree.is_shared(disk, path):
            raise ForeignDirectory(
                f"{path} is one of a cluster, whose topics and settings are in ZooKeeper",
                hint="a cluster's copies are its replicas; `ottla mirror` copies topics and groups to another cluster",
            )
        found = checkpoints.read_meta_properties(disk, path) or {}
        # A restored directory is another disk, and no cluster has been told anything of it.
        self._identity = {name: text for name, text in found.items() if name not in (DIRECTORY_ID, KEPT_FROM)}

    def _check_target(self) -> None:
        if self._disk.exists(self._target):
            raise StorageError(
                f"{self._target} is there already", hint="each backup is a new directory: give it a name of its own"
            )
        if f"{self._target}/".startswith(f"{self._data_dir}/"):
            raise StorageError(
                f"{self._target} is inside the data directory", hint="put the backup elsewhere, best on another disk"
            )

    def _check_room(self, parent: str) -> None:
        needed = _ROOM_LEFT_BYTES + sum(self._bytes_of(partition) for partition in self.partitions())
        free = self._disk.free_bytes(parent)
        if free < needed:
            raise DiskFull(
                f"the backup needs about {needed} bytes in {parent}, and {free} are free",
                hint="make room, name a directory on another disk, or --link the segments on the same file system",
            )

    def _bytes_of(self, partition: TopicPartition) -> int:
        path = f"{self._data_dir}/{partition}"
        try:
            bases = base_offsets_in(self._disk.list_directory(path))
            copied = bases[-1:] if self._links else bases
            return sum(self._disk.file_size_bytes(f"{path}/{segment_file_name(base)}") for base in copied)
        except FileNotFoundError:
            return 0

    def _remove_content(self) -> None:
        for name in self._disk.list_directory(self.unfinished):
            path = f"{self.unfinished}/{name}"
            if self._disk.is_directory(path):
                remove_tree(self._disk, path)
            elif name != LOCK_FILE:
                self._disk.remove(path)

    def _remove_log(self, partition: TopicPartition) -> None:
        self._copied.pop(partition, None)
        path = f"{self.unfinished}/{partition}"
        if self._disk.exists(path):
            remove_tree(self._disk, path)

    # --- after ----------------------------------------------------------------------------------------------

    def _write_records(self) -> list[BackupFile]:
        """What a broker's directory records of its logs, for these; as after a clean stop, since all is synced."""
        disk, path = self._disk, self.unfinished
        # Read after the logs: a segment goes only after the start behind it is durable.
        recorded = checkpoints.read_log_starts(disk, self._data_dir) or {}
        self._starts = {
            partition: min(max(recorded.get(partition, 0), copied.first_offset), copied.end)
            for partition, (_, copied) in self._copied.items()
        }
        checkpoints.write_log_starts(disk, path, {each: start for each, start in self._starts.items() if start})
        ends = {partition: copied.end for partition, (_, copied) in self._copied.items()}
        checkpoints.write_recovery_points(disk, path, ends)
        flushed_ends = FlushedEnds.open(disk, path)
        try:
            known = [(topic_id, each.partition, ends[each]) for each, (topic_id, _) in self._copied.items() if topic_id]
            flushed_ends.add(known)
            flushed_ends.sync()
        finally:
            flushed_ends.close()
        names = [checkpoints.LOG_START_FILE, checkpoints.RECOVERY_POINT_FILE, FLUSHED_ENDS_FILE]
        if not any(copied.problem for _, copied in self._copied.values()):
            checkpoints.write_clean_shutdown_mark(disk, path)
            names.append(checkpoints.CLEAN_SHUTDOWN_FILE)
        return [self._file(name) for name in names]

    def _file(self, name: str) -> BackupFile:
        file = self._disk.open(f"{self.unfinished}/{name}", read_only=True)
        try:
            size_bytes = file.size_bytes()
            return BackupFile(name, size_bytes, file_crc(file, size_bytes))
        finally:
            file.close()


def _turn_of(topic: str) -> int:
    if topic in _PROGRESS_TOPICS:
        return 0
    return 2 if topic == SCHEMAS_TOPIC else 1
