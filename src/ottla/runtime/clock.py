"""Time as a dependency that is passed in: tests advance it by hand."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

# `Clock.boottime_ms` in nanoseconds, for code that reads it once for each message.
boottime_ns: Final[Callable[[], int]] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic_ns
)
# Nanoseconds since the epoch: for where a call of `now_ms` for each message would be much of the work.
wall_time_ns: Final = time.time_ns


class Moment(NamedTuple):
    """The time of a command or a deadline.

    `wall_ms` is for what records and users see (commit times, expiry of offsets); it may jump.  `monotonic_ms` is for
    every time-out (sessions, rebalances, pending members); it never goes back.
    """

    wall_ms: int
    monotonic_ms: int


class Clock(Protocol):
    """Wall time for what users see and retention, monotonic time for time-outs, and one more for leases."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back.  It stops while the machine is suspended."""
        ...

    def boottime_ms(self) -> int:
        """The same, but it continues while the machine is suspended: for what a peer ends meanwhile (a session)."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def boottime_ms(self) -> int:
        """The monotonic clock where Python reaches no other, as on macOS."""
        return boottime_ns() // 1_000_000
