"""A broker's clock, as the test that moves it sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from ottla.runtime.clock import Clock
from ottla.testing.controlled.conditions import Conditions

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class BrokerClock:
    """The time of day that a broker goes by: for retention, and for timestamps under `LogAppendTime`.

        broker.clock.advance(days=8)                                  # records older than seven days are deleted
        broker.clock.freeze(datetime(2026, 1, 1, 12, tzinfo=UTC))     # all new records are of noon
        broker.clock.advance(minutes=5)                               # and now, of five past
        broker.clock.run()                                            # it runs again, from there

    Retention has been applied when a call returns.  Clients have clocks of their own: a record under `CreateTime` has
    the time of its producer.  So has the process that counts records (`audit.enable`): its windows are of the records'
    times, and what it says about lateness and completeness is by the machine's clock.
    """

    def __init__(
        self, clock: Clock, conditions: Callable[[], Conditions], change: Callable[[Conditions], None]
    ) -> None:
        self._clock = clock
        self._conditions = conditions
        self._change = change

    def now(self) -> datetime:
        """The broker's time, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.now_ms())

    def now_ms(self) -> int:
        """The broker's time, in milliseconds since 1970: what records have as their timestamp."""
        conditions = self._conditions()
        stands_at_ms = conditions.wall_stands_at_ms
        return self._clock.now_ms() + conditions.wall_ahead_ms if stands_at_ms is None else stands_at_ms

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        time_outs: bool = False,
    ) -> None:
        """Let so much time pass at once.

        With `time_outs` it passes for time-outs, too.  Then members of consumer groups that had no chance to send a
        heartbeat meanwhile, all of them, are put out of their groups when the time is longer than their session.
        """
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        by_ms = by // _MILLISECOND
        if by_ms <= 0:
            raise ValueError(f"time passes forwards, and {by} is not: freeze(at=...) sets the clock to any moment")
        conditions = self._conditions()
        if conditions.wall_stands_at_ms is not None:
            conditions = replace(conditions, wall_stands_at_ms=conditions.wall_stands_at_ms + by_ms)
        else:
            conditions = replace(conditions, wall_ahead_ms=conditions.wall_ahead_ms + by_ms)
        if time_outs:
            conditions = replace(conditions, timers_ahead_ms=conditions.timers_ahead_ms + by_ms)
        self._change(conditions)

    def freeze(self, at: datetime | None = None) -> None:
        """Stop the clock at this moment, or now; `advance` moves it.  Time-outs continue.

        `at` needs a time zone, and may be in the past.
        """
        if at is not None and at.tzinfo is None:
            raise ValueError(f"{at} has no time zone: datetime(..., tzinfo=UTC)")
        at_ms = self.now_ms() if at is None else (at - _EPOCH) // _MILLISECOND
        self._change(replace(self._conditions(), wall_stands_at_ms=at_ms))

    def run(self) -> None:
        """Let a frozen clock run from its frozen time."""
        conditions = self._conditions()
        if conditions.wall_stands_at_ms is not None:
            ahead_ms = conditions.wall_stands_at_ms - self._clock.now_ms()
            self._change(replace(conditions, wall_stands_at_ms=None, wall_ahead_ms=ahead_ms))
