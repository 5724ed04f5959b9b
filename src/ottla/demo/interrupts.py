"""Ctrl-C at any moment: noticed at once, obeyed between two steps, so that nothing is started and forgotten."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Final

# Ctrl-C, an operator's stop, and the terminal that goes away.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While it is entered, these signals only leave a note.

    An exception out of a signal handler could come between the start of a process and the note of its id.  So who
    waits asks `check` often, and who cleans up does not ask.
    """

    def __init__(self) -> None:
        self.came = False
        self._former: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupts:
        self._former = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            # None stands for a handler that was not set from Python, and that Python cannot set again.
            if handler is not None:
                signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave

    def check(self) -> None:
        """Raises `KeyboardInterrupt` if a signal came."""
        if self.came:
            raise KeyboardInterrupt

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
