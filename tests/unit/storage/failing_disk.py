"""The real disk, with errors where the test wants them."""

from __future__ import annotations

import os

from typing_extensions import Buffer

from tests.unit.storage.quick_disk import QuickDisk, QuickFile


class FailingFile(QuickFile):
    """Asks its disk before each call that may fail."""

    __slots__ = ("_failing",)

    def __init__(self, fd: int, path: str, disk: FailingDisk) -> None:
        super().__init__(fd, path, disk)
        self._failing = disk

    def write_at(self, position: int, data: Buffer) -> int:
        taken = self._failing.write_bytes(self.path, memoryview(data).nbytes)
        return super().write_at(position, memoryview(data)[:taken])

    def truncate(self, length_bytes: int) -> None:
        self._failing.check("truncate", self.path)
        super().truncate(length_bytes)

    def sync_data(self) -> None:
        self._failing.check_sync("sync", self.path)
        super().sync_data()


class FailingDisk(QuickDisk):
    """`fail(what, suffix, errno)` makes calls on paths with that suffix fail until `heal`.

    `what` is write, truncate, sync, sync_directory or sync_file_system.
    """

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[tuple[str, str], int] = {}
        self._room_bytes: int | None = None

    def fail(self, what: str, suffix: str, error_number: int) -> None:
        self._failures[what, suffix] = error_number

    def fill_up_after(self, room_bytes: int) -> None:
        """Log files take so many more bytes; a write that does not fit is cut short, the next one fails."""
        self._room_bytes = room_bytes

    def heal(self) -> None:
        self._failures.clear()
        self._room_bytes = None

    def check(self, what: str, path: str) -> None:
        for (failing, suffix), error_number in self._failures.items():
            if failing == what and path.endswith(suffix):
                raise OSError(error_number, os.strerror(error_number), path)

    def check_sync(self, what: str, path: str) -> None:
        self.sync(lambda _: self.check(what, path), -1)

    def write_bytes(self, path: str, size_bytes: int) -> int:
        self.check("write", path)
        if self._room_bytes is None or not path.endswith(".log"):
            return size_bytes
        if self._room_bytes == 0:
            raise OSError(28, os.strerror(28), path)
        taken = min(size_bytes, self._room_bytes)
        self._room_bytes -= taken
        return taken

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FailingFile:
        self.check("open", path)
        opened = super().open(path, create=create, read_only=read_only)
        fd = os.dup(opened._fd)
        opened.close()
        return FailingFile(fd, path, self)

    def sync_directory(self, path: str) -> None:
        self.check_sync("sync_directory", path)
        super().sync_directory(path)

    def sync_file_system(self, path: str) -> None:
        self.check_sync("sync_file_system", path)
        super().sync_file_system(path)
