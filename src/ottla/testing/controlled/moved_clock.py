"""The machine's clocks, and how far a test has moved them."""

from __future__ import annotations

from ottla.runtime.clock import SystemClock
from ottla.testing.controlled.conditions import Conditions


class MovedClock(SystemClock):
    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions

    def now_ms(self) -> int:
        stands_at_ms = self.conditions.wall_stands_at_ms
        return super().now_ms() + self.conditions.wall_ahead_ms if stands_at_ms is None else stands_at_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.conditions.timers_ahead_ms

    def boottime_ms(self) -> int:
        return super().boottime_ms() + self.conditions.timers_ahead_ms
