"""The machine's disk, which is full, or slow to flush, when a test wants it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from typing_extensions import Buffer

from ottla.runtime.posix_disk import PosixDisk, PosixFile
from ottla.testing.controlled.conditions import Conditions


class LimitedDisk(PosixDisk):
    """Full means that no file grows and none is created; existing bytes can be read, overwritten and removed."""

    def __init__(self, conditions: Conditions) -> None:
        super().__init__()
        self.conditions = conditions

    def require_room(self, path: str) -> None:
        if self.conditions.is_disk_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> LimitedFile:
        if create and not self.exists(path):
            self.require_room(path)
        return LimitedFile(self._open_fd(path, create=create, read_only=read_only), path, self)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self.require_room(path)
        super().make_directory(path)

    def free_bytes(self, path: str) -> int:
        return 0 if self.conditions.is_disk_full else super().free_bytes(path)

    def sync(self, call: Callable[[int], None], fd: int) -> None:
        if self.conditions.flushes_late_ms:
            time.sleep(self.conditions.flushes_late_ms / 1000)
        super().sync(call, fd)


class LimitedFile(PosixFile):
    __slots__ = ("_room",)

    def __init__(self, fd: int, path: str, disk: LimitedDisk) -> None:
        super().__init__(fd, path, disk)
        self._room = disk

    def write_at(self, position: int, data: Buffer) -> int:
        if self._room.conditions.is_disk_full and position + memoryview(data).nbytes > self.size_bytes():
            self._room.require_room(self.path)
        return super().write_at(position, data)

    def truncate(self, length_bytes: int) -> None:
        if self._room.conditions.is_disk_full and length_bytes > self.size_bytes():
            self._room.require_room(self.path)
        super().truncate(length_bytes)

    def allocate(self, length_bytes: int) -> None:
        if self._room.conditions.is_disk_full and length_bytes > self.size_bytes():
            self._room.require_room(self.path)
        super().allocate(length_bytes)
