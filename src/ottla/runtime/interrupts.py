"""Ctrl-C, SIGTERM and a closed terminal as flags that a program looks at between two steps."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Final, Self

# Ctrl-C, an operator's stop, and a closed terminal.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While it is entered, these signals only set a flag.

    An exception from a signal handler could occur between the start of a process and the recording of its id.  So code
    that waits calls `check` often, and code that cleans up does not.
    """

    def __init__(self, signals: Iterable[signal.Signals] = SIGNALS) -> None:
        self.came = False
        self._signals: Final = tuple(signals)
        self._former: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._former = {number: signal.signal(number, self._note) for number in self._signals}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            # None means a handler that was not set from Python, and that Python cannot restore.
            if handler is not None:
                signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave

    def check(self) -> None:
        """Raises `KeyboardInterrupt` after a signal."""
        if self.came:
            raise KeyboardInterrupt

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True


class StopRequest(Interrupts):
    """For work that has something to finish: the first signal requests the end, a second one interrupts.

    with StopRequest() as stop:
        while not stop.is_made():
            ...
    """

    def __init__(self) -> None:
        super().__init__((signal.SIGINT, signal.SIGTERM))

    def is_made(self) -> bool:
        return self.came

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.check()
        super()._note(number, frame)
