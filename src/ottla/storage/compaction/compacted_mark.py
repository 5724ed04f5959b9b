"""The mark in a partition's directory that records were removed: below this offset a gap is no damage.

No checksum covers a batch's base offset, and files can get lost: in a log that was never compacted each batch must
begin where the one before ends.  In one that was, so it is from the mark's offset on.  No clean reaches above the
flushed end, so up to the mark the log was flushed, also where the record of that is older.
"""

from __future__ import annotations

from typing import Final

from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.storage.errors import CorruptLog
from ottla.storage.log_files import COMPACTED_FILE

_DIGITS_MAX: Final = 19


def read_compacted_end(disk: Disk, directory: str) -> int | None:
    """Up to where (exclusive) gaps are right; None when the log was never compacted.  Raises `CorruptLog`.

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
    """Gaps will be right below `end_offset`; durable when this returns."""
    if (read_compacted_end(disk, directory) or 0) < end_offset:
        replace_file(disk, f"{directory}/{COMPACTED_FILE}", f"{end_offset}\n".encode())
