"""One process of the demo with its descendants: its messages, and its reliable end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import IO, Final

from ottla.demo.messages import Message, Task, from_line

ERROR_LINES_KEPT: Final = 40
_READ_BYTES: Final = 1 << 16


class Child:
    """A module of `ottla.demo.processes` with a task.

    It has a process group of its own, so the terminal's Ctrl-C does not reach it, and one signal reaches all its
    descendants (Spark's Java).  Its standard error is a pipe that they inherit: end of file means that all of them have
    ended.
    """

    def __init__(self, name: str, module: str, task: Task, environment: Mapping[str, str]) -> None:
        self.name = name
        self.error_lines: deque[str] = deque(maxlen=ERROR_LINES_KEPT)
        # The process and all its descendants; afterwards another process may get its group's id.
        self.is_gone = False
        self._unread = {"output": b"", "errors": b""}
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"ottla.demo.processes.{module}", json.dumps(asdict(task))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            process_group=0,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output: IO[bytes] = self._process.stdout
        self.errors: IO[bytes] = self._process.stderr

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_output(self) -> list[Message] | None:
        """The new messages; None when it has ended.  Blocks unless the pipe is readable."""
        lines = self._read("output", self.output)
        return None if lines is None else [from_line(line) for line in lines]

    def read_errors(self) -> bool:
        """Keep its error lines; False when it and all its descendants have ended."""
        lines = self._read("errors", self.errors)
        if lines is None:
            self.is_gone = True
            return False
        self.error_lines.extend(line.decode(errors="replace") for line in lines)
        return True

    def _read(self, pipe: str, file: IO[bytes]) -> list[bytes] | None:
        data = os.read(file.fileno(), _READ_BYTES)
        if not data:
            return None
        *lines, self._unread[pipe] = (self._unread[pipe] + data).split(b"\n")
        return lines

    def exit_code(self) -> int:
        """For a process that has closed its output."""
        return self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group, as long as one of its processes is running."""
        if self.is_gone:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def wait_end(self, deadline_s: float) -> bool:
        """Whether the process and all its descendants ended before this moment of `time.monotonic`."""
        while not self.is_gone:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self.errors], [], [], left_s)[0]:
                return False
            self.read_errors()
        self._process.wait()
        return True

    def close(self) -> None:
        self.output.close()
        self.errors.close()
