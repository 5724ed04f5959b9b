"""How long a process that ended waits for its next start.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


class RestartDelays:
    """The delays of processes that end one after the other; the last one holds for all further ones.

    One that has run for `steady_after_ms` did start: the delays begin again.
    """

    def __init__(self, delays_ms: Sequence[int], steady_after_ms: int) -> None:
        assert delays_ms
        self._delays_ms: Final = tuple(delays_ms)
        self._steady_after_ms: Final = steady_after_ms
        self._ends_count = 0

    def after(self, ran_ms: int) -> int:
        """The delay of the next start, after a process that ran for so long."""
        if ran_ms >= self._steady_after_ms:
            self._ends_count = 0
        delay_ms = self._delays_ms[min(self._ends_count, len(self._delays_ms) - 1)]
        self._ends_count += 1
        return delay_ms
