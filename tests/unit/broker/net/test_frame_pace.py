"""The pace of a frame: how little is too little, and whom it harms."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.net.frame_pace import FramePace, PaceRules, UnfinishedFrame

# The rules of a broker with defaults: 16 KiB/s, sweeps of 0.5 s, windows of 30 s and 5 s.
RULES = PaceRules(8 * 1024, 60, 10)
KB = 1000


def frame(received_bytes: int, *, holds_budget: bool = True) -> UnfinishedFrame:
    return UnfinishedFrame(0, received_bytes, holds_budget)


def refused_after(
    received: Sequence[int], *, is_contended: bool = False, holds_budget: bool = True, rules: PaceRules = RULES
) -> int | None:
    """After how many sweeps a frame of which so many bytes have come at each sweep is too slow; None: never."""
    pace = FramePace(rules, 0, frame(received[0], holds_budget=holds_budget))
    for sweep, received_bytes in enumerate(received[1:], 1):
        each = frame(received_bytes, holds_budget=holds_budget)
        if pace.is_too_slow(sweep, each, is_contended=is_contended):
            return sweep
    return None


def test_megabyte_on_a_link_of_64_kilobytes_a_second_is_taken_whoever_waits() -> None:
    assert refused_after(range(0, 1000 * KB, 32 * KB), is_contended=True) is None


def test_link_at_the_least_rate_is_taken() -> None:
    assert refused_after(range(0, 100_000_000, 8 * 1024)) is None


def test_trickle_ends_after_a_window() -> None:
    assert refused_after(range(1_000)) == 60


def test_trickle_that_others_wait_for_ends_after_the_short_window() -> None:
    assert refused_after(range(1_000), is_contended=True) == 10


def test_trickle_without_memory_is_in_nobodys_way() -> None:
    assert refused_after(range(1_000), is_contended=True, holds_budget=False) == 60


def test_what_came_fast_buys_no_time_for_a_trickle_behind_it() -> None:
    burst = [0, *range(33_000_000, 33_001_000)]
    assert refused_after(burst, is_contended=True) == 11
    assert refused_after(burst) == 61


def test_pause_of_less_than_a_window_is_forgiven() -> None:
    paused = [0, *[200 * KB] * 50, *[700 * KB] * 50, *[1_200 * KB] * 50]
    assert refused_after(paused) is None


def test_without_a_least_rate_some_byte_is_enough() -> None:
    free = RULES._replace(bytes_per_sweep=0)
    assert refused_after(range(1_000), rules=free) is None
    assert refused_after([5] * 1_000, rules=free) == 60


def test_another_frame_is_told_by_where_it_begins() -> None:
    pace = FramePace(RULES, 0, frame(10))
    assert pace.is_of(frame(500))
    assert not pace.is_of(UnfinishedFrame(1_000, 10, holds_budget=True))
