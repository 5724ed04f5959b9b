from __future__ import annotations

from ottla.runtime.restart_delays import RestartDelays


def test_delays_grow_and_the_last_one_stays() -> None:
    delays = RestartDelays((0, 500, 1_000), steady_after_ms=10_000)
    assert [delays.after(ran_ms=10) for _ in range(5)] == [0, 500, 1_000, 1_000, 1_000]


def test_delays_begin_again_after_a_process_that_ran_for_long() -> None:
    delays = RestartDelays((0, 500, 1_000), steady_after_ms=10_000)
    assert [delays.after(ran_ms) for ran_ms in (10, 9_999, 10_000, 10)] == [0, 500, 0, 500]
