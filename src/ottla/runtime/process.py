"""This process as the operating system sees it: its limits, its use of memory and time, its service manager."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

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


_STATM: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = ("/proc/self/fd", "/dev/fd")


class ProcessMetrics(NamedTuple):
    """None where this platform has no such figure."""

    cpu_s: float
    resident_bytes: int | None
    open_files_count: int | None
    open_files_max: int | None


def process_metrics() -> ProcessMetrics:
    """As they are now."""
    return ProcessMetrics(time.process_time(), _resident_bytes(), _open_files_count(), _open_files_max())


def _resident_bytes() -> int | None:
    try:
        # Linux: sizes in pages; the second is the resident size.
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


READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(state: str) -> None:
    """Report a state of a service of `Type=notify` to systemd: one datagram to $NOTIFY_SOCKET, as sd_notify(3).

    Without a service manager it does nothing.  A failure is ignored: the service works without the notice.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    path = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as peer:
            peer.setblocking(False)
            peer.sendto(state.encode(), path)
    except OSError:
        pass


_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")


def usable_cores_count() -> int:
    """How many cores this process may use: those that it is bound to, and no more than its container's share."""
    bound_count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        # cgroups v2: microseconds of processor time in each period, or `max`.
        quota, period = _CPU_MAX.read_text(encoding="ascii").split()
        share = bound_count if quota == "max" else int(quota) // int(period)
    except (OSError, ValueError):
        share = bound_count
    return max(1, min(bound_count, share))


def is_root() -> bool:
    """Whether the process has every right on this machine: a flaw in it is one of the machine."""
    return os.geteuid() == 0


def has_terminal() -> bool:
    """Whether the process has a controlling terminal, which sends SIGHUP when it closes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
