"""A backup becomes a data directory: a new or empty one, which no broker takes before it is whole.

`.restoring` is in it from the first file on until `meta.properties`, which makes it a broker's, is durable.
"""

from __future__ import annotations

from typing import Final

from ottla.maintenance.manifest import (
    ROOM_LEFT_BYTES,
    BackupDamaged,
    BackupFile,
    Manifest,
    chunks,
    read_manifest,
)
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, write_fully
from ottla.storage import checkpoints
from ottla.storage.directory.directory_identity import RESTORING_FILE
from ottla.storage.directory.directory_lock import LOCK_FILE, DirectoryLock
from ottla.storage.directory.housekeeping import remove_tree
from ottla.storage.errors import DiskFull, StorageError

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
