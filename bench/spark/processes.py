"""What the processes of a Spark session cost: its JVM and its Python workers."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from tests.peers.process_usage import rss_bytes

from bench.loop import Watch

# Fields of proc(5)'s stat, counted from the first behind the name.
_OWN_TIMES: Final = slice(11, 13)  # utime, stime
_STARTED: Final = 19
# Planners live for some tenths of a second, and Spark's daemons do not wait for their workers: what these have used is
# known only while they are there.
LOOK_EVERY_S: Final = 0.1


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


class SparkProcesses(Watch):
    """The JVM `jvm_pid` and everything below it, which is looked at all the time between enter and exit."""

    def __init__(self, jvm_pid: int) -> None:
        super().__init__(self._look, LOOK_EVERY_S)
        self._jvm_pid = jvm_pid
        self._lock = threading.Lock()
        # By process id and start, since ids come again.
        self._ticks: dict[tuple[int, str], int] = {}

    def usage(self) -> Usage:
        """Of all that were ever seen."""
        seen = self._look()
        jvm = sum(ticks for (pid, _), ticks in seen.items() if pid == self._jvm_pid)
        python = sum(seen.values()) - jvm
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        return Usage(jvm * tick_s, python * tick_s, time.perf_counter())

    def rss(self) -> tuple[int, int]:
        """Resident bytes of the JVM, and of all Python workers together; pages that these share count each time."""
        jvm = python = 0
        for pid in self._pids():
            try:
                size_bytes = rss_bytes(pid)
            except OSError:
                continue  # it has ended meanwhile
            jvm += size_bytes if pid == self._jvm_pid else 0
            python += 0 if pid == self._jvm_pid else size_bytes
        return jvm, python

    def _look(self) -> dict[tuple[int, str], int]:
        """What is known after it; the watching thread continues."""
        with self._lock:
            for pid in self._pids():
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                self._ticks[pid, fields[_STARTED]] = sum(map(int, fields[_OWN_TIMES]))
            return dict(self._ticks)

    def _pids(self) -> Iterator[int]:
        waiting = [self._jvm_pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            try:
                threads = os.listdir(f"/proc/{pid}/task")
            except OSError:
                continue
            for thread in threads:
                with contextlib.suppress(OSError):
                    waiting += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())


def jvm_pid(spark: SparkSession) -> int:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # there is no public way
    return int(jvm.java.lang.ProcessHandle.current().pid())
