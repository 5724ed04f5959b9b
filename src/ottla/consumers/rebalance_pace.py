"""When a consumer looks, and looks again: bursts of changes are collected, retries are spread."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

NEVER_MS: Final = 2**63 - 1


class RebalancePace(NamedTuple):
    """Times of a rebalance.  A change is acted on at most `collect_max_ms` after it was seen."""

    # A group has changed: so long nothing more must change, before the share is computed.
    collect_ms: int = 50
    collect_max_ms: int = 1000
    # Another consumer holds a partition: the first wait before it is read again; each wait is twice the last.
    retry_ms: int = 50
    retry_max_ms: int = 2000
    # After so many the rebalance is reported as blocked.
    attempts_max: int = 8


class BurstWindow:
    """Open from the first change of a burst until its time, which each further change puts off, within a bound."""

    __slots__ = ("_chance", "_first_ms", "_pace", "due_ms")

    def __init__(self, pace: RebalancePace, chance: random.Random) -> None:
        self._pace: Final = pace
        self._chance: Final = chance
        self._first_ms = 0
        self.due_ms = NEVER_MS

    @property
    def is_open(self) -> bool:
        return self.due_ms != NEVER_MS

    def on_change(self, now_ms: int) -> None:
        if not self.is_open:
            self._first_ms = now_ms
        # Not all consumers of a group at once.
        wait_ms = int(self._pace.collect_ms * (0.5 + self._chance.random()))
        self.due_ms = min(now_ms + wait_ms, self._first_ms + self._pace.collect_max_ms)

    def close(self) -> None:
        self.due_ms = NEVER_MS


class Retries:
    """Waits that double, up to a bound, each longer or shorter by chance."""

    __slots__ = ("_chance", "_pace", "attempts_count", "due_ms")

    def __init__(self, pace: RebalancePace, chance: random.Random) -> None:
        self._pace: Final = pace
        self._chance: Final = chance
        self.attempts_count = 0
        self.due_ms = NEVER_MS

    @property
    def is_waiting(self) -> bool:
        return self.due_ms != NEVER_MS

    def wait(self, now_ms: int) -> None:
        longest_ms = min(self._pace.retry_ms << min(self.attempts_count, 16), self._pace.retry_max_ms)
        self.attempts_count += 1
        self.due_ms = now_ms + int(longest_ms * (0.5 + self._chance.random() / 2)) + 1

    def on_due(self) -> None:
        self.due_ms = NEVER_MS

    def reset(self) -> None:
        self.attempts_count = 0
        self.due_ms = NEVER_MS
