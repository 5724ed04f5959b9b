"""The real disk without its syncs: no unit test here takes the power away, and a busy disk would slow them all."""

from __future__ import annotations

import os

from ottla.runtime.posix_disk import PosixDisk, PosixFile


class QuickFile(PosixFile):
    __slots__ = ()

    def sync_data(self) -> None:
        """Nothing: the page cache is enough for a test."""


class QuickDisk(PosixDisk):
    """Files are real, so that tests can damage them."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> QuickFile:
        opened = super().open(path, create=create, read_only=read_only)
        fd = os.dup(opened._fd)
        opened.close()
        return QuickFile(fd, path, self)

    def hold_directory(self, path: str) -> None:
        """Nothing: no sync here uses the descriptor."""

    def sync_directory(self, path: str) -> None:
        if not self.is_directory(path):
            raise FileNotFoundError(2, os.strerror(2), path)

    def sync_file_system(self, path: str) -> None:
        if not self.is_directory(path):
            raise FileNotFoundError(2, os.strerror(2), path)
