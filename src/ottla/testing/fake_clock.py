"""A clock that tests advance by hand."""

from __future__ import annotations

from typing import Final

# 2026-01-01T00:00:00Z: late enough that no test mistakes it for a count of milliseconds since start.
_START_MS: Final = 1_767_225_600_000


class FakeClock:
    """All clocks of `Clock`; they stop until `advance`."""

    def __init__(self, now_ms: int = _START_MS, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._suspended_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def boottime_ms(self) -> int:
        return self._monotonic_ms + self._suspended_ms

    def suspend(self, duration_ms: int) -> None:
        """Let the machine be suspended and resumed."""
        assert duration_ms >= 0
        self._now_ms += duration_ms
        self._suspended_ms += duration_ms

    def advance(self, duration_ms: int) -> None:
        """Advance all clocks."""
        assert duration_ms >= 0, "time passes forwards; `set_wall_clock` jumps"
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Let the wall clock jump, as an operator or NTP does; the monotonic one does not change."""
        self._now_ms = now_ms
