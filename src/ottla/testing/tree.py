"""The process that holds the tree of a cluster on this machine, without Java."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from ottla.broker.tree.holder import READY_EVENT, SOCKET_FILE
from ottla.model.errors import OttlaError
from ottla.testing.running import Running, pause_process, retire_large_log

# A former one that was killed gave leases; their end is awaited.
READY_WITHIN_S: Final = 60.0
STOPPED_WITHIN_S: Final = 30.0
POLL_INTERVAL_S: Final = 0.01
LOG_LINES_SHOWN: Final = 15


class TreeDidNotStart(OttlaError):
    """The process ended, or was silent for too long; the message has its last log lines."""


class RunningTree(Running):
    """A process that holds a tree.  With `own_group` a terminal's Ctrl-C does not reach it."""

    def __init__(self, data_dir: str | Path | None = None, *, own_group: bool = False) -> None:
        super().__init__(data_dir, "ottla-tree-")
        self._process_group = 0 if own_group else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """For `tree.socket` of the brokers."""
        return self.data_dir.absolute() / SOCKET_FILE

    @property
    def pid(self) -> int:
        assert self._process is not None, "the tree is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        """What it logged, over all its starts."""
        return self.data_dir / "tree.log"

    def start(self, check: Callable[[], None] = lambda: None) -> Self:
        """Start the process and wait until it serves.  Raises `TreeDidNotStart`.

        `check` is called while it waits, and may raise.
        """
        assert not self.is_running, "the tree is running already"
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        retire_large_log(self.log_path)
        started_at = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla.broker.tree.holder", str(self.data_dir)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._process_group,
            )
        deadline_s = time.monotonic() + READY_WITHIN_S
        while READY_EVENT.encode() not in self.log_path.read_bytes()[started_at:]:
            check()
            if process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                raise TreeDidNotStart("the process of the tree did not start:\n" + "\n".join(lines))
            time.sleep(POLL_INTERVAL_S)
        return self

    def stop(self) -> None:
        """Stop it as an operator would (SIGTERM)."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it without warning (SIGKILL), as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing is answered."""
        assert self._process is not None, "the tree is not running"
        pause_process(self._process)

    def resume(self) -> None:
        assert self._process is not None, "the tree is not running"
        self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        self.stop()
