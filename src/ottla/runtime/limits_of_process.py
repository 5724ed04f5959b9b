"""The process's own limits, as the operating system sets them."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NamedTuple

if sys.platform != "win32":  # it has neither the module nor the limit
    import resource


class OpenFilesLimit(NamedTuple):
    """How many descriptors this process may hold, before and after raising."""

    before: int
    now: int


def raise_open_files_limit() -> OpenFilesLimit | None:
    """Raise the soft limit of open files to the hard one; None where there is no such limit.

    Each segment holds descriptors and each connection one; shells start programs with 1,024.
    """
    if sys.platform == "win32":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS refuses a limit above its kernel's, although the hard limit allows it: then the soft one stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return OpenFilesLimit(before=soft, now=resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def open_files_about() -> int:
    """How many descriptors are open: the lowest free number, which is that where no hole is.  Raises `OSError`."""
    lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(lowest)
    return lowest
