"""`ottla serve --processes` in the background, for tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from ottla.broker.processes.recorded import start_ticks_of
from tests.eventually import eventually

# Small directories, and few partitions of offsets to load.
SETTINGS: Final = ("--set", "log.dir.reserve.bytes=262144", "--set", "offsets.topic.num.partitions=3")
ENDS_WITHIN_S: Final = 120


class Processes:
    """The command in the background; its log is in a file, since its brokers may outlive it."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        self.arguments = arguments
        self._log_path = data_dir.with_suffix(".log")
        self._log_path.touch()
        self._started_at = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Since the last start."""
        return self._log_path.read_bytes()[self._started_at :].decode()

    def launch(self) -> None:
        self._started_at = self._log_path.stat().st_size
        command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(self.data_dir), *self.arguments]
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen([*command, *SETTINGS], stdin=subprocess.DEVNULL, stderr=log)

    def start(self) -> Self:
        self.launch()
        eventually(lambda: "processes.ready" in self.log or self._is_over())
        assert "processes.ready" in self.log, self.log
        return self

    @property
    def bootstrap(self) -> str:
        return str(re.findall(r"processes\.ready bootstrap=(\S+)", self.log)[-1])

    @property
    def pids(self) -> dict[int, int]:
        """By node id, of brokers that run."""
        path = self.data_dir / "processes" / "running.json"
        found = json.loads(path.read_text())["processes"] if path.exists() else []
        return {each["node_id"]: each["pid"] for each in found if start_ticks_of(each["pid"]) == each["start_ticks"]}

    def _is_over(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(ENDS_WITHIN_S)

    def close(self) -> None:
        """However the test ended."""
        if not self._is_over():
            self.stop()
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)


@contextmanager
def processes(data_dir: Path, *arguments: str) -> Iterator[Processes]:
    found = Processes(data_dir, *arguments)
    try:
        yield found
    finally:
        found.close()
