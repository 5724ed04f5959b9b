"""What can be read of a file on a disk that fails in places: zeros stand for the rest, so that positions stay."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

from ottla.maintenance.manifest import CHUNK_BYTES
from ottla.runtime.disk import File

# A disk's sector, and a page of the kernel's cache.
_BLOCK_BYTES: Final = 4096


class ReadableBytes:
    """One reading of a file; `lost_bytes` counts the zeros."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.lost_bytes = 0

    def chunks(self, size_bytes: int) -> Iterator[bytes]:
        """The first bytes; fewer where the file ends earlier.  Raises `OSError` for what is no fault of the disk's."""
        done = 0
        while done < size_bytes:
            length_bytes = min(CHUNK_BYTES, size_bytes - done)
            try:
                chunk = self._file.read_at(done, length_bytes)
            except OSError as error:
                _require_fault_of_disk(error)
                chunk = b"".join(self._blocks(done, length_bytes))
            if not chunk:
                return
            yield chunk
            done += len(chunk)

    def _blocks(self, position: int, length_bytes: int) -> Iterator[bytes]:
        for at in range(position, position + length_bytes, _BLOCK_BYTES):
            block_bytes = min(_BLOCK_BYTES, position + length_bytes - at)
            try:
                yield self._file.read_at(at, block_bytes)
            except OSError as error:
                _require_fault_of_disk(error)
                self.lost_bytes += block_bytes
                yield bytes(block_bytes)


def _require_fault_of_disk(error: OSError) -> None:
    if error.errno != errno.EIO:
        raise error
