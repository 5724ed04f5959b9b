"""The time limit of a call, and the pauses between attempts."""

from __future__ import annotations

import random
from collections.abc import Callable

from ottla.runtime.clock import Clock


class Deadline:
    """A moment of the monotonic clock."""

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self._at_ms = clock.monotonic_ms() + timeout_ms

    @property
    def remaining_ms(self) -> float:
        """Never negative."""
        return max(0.0, self._at_ms - self._clock.monotonic_ms())

    @property
    def has_passed(self) -> bool:
        return self._clock.monotonic_ms() >= self._at_ms

    def at_most(self, timeout_ms: float) -> Deadline:
        """The earlier of this moment and `timeout_ms` from now."""
        return Deadline(self._clock, min(self.remaining_ms, timeout_ms))


class Backoff:
    """Exponential pauses up to a limit, with 20 % of jitter, so that clients do not retry in step."""

    def __init__(
        self, first_ms: float, limit_ms: float, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first_ms = first_ms
        self._limit_ms = limit_ms
        self._uniform = uniform
        self._failures_count = 0

    def next_ms(self) -> float:
        pause_ms = min(self._limit_ms, self._first_ms * 2.0 ** min(self._failures_count, 30))
        self._failures_count += 1
        return pause_ms * self._uniform(0.8, 1.2)
