"""A broker's own disk, which can lose unflushed data: a file system in a file, stopped in the middle of its work.

`cut` acts as a power cut of the disk: XFS stops at once and writes nothing more, neither its journal nor pages, so
data that was not synced is gone at the next mount.  A killed process alone loses none of its writes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.storage.directory.directory_identity import BOOT_NOTE_FILE
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.eventually import eventually

# XFS requires at least 300 MiB.  The file is sparse: only written blocks take space.
SIZE_BYTES: Final = 384 << 20
# FS_IOC_SHUTDOWN of <linux/fs.h>, and its way that flushes nothing.
_SHUTDOWN: Final = 0x8004587D
_NO_LOG_FLUSH: Final = struct.pack("I", 2)
_MARKER: Final = "not-flushed"
_MARKER_BYTES: Final = b"m" * 4096
_FILLER: Final = "filler"
_TRIAL: Final = "trial"


class BrokerDisk:
    """An XFS in a file, mounted at `mount_point`."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self._image = image
        self.mount_point = mount_point

    def make(self) -> None:
        """A fresh, empty one."""
        with self._image.open("wb") as opened:
            opened.truncate(SIZE_BYTES)
        _run("mkfs.xfs", "-q", "-f", str(self._image))
        self.mount_point.mkdir(parents=True, exist_ok=True)
        self._mount()

    def cut(self) -> None:
        """Lose all unflushed data.  The file system answers EIO from now on, until `restart`."""
        (self.mount_point / _MARKER).write_bytes(_MARKER_BYTES)
        root = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(root, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(root)
        if self._error_of_a_write() != errno.EIO:
            raise FaultWithoutEffect(f"{self.mount_point} takes writes after its power cut")

    def restart(self) -> bool:
        """Mount it again, as at the machine's next boot.  No process may have files of it open.

        Returns whether a file that was written before the cut, and not flushed, is gone, as it should be nearly always.
        """
        self.unmount()
        self._mount()
        # The kernel's boot id is unchanged: only the missing note shows the broker that the machine was off.
        (self.mount_point / BOOT_NOTE_FILE).unlink(missing_ok=True)
        marker = self.mount_point / _MARKER
        is_gone = not marker.exists() or marker.read_bytes() != _MARKER_BYTES
        marker.unlink(missing_ok=True)
        return is_gone

    def replace(self) -> None:
        """Another, empty disk in its place."""
        self.unmount()
        self.make()

    def fill(self) -> None:
        """Leave no room.  Until `empty`."""
        filler = os.open(self.mount_point / _FILLER, os.O_WRONLY | os.O_CREAT)
        try:
            piece = SIZE_BYTES
            while piece >= 4096:
                try:
                    os.posix_fallocate(filler, os.fstat(filler).st_size, piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2
        finally:
            os.close(filler)
        if self._error_of_a_write() != errno.ENOSPC:
            raise FaultWithoutEffect(f"{self.mount_point} has room although it is full")

    def empty(self) -> None:
        """Give the room back that `fill` took."""
        (self.mount_point / _FILLER).unlink(missing_ok=True)

    def unmount(self) -> None:
        """A process that ends may hold the file system for a moment longer."""
        eventually(
            lambda: subprocess.run(["umount", self.mount_point], capture_output=True, check=False).returncode == 0
        )

    def copy_to(self, directory: Path) -> None:
        """Copy its content, to find the cause of a failure."""
        with suppress(OSError, shutil.Error):
            shutil.copytree(self.mount_point, directory)

    def _mount(self) -> None:
        _run("mount", "-t", "xfs", "-o", "loop", str(self._image), str(self.mount_point))

    def _error_of_a_write(self) -> int:
        """The errno of a write of some size, 0 for none."""
        path = self.mount_point / _TRIAL
        try:
            path.write_bytes(bytes(1 << 20))
            path.unlink()
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            return error.errno or 0
        return 0


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
