"""The pulse of the event loop, with time turned by hand."""

from __future__ import annotations

from ottla.coordination.zookeeper.client import LoopPulse
from ottla.testing.fake_clock import FakeClock


def test_loop_counts_as_stopped_once_its_last_beat_is_older_than_the_limit() -> None:
    clock = FakeClock()
    pulse = LoopPulse(clock)
    clock.advance(1_000)
    assert not pulse.has_stopped(1_000)
    clock.advance(1)
    assert pulse.has_stopped(1_000)


def test_loop_that_beats_again_has_not_stopped() -> None:
    clock = FakeClock()
    pulse = LoopPulse(clock)
    clock.advance(5_000)
    pulse.beat()
    assert not pulse.has_stopped(1_000)
