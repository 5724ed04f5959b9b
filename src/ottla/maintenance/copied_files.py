"""The files of one partition's directory that a backup has: copied or linked, as they are on the target's disk."""

from __future__ import annotations

import errno
from typing import Final

from ottla.maintenance.manifest import BackupFile, file_crc
from ottla.maintenance.readable_bytes import ReadableBytes
from ottla.model.counted import counted
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, File, read_file, write_fully
from ottla.storage.errors import StorageError

_NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


class CopiedFiles:
    """From the directory `source` into the directory `target`; `noted` is what the manifest says of them.

    `unreadable` names the first file of which the source's disk could not read all.
    """

    def __init__(self, disk: Disk, source: str, target: str) -> None:
        self.noted: Final[list[BackupFile]] = []
        self.unreadable: str | None = None
        self._disk = disk
        self._source = source
        self._target = target

    def link(self, name: str, file: File) -> bool:
        """Give the file of this name a second one; False when it is not the pinned one any more."""
        try:
            self._disk.link(f"{self._source}/{name}", f"{self._target}/{name}")
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise StorageError(
                f"{self._source}/{name} cannot be linked into {self._target}: {error.strerror}",
                hint="links need both directories on one file system: leave --link out",
            ) from error
        linked = self._disk.open(f"{self._target}/{name}", read_only=True)
        try:
            is_same = linked.size_bytes() == file.size_bytes()
        finally:
            linked.close()
        if not is_same:
            # Compaction put another one in its place since it was opened.
            self._disk.remove(f"{self._target}/{name}")
        return is_same

    def content(self, name: str) -> bytes | None:
        """That of a small file of the source; None when it is not there."""
        try:
            return read_file(self._disk, f"{self._source}/{name}")
        except FileNotFoundError:
            return None

    def copy(self, name: str, source: File) -> None:
        """Copy all of a file that nobody writes to."""
        size_bytes = source.size_bytes()
        if self.copy_there(name, source, size_bytes) != size_bytes:
            raise OSError(errno.EIO, "the file ends too early", f"{self._source}/{name}")

    def copy_there(self, name: str, source: File, size_bytes: int) -> int:
        """Copy so many bytes of a file that may lose some meanwhile; returns how many there were."""
        target = self._disk.open(f"{self._target}/{name}", create=True)
        try:
            done, readable = 0, ReadableBytes(source)
            for chunk in readable.chunks(size_bytes):
                write_fully(target, done, chunk)
                done += len(chunk)
        finally:
            target.close()
        if readable.lost_bytes:
            lost = counted(readable.lost_bytes, "byte")
            self.unreadable = self.unreadable or f"{self._source}/{name}: {lost} cannot be read, zeros stand for them"
        return done

    def truncate(self, name: str, size_bytes: int) -> None:
        file = self._disk.open(f"{self._target}/{name}")
        try:
            if file.size_bytes() != size_bytes:
                file.truncate(size_bytes)
        finally:
            file.close()

    def note(self, name: str) -> None:
        """What is there counts: a link may be to a segment that compaction put in place since."""
        file = self._disk.open(f"{self._target}/{name}", read_only=True)
        try:
            size_bytes = file.size_bytes()
            self._add(name, size_bytes, file_crc(file, size_bytes))
        finally:
            file.close()

    def write(self, name: str, content: bytes) -> None:
        file = self._disk.open(f"{self._target}/{name}", create=True)
        try:
            write_fully(file, 0, content)
        finally:
            file.close()
        self._add(name, len(content), crc32c(content))

    def _add(self, name: str, size_bytes: int, crc: int) -> None:
        directory = self._target.rpartition("/")[2]
        self.noted.append(BackupFile(f"{directory}/{name}", size_bytes, crc))
