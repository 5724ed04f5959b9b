"""The simulated day: yesterday in UTC, its hours, and its load curve."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
_MINUTES: Final = DAY_MS // MINUTE_MS

# Relative load at the full hours: night, work, lunch, and another peak in the evening.
BY_HOUR: Final = (18, 12, 9, 8, 9, 14, 28, 52, 80, 96, 100, 97, 84, 92, 97, 94, 88, 78, 66, 60, 58, 50, 38, 26)
# Machines report day and night.
EVEN: Final = (1,) * 24


def yesterday_ms(now_ms: int) -> int:
    """The start of the last whole day (UTC): recent enough for a week's retention, and not in the future."""
    return (now_ms // DAY_MS - 1) * DAY_MS


def hour_name(hour: int) -> str:
    """`hour` counts from 1970; the name is the lake's, as in 2011-06-12-09."""
    return datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC).strftime("%Y-%m-%d-%H")


def clock_name(timestamp_ms: int) -> str:
    """The time of day, as in 09:41."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%H:%M")


def arrivals(day_start_ms: int, count: int, load: Sequence[int], rng: random.Random) -> Iterator[int]:
    """Exactly `count` moments of the day in ascending order, with the density `load` (24 weights)."""
    weights = [_weight(load, minute) for minute in range(_MINUTES)]
    total = sum(weights)
    done = 0
    for minute, sum_so_far in enumerate(accumulate(weights)):
        due = count if minute == _MINUTES - 1 else int(count * sum_so_far / total)
        begin_ms = day_start_ms + minute * MINUTE_MS
        yield from sorted(begin_ms + int(rng.random() * MINUTE_MS) for _ in range(due - done))
        done = due


def _weight(load: Sequence[int], minute: int) -> float:
    """The load between two full hours, interpolated linearly; after the last hour comes the first."""
    hour, part = divmod(minute, 60)
    return load[hour] + (load[(hour + 1) % 24] - load[hour]) * part / 60
