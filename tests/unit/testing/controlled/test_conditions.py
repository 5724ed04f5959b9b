from __future__ import annotations

from ottla.testing.controlled.conditions import Conditions, Start
from ottla.testing.controlled.process import MovedClock

CHANGED = Conditions(-5, 1_000, 7, True, 20, 30)


def test_conditions_come_out_of_their_line_as_they_went_in() -> None:
    assert Conditions.from_line(CHANGED.to_line()) == CHANGED
    assert Conditions.from_line(Conditions().to_line()) == Conditions()


def test_start_comes_out_of_its_line_as_it_went_in() -> None:
    start = Start("/data/ä\n", True, "127.0.0.1:0", {"node.id": "1"}, "127.0.0.1:1", True, CHANGED)
    line = start.to_line()
    assert line.count(b"\n") == 1
    assert Start.from_line(line) == start


def test_clock_shows_what_the_conditions_say() -> None:
    real = MovedClock(Conditions())
    moved = MovedClock(Conditions(wall_ahead_ms=10**9, timers_ahead_ms=10**6))
    assert 10**9 <= moved.now_ms() - real.now_ms() < 10**9 + 60_000
    assert 10**6 <= moved.monotonic_ms() - real.monotonic_ms() < 10**6 + 60_000
    assert 10**6 <= moved.boottime_ms() - real.boottime_ms() < 10**6 + 60_000
    moved.conditions = Conditions(wall_ahead_ms=10**9, wall_stands_at_ms=17)
    assert moved.now_ms() == 17
