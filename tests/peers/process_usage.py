"""CPU time and resident memory of another process, from /proc (Linux only)."""

from __future__ import annotations

import os
from pathlib import Path

_AFTER_COMMAND_UTIME = 11  # utime and stime are fields 14 and 15 of proc(5)'s stat; 3 is the first after the name
_AFTER_COMMAND_STIME = 12


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process so far, in steps of a clock tick (10 ms)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()  # the name, in brackets, may hold spaces
    ticks = int(fields[_AFTER_COMMAND_UTIME]) + int(fields[_AFTER_COMMAND_STIME])
    return ticks / os.sysconf("SC_CLK_TCK")


def is_runnable(pid: int) -> bool:
    """Whether its first thread runs, or waits for a core."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "R"


def rss_bytes(pid: int) -> int:
    """Resident memory now, mapped files included."""
    resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE")


def rss_peak_bytes(pid: int) -> int:
    """The largest resident memory that the process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no VmHWM line: it has ended")
