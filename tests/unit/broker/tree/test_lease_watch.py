"""The end of the lease is noticed without any request, and before the timer where a process was paused."""

from __future__ import annotations

import pytest

from ottla.broker.tree.broker_lifecycle import CHECK_INTERVAL_MS_MAX, RENEWAL_CHECK_MS, BrokerLifecycle, LeaseWatch
from ottla.coordination.tree import LEASE_FOREVER, Lease
from tests.unit.broker.roles import HERE
from tests.unit.broker.turned_loop import TurnedClock

LEASE_MS = 4_000


class Watched:
    """A watched lease, and what its changes were."""

    def __init__(self, until_ms: int = LEASE_MS) -> None:
        self.clock = TurnedClock()
        self.lease = Lease(until_ms)
        self.lifecycle = BrokerLifecycle(HERE, self.lease)
        self.changes: list[bool] = []
        self.fails = False
        self.watch = LeaseWatch(
            self.lifecycle,
            self.lease,
            self.clock,
            self.clock,  # type: ignore[arg-type]  # the part of a loop that it uses
            self._on_change,
        )
        self.watch.start()

    def _on_change(self) -> None:
        self.changes.append(self.lifecycle.is_suspended)
        if self.fails:
            raise ZeroDivisionError

    def advance_ms(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_broker_is_suspended_the_moment_its_lease_ends(watched: Watched) -> None:
    watched.advance_ms(LEASE_MS - 1)
    assert watched.changes == []
    watched.advance_ms(1)
    assert watched.changes == [True]


def test_lease_that_is_extended_in_time_changes_nothing(watched: Watched) -> None:
    for _ in range(10):
        watched.advance_ms(LEASE_MS // 2)
        watched.lease.extend(watched.clock.boottime_ms() + LEASE_MS)
    assert watched.changes == []
    assert watched.clock.timers_count == 1


def test_broker_serves_again_soon_after_its_lease_is_extended(watched: Watched) -> None:
    watched.advance_ms(LEASE_MS)
    watched.lease.extend(watched.clock.boottime_ms() + LEASE_MS)
    watched.advance_ms(RENEWAL_CHECK_MS)
    assert watched.changes == [True, False]
    watched.advance_ms(LEASE_MS)
    assert watched.changes == [True, False, True], "the next end is noticed, too"


def test_lease_that_stays_over_is_one_change(watched: Watched) -> None:
    watched.advance_ms(LEASE_MS)
    for _ in range(100):
        watched.advance_ms(RENEWAL_CHECK_MS)
        watched.watch.check()
    assert watched.changes == [True]


def test_read_of_a_process_that_was_paused_is_checked_before_the_timer(watched: Watched) -> None:
    watched.clock.now_s += LEASE_MS / 1000
    watched.watch.check()
    assert watched.changes == [True]
    watched.advance_ms(0)
    assert watched.changes == [True]


def test_lease_that_ends_with_its_session_is_noticed_by_the_next_read(watched: Watched) -> None:
    watched.lease.end()
    watched.watch.check()
    assert watched.changes == [True]


def test_lease_that_never_ends_is_compared_now_and_then() -> None:
    watched = Watched(LEASE_FOREVER)
    watched.advance_ms(CHECK_INTERVAL_MS_MAX)
    assert watched.changes == []
    assert watched.clock.timers_count == 1


def test_change_that_fails_does_not_end_the_watch(watched: Watched) -> None:
    watched.fails = True
    with pytest.raises(ZeroDivisionError):
        watched.advance_ms(LEASE_MS)
    watched.fails = False
    watched.lease.extend(2 * LEASE_MS)
    watched.advance_ms(RENEWAL_CHECK_MS)
    assert watched.changes == [True, False]


def test_watch_that_is_stopped_sets_no_timer(watched: Watched) -> None:
    watched.watch.stop()
    watched.advance_ms(2 * LEASE_MS)
    assert watched.changes == []
    assert watched.clock.timers_count == 0
