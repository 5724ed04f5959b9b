"""Replacing old files by cleaned ones, so that a crash at any point leaves the old log or the new one.

1. The cleaned files and their names are durable (the clean does that).
2. `compaction-swap` lists the old files and their replacements; its sync commits the swap.
3. Old files get `.deleted` names, cleaned ones their final names; the directory is synced.
4. `compaction-swap` is removed, durably, before anything else can give a file one of these names.

A crash before 2 undoes the clean: cleaned files without a swap are removed at the next opening.  A crash after it is
completed there: a step is skipped exactly when it is done already, which the names show.
"""

from __future__ import annotations

from typing import Final

from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.storage.compaction.cleaned_segment import CLEANED_SUFFIX
from ottla.storage.compaction.job import CleanedGroup, result_from_json, result_to_json
from ottla.storage.errors import CorruptLog
from ottla.storage.log_files import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, segment_file_name

SWAP_FILE: Final = "compaction-swap"


def commit_swap(disk: Disk, directory: str, group: CleanedGroup) -> None:
    """Commit the swap: once this returns, a crash at any point completes it."""
    text = result_to_json(group)
    replace_file(disk, f"{directory}/{SWAP_FILE}", f"{crc32c(text.encode())}\n{text}\n".encode())


def is_swap_begun(disk: Disk, directory: str) -> bool:
    return disk.exists(f"{directory}/{SWAP_FILE}")


def complete_swap(disk: Disk, directory: str) -> list[str]:
    """Finish the swap that was committed; returns the paths of the old files, under their new names."""
    retired = move_files(disk, directory, _read(disk, f"{directory}/{SWAP_FILE}"))
    settle_swap(disk, directory)
    return retired


def move_files(disk: Disk, directory: str, group: CleanedGroup) -> list[str]:
    """Step 3 without its sync: no file of the log has a name of its own again before `settle_swap` has returned."""
    retired = _rename(disk, directory, group)
    for files in group.cleaned:
        path = f"{directory}/{segment_file_name(files.base_offset)}"
        if not disk.exists(path) or disk.file_size_bytes(path) != files.size_bytes:
            raise CorruptLog(path, -1, files.base_offset, "a cleaned segment is not what was put in its place")
    return retired


def settle_swap(disk: Disk, directory: str) -> None:
    """The swap has ended: its names are durable, and no restart repeats it."""
    disk.sync_directory(directory)
    disk.remove(f"{directory}/{SWAP_FILE}")
    disk.sync_directory(directory)


def _rename(disk: Disk, directory: str, group: CleanedGroup) -> list[str]:
    retired: list[str] = []

    def retire(path: str) -> None:
        if disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)
            retired.append(path + DELETED_SUFFIX)

    fresh = {(files.base_offset, suffix) for files in group.cleaned for suffix in files.suffixes}
    for base_offset in group.replaced:
        for suffix in SEGMENT_SUFFIXES:
            if (base_offset, suffix) not in fresh:
                retire(f"{directory}/{segment_file_name(base_offset, suffix)}")
    for base_offset, suffix in sorted(fresh, key=lambda each: (each[0], each[1] == LOG_SUFFIX)):
        path = f"{directory}/{segment_file_name(base_offset, suffix)}"
        # Where the cleaned name is missing, the file has its final name already.
        if disk.exists(path + CLEANED_SUFFIX):
            retire(path)
            disk.rename(path + CLEANED_SUFFIX, path)
    return retired


def _read(disk: Disk, path: str) -> CleanedGroup:
    content = read_file(disk, path)
    try:
        crc, text = content.decode().splitlines()
        group = result_from_json(text)
        if int(crc) == crc32c(text.encode()) and isinstance(group, CleanedGroup):
            return group
    except ValueError:
        pass
    raise CorruptLog(path, 0, -1, "not the description of a swap that was written")
