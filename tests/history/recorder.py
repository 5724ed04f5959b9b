"""The log of a client process: one line for each operation, written out before the next operation."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from tests.history.operations import Operation, to_line


def now_ns() -> int:
    """The machine's monotonic clock, the same for all its processes."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Recorder:
    """Appends operations to a file.  Recorded operations survive a kill of this process (not of the machine)."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def add(self, operation: Operation) -> None:
        self._file.write(to_line(operation) + "\n")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
