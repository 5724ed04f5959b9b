"""Time as a dependency that is passed in: tests advance it by hand."""

from __future__ import annotations

import sys
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what users see and retention, monotonic time for time-outs, and one more for leases."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back.  It stands while the machine is suspended."""
        ...

    def boottime_ms(self) -> int:
        """The same, but goes on while the machine is suspended: for what others end meanwhile, as a session."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    if sys.platform == "linux":

        def boottime_ms(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    else:

        def boottime_ms(self) -> int:
            """Python reaches no such clock here."""
            return time.monotonic_ns() // 1_000_000
