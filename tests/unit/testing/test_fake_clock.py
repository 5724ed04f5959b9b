from __future__ import annotations

from ottla.runtime.clock import Clock
from ottla.testing.fake_clock import FakeClock


def test_clock_stands_still_until_it_is_turned() -> None:
    clock: Clock = FakeClock(now_ms=1_000, monotonic_ms=5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 5)


def test_advance_moves_both_clocks() -> None:
    clock = FakeClock(now_ms=1_000, monotonic_ms=5)
    clock.advance(20)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_020, 25)


def test_wall_clock_jumps_alone() -> None:
    clock = FakeClock(now_ms=1_000, monotonic_ms=5)
    clock.set_wall_clock(10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 5)
