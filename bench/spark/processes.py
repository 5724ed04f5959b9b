"""What the processes of a Spark session cost: its JVM and its Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from tests.peers.process_usage import rss_bytes

# Fields of proc(5)'s stat, counted from the first behind the name.
_PARENT: Final = 1
_OWN_TIMES: Final = slice(11, 13)  # utime, stime
_ENDED_TIMES: Final = slice(13, 15)  # of the children that have ended and were waited for


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds so far, by kind of process."""

    jvm_s: float
    python_s: float
    at_s: float

    def since(self, before: Usage, rows: int) -> dict[str, float]:
        return {
            "seconds": self.at_s - before.at_s,
            "rows_per_s": rows / (self.at_s - before.at_s),
            "jvm_cpu_us_per_row": (self.jvm_s - before.jvm_s) / rows * 1e6,
            "python_cpu_us_per_row": (self.python_s - before.python_s) / rows * 1e6,
        }


class SparkProcesses:
    """The JVM `jvm_pid` and everything below it."""

    def __init__(self, jvm_pid: int) -> None:
        self._jvm_pid = jvm_pid

    def usage(self) -> Usage:
        """What has ended counts too: a JVM's children are daemons of Python, and these wait for their workers."""
        jvm = python = 0
        for pid, fields in self._stats():
            own, ended = (sum(map(int, fields[times])) for times in (_OWN_TIMES, _ENDED_TIMES))
            is_jvm = pid == self._jvm_pid
            jvm += own if is_jvm else 0
            python += ended if is_jvm else own + ended
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        return Usage(jvm * tick_s, python * tick_s, time.perf_counter())

    def rss(self) -> tuple[int, int]:
        """Resident bytes of the JVM, and of all Python workers together; pages that these share count each time."""
        jvm = python = 0
        for pid, _ in self._stats():
            try:
                size_bytes = rss_bytes(pid)
            except OSError:
                continue  # it has ended meanwhile
            jvm += size_bytes if pid == self._jvm_pid else 0
            python += 0 if pid == self._jvm_pid else size_bytes
        return jvm, python

    def _stats(self) -> Iterator[tuple[int, list[str]]]:
        """The fields of each process, from the first behind the name on."""
        stats: dict[int, list[str]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    stats[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
        waiting = [self._jvm_pid] if self._jvm_pid in stats else []
        while waiting:
            parent = waiting.pop()
            yield parent, stats[parent]
            waiting += [pid for pid, fields in stats.items() if int(fields[_PARENT]) == parent]


def jvm_pid(spark: SparkSession) -> int:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # there is no public way
    return int(jvm.java.lang.ProcessHandle.current().pid())
