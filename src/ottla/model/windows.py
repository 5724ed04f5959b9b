"""Event-time windows: `[start_ms, start_ms + size_ms)`, aligned to 1970-01-01T00:00Z.

A time before 1970 is in a window with a negative start; a record without a timestamp has the time -1, so it is in
the last window before 1970.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from ottla.model.errors import ConfigError
from ottla.model.limits import DAY_MS, MINUTE_MS

# LinkedIn's audit counted in windows of ten minutes.
DEFAULT_WINDOW_MS: Final = 10 * MINUTE_MS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Window(NamedTuple):
    """`Window(0, 600_000)` holds the times from 0 to 599,999 ms."""

    start_ms: int
    size_ms: int

    @property
    def end_ms(self) -> int:
        """Exclusive."""
        return self.start_ms + self.size_ms

    def __contains__(self, time_ms: object) -> bool:
        return isinstance(time_ms, int) and self.start_ms <= time_ms < self.end_ms

    def __str__(self) -> str:
        return f"{time_text(self.start_ms)}/{time_text(self.end_ms)}"


def window_start_ms(time_ms: int, size_ms: int) -> int:
    """The start of the window that holds `time_ms`."""
    # Python's remainder has the divisor's sign: times before 1970 are rounded down, too.
    return time_ms - time_ms % size_ms


def window_of(time_ms: int, size_ms: int) -> Window:
    return Window(window_start_ms(time_ms, size_ms), size_ms)


def check_window_ms(size_ms: int, name: str = "window_ms") -> int:
    """`size_ms`, if windows can have it.  Raises ConfigError."""
    if not 1 <= size_ms <= DAY_MS:
        raise ConfigError(f"{name} is {size_ms}", hint=f"a window has 1 to {DAY_MS} ms (a day)")
    return size_ms


def time_text(time_ms: int) -> str:
    """`2026-03-01T12:00Z`, with seconds and parts where there are some; a number outside of the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    spec = "minutes" if time_ms % MINUTE_MS == 0 else "seconds" if time_ms % 1_000 == 0 else "milliseconds"
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")
