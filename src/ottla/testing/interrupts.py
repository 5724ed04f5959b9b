"""Ctrl-C at any moment: recorded at once, handled between two steps, so that no started process is leaked."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Final

# Ctrl-C, an operator's stop, and a closed terminal.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While it is entered, these signals only set a flag.

    An exception from a signal handler could occur between the start of a process and the recording of its id.  So code
    that waits calls `check` often, and code that cleans up does not.
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
            # None means a handler that was not set from Python, and that Python cannot restore.
            if handler is not None:
                signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave

    def check(self) -> None:
        """Raises `KeyboardInterrupt` after a signal."""
        if self.came:
            raise KeyboardInterrupt

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
