"""What this process uses of the machine: memory, processor time, descriptors."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

if sys.platform != "win32":  # it has neither the module nor the limit
    import resource

_STATM: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = ("/proc/self/fd", "/dev/fd")


class ProcessFigures(NamedTuple):
    """None: this platform does not tell."""

    cpu_s: float
    resident_bytes: int | None
    open_files_count: int | None
    open_files_max: int | None


def process_figures() -> ProcessFigures:
    """As they are now."""
    return ProcessFigures(time.process_time(), _resident_bytes(), _open_files_count(), _open_files_max())


def _resident_bytes() -> int | None:
    try:
        # Linux: sizes in pages; the second is what is resident.
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _open_files_count() -> int | None:
    for directory in _DESCRIPTORS:
        try:
            # Without the one that lists them.
            return len(os.listdir(directory)) - 1
        except OSError:
            continue
    return None


def _open_files_max() -> int | None:
    if sys.platform == "win32":
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
