"""`reserve.bin`: blocks that belong to the data directory, so that nobody can fill the disk to its last byte."""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from ottla.runtime.disk import Disk

RESERVE_FILE: Final = "reserve.bin"


class Reserve:
    """The file and its size.  `give_back` may be called from any thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """A file that is there counts with its size.  Raises `OSError`."""
        self._disk = disk
        self._path = f"{directory}/{RESERVE_FILE}"
        self._lock = threading.Lock()
        self.held_bytes = disk.file_size_bytes(self._path) if disk.exists(self._path) else 0

    def make(self, size_bytes: int) -> None:
        """Allocate it, with this size.  Raises `OSError`: then there is none."""
        with self._lock:
            try:
                if not size_bytes:
                    self._remove()
                    return
                file = self._disk.open(self._path, create=True)
                try:
                    if file.size_bytes() > size_bytes:
                        file.truncate(size_bytes)
                    # Also where the size is right: a copy of the directory may have made holes of it.
                    file.allocate(size_bytes)
                finally:
                    file.close()
                self.held_bytes = size_bytes
            except OSError:
                with contextlib.suppress(OSError):
                    self._remove()
                raise

    def give_back(self) -> bool:
        """Free its blocks; False when there were none.  Nothing is synced: after a crash it may be there again."""
        with self._lock:
            had_any = self.held_bytes > 0
            try:
                self._remove()
            except OSError:
                return False
            return had_any

    def _remove(self) -> None:
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
        self.held_bytes = 0
