"""The real disk: thin calls of the operating system."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.runtime.disk import SyncReport

if TYPE_CHECKING:
    from typing_extensions import Buffer

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

_fdatasync = getattr(os, "fdatasync", os.fsync)
_HAS_FILE_SENDFILE: Final = sys.platform.startswith("linux")
_SEND_COPY_BYTES: Final = 256 * 1024
_ZEROS_BYTES: Final = 1024 * 1024


class PosixFile:
    """An open descriptor."""

    __slots__ = ("_disk", "_fd", "_path")

    def __init__(self, fd: int, path: str, disk: PosixDisk) -> None:
        self._fd = fd
        self._path = path
        self._disk = disk

    @property
    def path(self) -> str:
        return self._path

    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def write_at(self, position: int, data: Buffer) -> int:
        return os.pwrite(self._fd, data, position)

    def read_at(self, position: int, length_bytes: int) -> bytes:
        return os.pread(self._fd, length_bytes, position)

    def truncate(self, length_bytes: int) -> None:
        os.ftruncate(self._fd, length_bytes)

    def allocate(self, length_bytes: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, length_bytes)
        else:
            # A file that is only made longer, as on macOS, has no blocks.
            while (end := self.size_bytes()) < length_bytes:
                os.pwrite(self._fd, bytes(min(length_bytes - end, _ZEROS_BYTES)), end)

    def sync_data(self) -> None:
        self._disk.sync(_fdatasync, self._fd)

    def send_to(self, peer: socket.socket, position: int, length_bytes: int) -> int:
        if _HAS_FILE_SENDFILE:
            return os.sendfile(peer.fileno(), self._fd, position, length_bytes)
        return peer.send(os.pread(self._fd, min(length_bytes, _SEND_COPY_BYTES), position))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # CPython counts references: the last one that is dropped closes the file at once.
    __del__ = close


class PosixDisk:
    """The file system of this machine, and the directories that it holds open."""

    def __init__(self) -> None:
        self._report: SyncReport | None = None
        self._held: dict[str, int] = {}
        # Held until a failure is reported: Linux reports it once for a descriptor, so the next syncfs would succeed.
        self._syncfs_lock = threading.RLock()

    @property
    def is_synced(self) -> bool:
        return True

    def sync(self, call: Callable[[int], None], fd: int) -> None:
        """Call a sync of the operating system, and report its error before raising it."""
        try:
            call(fd)
        except OSError as error:
            if self._report is not None:
                self._report(error)
            raise

    def report_failed_syncs(self, report: SyncReport | None) -> SyncReport | None:
        former, self._report = self._report, report
        return former

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> PosixFile:
        return PosixFile(self._open_fd(path, create=create, read_only=read_only), path, self)

    def _open_fd(self, path: str, *, create: bool, read_only: bool) -> int:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        # O_NOFOLLOW: a link planted in the data directory must not redirect a write out of it.
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        return os.open(path, flags, FILE_MODE)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def file_size_bytes(self, path: str) -> int:
        return os.stat(path).st_size

    def list_directory(self, path: str) -> Sequence[str]:
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, DIRECTORY_MODE)

    def close_to_others(self, path: str) -> None:
        """Give a directory the mode of those that we make; one that another user owns stays as it is."""
        with contextlib.suppress(PermissionError):
            os.chmod(path, DIRECTORY_MODE)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def hold_directory(self, path: str) -> None:
        if path not in self._held:
            self._held[path] = _open_directory(path)

    def release_directory(self, path: str) -> None:
        fd = self._held.pop(path, None)
        if fd is not None:
            os.close(fd)

    def sync_directory(self, path: str) -> None:
        self._sync_through(os.fsync, path)

    def sync_file_system(self, path: str) -> None:
        with self._syncfs_lock:
            self._sync_through(_syncfs, path)

    def _sync_through(self, call: Callable[[int], None], path: str) -> None:
        held = self._held.get(path)
        if held is not None:
            self.sync(call, held)
            return
        fd = _open_directory(path)
        try:
            self.sync(call, fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize


def _open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _load_syncfs() -> object | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return getattr(library, "syncfs", None)


_SYNCFS: Final = _load_syncfs()


def _syncfs(fd: int) -> None:
    if _SYNCFS is None:
        os.sync()
        return
    assert callable(_SYNCFS)
    # ctypes releases the GIL for the call, so the event loop is not blocked by a long flush.
    if _SYNCFS(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class VolumeSize(NamedTuple):
    """`usable_bytes` is what this process may still write."""

    total_bytes: int
    usable_bytes: int


def volume_size(path: str) -> VolumeSize:
    """Raises `OSError` when the path cannot be reached."""
    status = os.statvfs(path)
    return VolumeSize(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
