"""All processes of the demo: their messages as one stream, and their end."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterator
from typing import Final

from ottla.demo.child import Child
from ottla.demo.interrupts import Interrupts
from ottla.demo.messages import Failed, Message, Task
from ottla.model.errors import OttlaError

TICK_S: Final = 0.1
# Java runs shutdown hooks after a signal.
ENDED_WITHIN_S: Final = 8.0
KILLED_WITHIN_S: Final = 5.0


class ProcessFailed(OttlaError):
    """One of the demo's processes ended before its task was done; `complaints` are its last error lines."""

    def __init__(self, name: str, reason: str, complaints: list[str]) -> None:
        super().__init__(f"{name}: {reason}")
        self.complaints = complaints


class Children:
    """Closing it ends every process that was started here, with all descendants."""

    def __init__(self, interrupts: Interrupts, environment: dict[str, str] | None = None) -> None:
        self._interrupts = interrupts
        self._environment = {**os.environ, **(environment or {})}
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()

    def start(self, name: str, module: str, task: Task) -> Child:
        child = Child(name, module, task, self._environment)
        self._children.append(child)
        self._selector.register(child.output, selectors.EVENT_READ, (child, True))
        self._selector.register(child.errors, selectors.EVENT_READ, (child, False))
        return child

    def messages(self, wait_s: float = TICK_S) -> Iterator[tuple[Child, Message]]:
        """The messages of one tick.

        Raises `ProcessFailed` when one of them failed its task, `KeyboardInterrupt` after a signal.
        """
        self._interrupts.check()
        for key, _ in self._selector.select(wait_s):
            child, is_output = key.data
            if not is_output:
                if not child.read_errors():
                    self._selector.unregister(child.errors)
                continue
            messages = child.read_output()
            if messages is None:
                self._selector.unregister(child.output)
                self._check_end(child)
            for message in messages or ():
                if isinstance(message, Failed):
                    raise ProcessFailed(child.name, message.reason, [])
                yield child, message

    def end(self, *children: Child) -> None:
        """End these processes, and wait until they have ended."""
        for child in children:
            child.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + ENDED_WITHIN_S
        stubborn = [child for child in children if not child.wait_end(deadline_s)]
        for child in stubborn:
            child.signal(signal.SIGKILL)
        deadline_s = time.monotonic() + KILLED_WITHIN_S
        for child in stubborn:
            child.wait_end(deadline_s)
        for child in children:
            self._forget(child)

    def close(self) -> None:
        self.end(*self._children)
        self._selector.close()

    def _check_end(self, child: Child) -> None:
        """A process closes its output when it ends."""
        code = child.exit_code()
        if code == 0:
            return
        child.wait_end(time.monotonic() + 1.0)
        reason = f"ended with status {code}" if code > 0 else f"was ended by signal {-code}"
        raise ProcessFailed(child.name, reason, list(child.error_lines))

    def _forget(self, child: Child) -> None:
        registered = self._selector.get_map()
        for file in (child.output, child.errors):
            if file.fileno() in registered:
                self._selector.unregister(file)
        child.close()
        self._children.remove(child)
