"""A clean's rate."""

from __future__ import annotations

from ottla.storage.compaction.worker import Throttle


class Time:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


def test_bytes_take_the_time_that_the_rate_allows() -> None:
    time = Time()
    throttle = Throttle(1_000_000, time.now_ms, time.sleep)
    for _ in range(100):
        throttle.charge(50_000)
    assert 4_980 <= time.ms <= 5_000


def test_slow_work_does_not_wait_and_saves_nothing_up() -> None:
    time = Time()
    throttle = Throttle(1_000_000, time.now_ms, time.sleep)
    time.ms = 60_000
    throttle.charge(1_000)
    assert time.ms == 60_000
    throttle.charge(100_000)
    assert time.ms == 60_100
