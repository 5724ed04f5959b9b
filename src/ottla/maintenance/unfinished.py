"""The directory that a backup is written to, until it is whole and gets its name."""

from __future__ import annotations

import logging
from typing import Final

from ottla.maintenance.manifest import Manifest, encode_manifest
from ottla.observe.events import fields
from ottla.runtime.disk import Disk, replace_file
from ottla.storage.directory.directory_identity import BACKUP_MANIFEST_FILE
from ottla.storage.directory.directory_lock import LOCK_FILE, DirectoryLock
from ottla.storage.directory.housekeeping import remove_tree
from ottla.storage.errors import DirectoryLocked, StorageError

UNFINISHED_SUFFIX: Final = ".unfinished"
# In it from its first file on: what has neither this nor the manifest is somebody else's.
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

        Raises `StorageError`: another backup is writing to it, or it is nobody's; and `OSError`.
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
        """Remove what was written so far; what stays, the next backup of this name removes."""
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
