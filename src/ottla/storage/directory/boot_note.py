"""Whether the machine has restarted since a broker last used the directory: `boot-id`, the kernel's id of its boot.

A broker that was only killed leaves all that it wrote with the operating system, flushed or not.  The note is what a
start compares: under flush policy `os`, where nothing is flushed before it is acknowledged, a replica may count its log
as kept only when it knows that.  Where the system has no such id nothing is known.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.observe.events import fields
from ottla.runtime.disk import Disk, read_file, replace_file

BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
BOOT_NOTE_FILE: Final = "boot-id"
# The kernel's is 36 characters and a line end.
_BOOT_ID_BYTES_MAX: Final = 128

_log = logging.getLogger(__name__)


def is_same_boot(disk: Disk, directory: str, boot_id_path: str = BOOT_ID_PATH) -> bool:
    """Whether the note is of this boot.  Raises `OSError`."""
    boot_id = _present_boot_id(disk, boot_id_path)
    return bool(boot_id) and boot_id == _noted(disk, directory)


def write_note(disk: Disk, directory: str, boot_id_path: str = BOOT_ID_PATH) -> None:
    """For the next start, durably: call it when the result of the former note is recorded.  Raises `OSError`."""
    boot_id = _present_boot_id(disk, boot_id_path)
    if not boot_id:
        remove_note(disk, directory)
    elif boot_id != _noted(disk, directory):
        replace_file(disk, f"{directory}/{BOOT_NOTE_FILE}", boot_id + b"\n")


def _noted(disk: Disk, directory: str) -> bytes:
    path = f"{directory}/{BOOT_NOTE_FILE}"
    return read_file(disk, path).strip() if disk.exists(path) else b""


def remove_note(disk: Disk, directory: str) -> None:
    """The operating system has lost writes: the next start, of the same boot too, must not believe it."""
    path = f"{directory}/{BOOT_NOTE_FILE}"
    try:
        if disk.exists(path):
            disk.remove(path)
    except OSError as error:
        _log.warning("boot_note.not_removed", extra=fields(path=path, error=str(error)))


def _present_boot_id(disk: Disk, path: str) -> bytes:
    """Empty where there is none."""
    try:
        if not disk.exists(path):
            return b""
        file = disk.open(path, read_only=True)
        try:
            # The kernel reports its size as 0.
            return file.read_at(0, _BOOT_ID_BYTES_MAX).strip()
        finally:
            file.close()
    except OSError as error:
        _log.warning("boot_note.no_boot_id", extra=fields(path=path, error=str(error)))
        return b""
