"""Files, as Protocols: the real disk and the in-memory disk of the crash tests are both one.

Nothing here buffers: an `append` that returned is in the operating system (the page cache), and only a
`sync_data` that returned is on the device.  Directory entries (create, rename, remove) need `sync_directory`.
Errors are `OSError`, as the operating system gives them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class File(Protocol):
    """An open file.  Reads and writes are positional: no shared cursor, so readers never disturb the writer."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int: ...

    def write_at(self, position: int, data: Buffer) -> int:
        """Write at `position` and return how many bytes were written, which may be fewer than requested."""
        ...

    def read_at(self, position: int, length_bytes: int) -> bytes:
        """Up to `length_bytes` from `position`; fewer at the end of the file."""
        ...

    def truncate(self, length_bytes: int) -> None: ...

    def allocate(self, length_bytes: int) -> None:
        """Extend the file to this size with its disk space reserved; unwritten bytes are zeros."""
        ...

    def sync_data(self) -> None:
        """fdatasync.  After an error the pages may be lost although a retry succeeds: never retry."""
        ...

    def send_to(self, peer: socket.socket, position: int, length_bytes: int) -> int:
        """Send a run of the file to a non-blocking socket, returning the bytes taken.

        Zero-copy where the platform has it.  Raises `BlockingIOError` when the socket has no room.
        """
        ...

    def close(self) -> None:
        """Close it, which no reader may need: its descriptor's number is given to the next file that is opened.

        A file that others may be reading is dropped instead: it is closed with the last reference to it.
        """
        ...


class FileRun(NamedTuple):
    """A range of an open file, the unit that reads send to a socket without copying it.

    It keeps the file open, also when the log that the file belonged to is gone.
    """

    file: File
    position: int
    length_bytes: int


# Called with the error of a sync.
SyncReport = Callable[[OSError], None]


class Disk(Protocol):
    """A file system.  Paths are strings with `/`, absolute or relative to the process."""

    @property
    def is_synced(self) -> bool:
        """Whether what was synced survives a power loss: not in a user's tests, which end processes only."""
        ...

    def report_failed_syncs(self, report: SyncReport | None) -> SyncReport | None:
        """Call `report` with the error of every sync that fails from now on; returns the former `report`.

        That is of a file, a directory or the file system, in the thread of the sync, before the error is raised there.
        """
        ...

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file for reading and writing; `create` makes it when it is missing (never truncates it)."""
        ...

    def exists(self, path: str) -> bool: ...

    def file_size_bytes(self, path: str) -> int: ...

    def list_directory(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Make one directory; it is no error when it exists already."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` in one step; durable only after `sync_directory` of the parent."""
        ...

    def remove(self, path: str) -> None:
        """Remove one file."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove one empty directory."""
        ...

    def link(self, source: str, target: str) -> None:
        """Hard-link a file."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the directory's entries durable."""
        ...

    def hold_directory(self, path: str) -> None:
        """Keep one descriptor of a directory open: all syncs of it and of its file system use it until it is released.

        Linux reports a lost write-back once to each descriptor that was opened before.  One opened afterwards misses
        it when any other descriptor, also of another process, got the report; and opening one may fail for lack of
        descriptors.
        """
        ...

    def release_directory(self, path: str) -> None:
        """Close the descriptor of `hold_directory`; nothing happens when there is none."""
        ...

    def sync_file_system(self, path: str) -> None:
        """syncfs: make every file of the file system of the directory `path` durable, data and size.

        Only while the directory is held does success mean that nothing was lost before.
        """
        ...

    def free_bytes(self, path: str) -> int: ...


def write_fully(file: File, position: int, data: bytes) -> None:
    """Write all of `data` or raise `OSError`: for small files, where a short write has no meaning."""
    written = 0
    view = memoryview(data)
    while written < len(data):
        taken = file.write_at(position + written, view[written:])
        if taken <= 0:
            raise OSError(28, "the disk took no bytes", file.path)
        written += taken


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """The one way to replace a small file: temporary, sync, rename, sync of the directory.

    A crash at any point leaves the old content or the new, never a mixture.
    """
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        write_fully(file, 0, content)
        file.sync_data()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.rsplit("/", 1)[0] if "/" in path else ".")


def read_file(disk: Disk, path: str) -> bytes:
    """The whole content of a small file."""
    file = disk.open(path, read_only=True)
    try:
        return file.read_at(0, file.size_bytes())
    finally:
        file.close()
