"""What one connection may have created: a minute's share, then as it comes back."""

from __future__ import annotations

from ottla.broker.net.auto_creations import UNBOUNDED, AutoCreations

MINUTE_MS = 60_000


def test_a_minutes_share_is_there_at_once_and_no_more() -> None:
    creations = AutoCreations()
    assert [creations.take(5, 3) for _ in range(5)] == [True, True, True, False, False]


def test_share_comes_back_with_time_up_to_itself() -> None:
    creations = AutoCreations()
    assert all(creations.take(0, 3) for _ in range(3))
    assert not creations.take(MINUTE_MS // 3 - 1, 3)
    assert creations.take(MINUTE_MS // 3, 3)
    assert not creations.take(MINUTE_MS // 3 + 1, 3)
    later_ms = 100 * MINUTE_MS
    assert [creations.take(later_ms, 3) for _ in range(4)] == [True, True, True, False]


def test_without_a_bound_nothing_is_counted() -> None:
    creations = AutoCreations()
    assert all(creations.take(0, UNBOUNDED) for _ in range(10_000))


def test_none_may_be_created_at_all() -> None:
    assert not AutoCreations().take(0, 0)
