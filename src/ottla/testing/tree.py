"""The process that holds the tree of a cluster on this machine, without Java."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final, Self

from ottla.coordination.local import READY_EVENT, SOCKET_FILE
from ottla.model.errors import OttlaError
from ottla.testing.running import RunningProcess, retire_large_log

# A former one that was killed gave leases; their end is awaited.
READY_WITHIN_S: Final = 60.0
POLL_INTERVAL_S: Final = 0.01
LOG_LINES_SHOWN: Final = 15


class TreeDidNotStart(OttlaError):
    """The process ended, or was silent for too long; the message has its last log lines."""


class RunningTree(RunningProcess):
    """A process that holds a tree.  With `own_group` a terminal's Ctrl-C does not reach it."""

    def __init__(self, data_dir: str | Path | None = None, *, own_group: bool = False) -> None:
        super().__init__(data_dir, "ottla-tree-")
        self._process_group = 0 if own_group else None
        # Where the lines of the last launch start in the log.
        self._launched_at = 0

    @property
    def socket(self) -> Path:
        """For `tree.socket` of the brokers."""
        return self.data_dir.absolute() / SOCKET_FILE

    @property
    def log_path(self) -> Path:
        """What it logged, over all its starts."""
        return self.data_dir / "tree.log"

    @property
    def command_line(self) -> Sequence[str]:
        return [sys.executable, "-m", "ottla.broker.tree.holder", str(self.data_dir)]

    def start(self, check: Callable[[], None] = lambda: None) -> Self:
        """Start the process and wait until it serves.  Raises `TreeDidNotStart`.

        `check` is called while it waits, and may raise.
        """
        self.launch()
        self.wait_until_ready(check)
        return self

    def launch(self) -> None:
        """Start the process without waiting: its brokers, which wait for it, start at the same time."""
        assert not self.is_running, "the tree is running already"
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        retire_large_log(self.log_path)
        self._launched_at = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = self._spawn(log, subprocess.DEVNULL)

    def wait_until_ready(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait until the launched process serves.  Raises `TreeDidNotStart`, and then it is not running."""
        process = self._process
        assert process is not None, "the tree is not running"
        deadline_s = time.monotonic() + READY_WITHIN_S
        while READY_EVENT.encode() not in self.log_path.read_bytes()[self._launched_at :]:
            check()
            if process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                raise TreeDidNotStart("the process of the tree did not start:\n" + "\n".join(lines))
            time.sleep(POLL_INTERVAL_S)

    def _spawn(self, log: IO[bytes], stdin: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command_line, stdin=stdin, stdout=log, stderr=log, process_group=self._process_group
        )
