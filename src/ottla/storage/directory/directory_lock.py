"""One broker for each log directory: an advisory lock on its `.lock` file, released with the process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final, Protocol

from ottla.storage.errors import DirectoryLocked

LOCK_FILE: Final = ".lock"


class DirectoryLock(Protocol):
    """Keeps every other broker out of a directory until it is released."""

    def acquire(self, directory: str) -> None:
        """Raises `DirectoryLocked` at once when another process has it."""
        ...

    def release(self) -> None: ...


class FileLock:
    """`flock` on `<directory>/.lock`; the file holds the owner's process id, for people."""

    def __init__(self) -> None:
        self._fd = -1

    def acquire(self, directory: str) -> None:
        assert self._fd < 0
        path = f"{directory}/{LOCK_FILE}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            by = f" by process {owner}" if owner else ""
            raise DirectoryLocked(f"{directory} is in use{by}") from error
        with contextlib.suppress(OSError):  # a full disk must not prevent a start: the id only informs
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class NoLock:
    """For directories that no other process can see: the in-memory disk of tests."""

    def acquire(self, directory: str) -> None:
        pass

    def release(self) -> None:
        pass
