"""Keeping a clean's reading and writing below a rate (`log.cleaner.io.max.bytes.per.second`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Shorter waits are accumulated: a sleep has a cost of its own.
_WAIT_MS_MIN: Final = 20


class Throttle:
    """Counts bytes against time; `charge` waits when the rate is exceeded.  Unused bytes are not carried over."""

    def __init__(
        self, bytes_per_second: float, monotonic_ms: Callable[[], int], sleep: Callable[[float], None]
    ) -> None:
        """`sleep` is called with seconds."""
        self._bytes_per_ms = bytes_per_second / 1000
        self._monotonic_ms = monotonic_ms
        self._sleep = sleep
        self._free_at_ms = float(monotonic_ms())

    def charge(self, size_bytes: int) -> None:
        self._free_at_ms += size_bytes / self._bytes_per_ms
        now_ms = self._monotonic_ms()
        wait_ms = self._free_at_ms - now_ms
        if wait_ms >= _WAIT_MS_MIN:
            self._sleep(wait_ms / 1000)
        elif wait_ms < 0:
            self._free_at_ms = float(now_ms)
