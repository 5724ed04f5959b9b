"""Time as a dependency that is passed in: tests advance it by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: wall time for what users see and retention, monotonic time for time-outs."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
