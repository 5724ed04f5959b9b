"""The mark in a partition's directory that records were removed: gaps below this offset are not damage.

No checksum covers a batch's base offset, and files can be lost: in a log that was never compacted each batch must start
where the one before ends.  In a compacted log gaps between files are allowed below the mark's offset only: above it a
file's lost end would look the same.  Gaps inside a file may be anywhere, since a follower takes the batches of its
leader's cleaned segments, one after the other, without cleaning itself.

No clean reaches above the flushed end, so the log was flushed up to the mark, even if the recorded end is lower.
"""

from __future__ import annotations

from typing import Final

from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.storage.errors import CorruptLog
from ottla.storage.log_files import COMPACTED_FILE

_DIGITS_MAX: Final = 19


def read_compacted_end(disk: Disk, directory: str) -> int | None:
    """The end (exclusive) of where gaps are allowed; None when the log was never compacted.  Raises `CorruptLog`.

    An empty mark is that of an imported log, whose gaps are below what is recorded as flushed: 0.  So is a follower's.
    """
    path = f"{directory}/{COMPACTED_FILE}"
    if not disk.exists(path):
        return None
    text = read_file(disk, path).strip()
    if not text:
        return 0
    if not text.isdigit() or len(text) > _DIGITS_MAX:
        raise CorruptLog(path, 0, -1, "not an offset")
    return int(text)


def allow_gaps(disk: Disk, directory: str) -> None:
    """The log takes batches from a leader whose log was compacted.

    The mark's offset stays as it is, 0 when there was none: nothing above the recorded flushed end is known to be
    flushed.  Durable with the next sync of the file system.  A power loss before that leaves no flushed gap, and the
    empty mark cannot be torn.
    """
    if read_compacted_end(disk, directory) is None:
        disk.open(f"{directory}/{COMPACTED_FILE}", create=True).close()


def lower_compacted_end(disk: Disk, directory: str, end_offset: int) -> None:
    """The log will be truncated to `end_offset`; durable when this returns."""
    if (read_compacted_end(disk, directory) or 0) > end_offset:
        replace_file(disk, f"{directory}/{COMPACTED_FILE}", f"{end_offset}\n".encode())


def raise_compacted_end(disk: Disk, directory: str, end_offset: int) -> None:
    """Allow gaps below `end_offset`; durable when this returns."""
    if (read_compacted_end(disk, directory) or 0) < end_offset:
        replace_file(disk, f"{directory}/{COMPACTED_FILE}", f"{end_offset}\n".encode())
