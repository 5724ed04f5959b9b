"""The processes of the demo: their messages as one stream, and their reliable end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from multiprocessing import Pipe
from typing import Final

from ottla.demo.messages import Failed, Message, Task
from ottla.model.errors import OttlaError
from ottla.testing.interrupts import Interrupts

ERROR_LINES_KEPT: Final = 40
TICK_S: Final = 0.1
# Java runs shutdown hooks after a signal.
ENDED_WITHIN_S: Final = 8.0
KILLED_WITHIN_S: Final = 5.0
_READ_BYTES: Final = 1 << 16


class ProcessFailed(OttlaError):
    """One of the demo's processes ended before its task was done; `complaints` are its last error lines."""

    def __init__(self, name: str, reason: str, complaints: list[str]) -> None:
        super().__init__(f"{name}: {reason}")
        self.complaints = complaints


class Child:
    """A module of `ottla.demo` with a task.

    It has its own process group, so the terminal's Ctrl-C does not reach it, and one signal reaches all its descendants
    (Spark's Java).  Its standard error is a pipe that they inherit: end of file means that all of them have ended.
    """

    def __init__(self, name: str, module: str, task: Task, environment: Mapping[str, str]) -> None:
        self.name = name
        self.error_lines: deque[str] = deque(maxlen=ERROR_LINES_KEPT)
        self.messages, sending = Pipe(duplex=False)
        self._unread = b""
        # Afterwards another process may get the group's id.
        self._is_gone = False
        with sending:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"ottla.demo.{module}", str(sending.fileno()), json.dumps(asdict(task))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                process_group=0,
                pass_fds=[sending.fileno()],
            )
        assert self.process.stderr is not None
        self.errors: Final = self.process.stderr

    def read_errors(self) -> bool:
        """Keep its error lines; False when it and all its descendants have ended."""
        data = os.read(self.errors.fileno(), _READ_BYTES)
        *lines, self._unread = (self._unread + data).split(b"\n")
        self.error_lines.extend(line.decode(errors="replace") for line in lines)
        self._is_gone = not data
        return bool(data)

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group, as long as one of its processes is running."""
        if not self._is_gone:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def wait_end(self, within_s: float) -> bool:
        """Whether the process and all its descendants ended in time."""
        deadline_s = time.monotonic() + within_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.errors, selectors.EVENT_READ)
            while not self._is_gone:
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    return False
                self.read_errors()
        self.process.wait()
        return True

    def close(self) -> None:
        self.messages.close()
        self.errors.close()


class Children:
    """Closing it ends every process that was started here, with all descendants."""

    def __init__(self, interrupts: Interrupts, environment: Mapping[str, str]) -> None:
        self._interrupts = interrupts
        self._environment = {**os.environ, **environment}
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()

    def start(self, name: str, module: str, task: Task) -> Child:
        child = Child(name, module, task, self._environment)
        self._children.append(child)
        for pipe in (child.messages, child.errors):
            self._selector.register(pipe, selectors.EVENT_READ, child)
        return child

    def messages(self) -> Iterator[tuple[str, Message]]:
        """The messages of one tick, with the name of their process.

        Raises `ProcessFailed` when one of them failed its task, `KeyboardInterrupt` after a signal.
        """
        self._interrupts.check()
        for key, _ in self._selector.select(TICK_S):
            child: Child = key.data
            if key.fileobj is child.errors:
                if not child.read_errors():
                    self._selector.unregister(child.errors)
                continue
            try:
                message: Message = child.messages.recv()
            except EOFError:
                self._selector.unregister(child.messages)
                self._check_end(child)
                continue
            if isinstance(message, Failed):
                raise ProcessFailed(child.name, message.reason, [])
            yield child.name, message

    def end(self, *children: Child) -> None:
        """End these processes, and wait until they have ended."""
        for child in children:
            child.signal(signal.SIGTERM)
        ends_s = time.monotonic() + ENDED_WITHIN_S
        stubborn = [child for child in children if not child.wait_end(ends_s - time.monotonic())]
        for child in stubborn:
            child.signal(signal.SIGKILL)
        for child in stubborn:
            child.wait_end(KILLED_WITHIN_S)
        for child in children:
            for pipe in (child.messages, child.errors):
                if pipe in self._selector.get_map():
                    self._selector.unregister(pipe)
            child.close()
            self._children.remove(child)

    def close(self) -> None:
        self.end(*self._children)
        self._selector.close()

    def _check_end(self, child: Child) -> None:
        """A process closes its pipe when it ends."""
        code = child.process.wait()
        if code == 0:
            return
        child.wait_end(1.0)
        reason = f"ended with status {code}" if code > 0 else f"was ended by signal {-code}"
        raise ProcessFailed(child.name, reason, list(child.error_lines))
