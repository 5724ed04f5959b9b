"""`ottla serve --processes 2`: two broker processes on one machine, which share a port and divide the partitions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.peers import process_usage
from tests.peers.answering import NotAnswering

from bench.peers.ottla import HOST, STOP_TIMEOUT_S
from bench.peers.peer import HOUSEKEEPING
from bench.wire import NO_SETTINGS

PROCESSES: Final = 2
NAME: Final = f"ottla-{PROCESSES}p"
START_TIMEOUT_S: Final = 60
POLL_INTERVAL_S: Final = 0.005
# What the supervisor logs when all its brokers serve.
READY: Final = re.compile(r"processes\.ready bootstrap=\S+?:(\d+)")


class OttlaProcesses:
    """Policy `os`, unless the settings have another.  Processor time and memory are of all processes together, the
    supervisor's too; pages that they share count each time."""

    name = NAME

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.data_dir = home / "data"
        self.port = 0
        """That all processes share; Metadata names their own ones."""
        self.startup_s = 0.0
        self._log_path = home / "server.log"
        self._command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(self.data_dir)]
        self._command += ["--processes", str(PROCESSES), "--listen", f"{HOST}:0"]
        for name, value in ({"log.flush.policy": "os"} | HOUSEKEEPING | dict(settings)).items():
            self._command += ["--set", f"{name}={value}"]
        self.start()

    def start(self) -> None:
        started, log_before = time.monotonic(), self._log_path.stat().st_size if self._log_path.exists() else 0
        with self._log_path.open("ab") as log:
            self._supervisor = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while (ready := READY.search(self._log_path.read_bytes()[log_before:].decode(errors="replace"))) is None:
            if self._supervisor.poll() is not None or time.monotonic() > started + START_TIMEOUT_S:
                self.stop()
                story = self._log_path.read_text(errors="replace")[-2000:]
                raise NotAnswering(f"{' '.join(self._command[1:])} is not ready; its log ends:\n{story}")
            time.sleep(POLL_INTERVAL_S)
        self.port = int(ready[1])
        self.startup_s = time.monotonic() - started

    def stop(self) -> None:
        """SIGTERM to the supervisor, which stops its brokers, and SIGKILL to all when that takes too long."""
        if self._supervisor.poll() is not None:
            return
        pids = self._pids()
        self._supervisor.send_signal(signal.SIGTERM)
        try:
            self._supervisor.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
            for pid in pids[1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def cpu_seconds(self) -> float:
        return sum(process_usage.cpu_seconds(pid) for pid in self._pids())

    def rss_bytes(self) -> int:
        return sum(process_usage.rss_bytes(pid) for pid in self._pids())

    def rss_peak_bytes(self) -> int:
        return sum(process_usage.rss_peak_bytes(pid) for pid in self._pids())

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    def broker_pids(self) -> dict[int, int]:
        """By node id, of the brokers that the supervisor has started last."""
        path = self.data_dir / "processes" / "running.json"
        brokers = json.loads(path.read_text())["processes"] if path.exists() else []
        return {int(each["node_id"]): int(each["pid"]) for each in brokers}

    def _pids(self) -> list[int]:
        """The supervisor's first."""
        return [self.supervisor_pid, *self.broker_pids().values()]


@contextmanager
def start_ottla_processes(work_dir: Path, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[OttlaProcesses]:
    """Fresh ones in a directory of their own below `work_dir`; nothing of them is left afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-", dir=work_dir, ignore_cleanup_errors=True) as home:
        peer = OttlaProcesses(Path(home), settings)
        try:
            yield peer
        finally:
            peer.stop()
