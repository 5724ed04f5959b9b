"""The mark in a partition's directory that records were removed: gaps below this offset are not damage.

No checksum covers a batch's base offset, and files can be lost: in a log that was never compacted each batch must begin
where the one before ends.  In a compacted log this holds from the mark's offset on.  No clean reaches above the flushed
end, so the log was flushed up to the mark, even if the recorded flushed end is lower.
"""

from __future__ import annotations

from typing import Final

from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.storage.errors import CorruptLog
from ottla.storage.log_files import COMPACTED_FILE

_DIGITS_MAX: Final = 19


def read_compacted_end(disk: Disk, directory: str) -> int | None:
    """The end (exclusive) of where gaps are allowed; None when the log was never compacted.  Raises `CorruptLog`.

    An empty mark is that of an imported log, whose gaps lie below what is recorded as flushed: 0.
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


def lower_compacted_end(disk: Disk, directory: str, end_offset: int) -> None:
    """The log will be truncated to `end_offset`; durable when this returns."""
    if (read_compacted_end(disk, directory) or 0) > end_offset:
        replace_file(disk, f"{directory}/{COMPACTED_FILE}", f"{end_offset}\n".encode())


def raise_compacted_end(disk: Disk, directory: str, end_offset: int) -> None:
    """Allow gaps below `end_offset`; durable when this returns."""
    if (read_compacted_end(disk, directory) or 0) < end_offset:
        replace_file(disk, f"{directory}/{COMPACTED_FILE}", f"{end_offset}\n".encode())
