from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ottla.testing.controlled.broker import BrokerClock
from ottla.testing.controlled.conditions import Conditions
from ottla.testing.fake_clock import FakeClock

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOON_MS = 1_780_315_200_000
DAY_MS = 24 * 60 * 60 * 1000


class Machine:
    """A machine at noon, and the conditions that its broker has received."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOON_MS)
        self.conditions = Conditions()
        self.broker_clock = BrokerClock(self.clock, lambda: self.conditions, self._change)

    def _change(self, conditions: Conditions) -> None:
        self.conditions = conditions


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(machine: Machine) -> BrokerClock:
    return machine.broker_clock


def test_clock_is_the_machines_until_it_is_moved(machine: Machine, clock: BrokerClock) -> None:
    machine.clock.advance(5)
    assert clock.now() == NOON + timedelta(milliseconds=5)


def test_advances_add_up_and_the_clock_runs_on(machine: Machine, clock: BrokerClock) -> None:
    clock.advance(days=1, milliseconds=3)
    clock.advance(hours=24)
    machine.clock.advance(4)
    assert clock.now_ms() == NOON_MS + 2 * DAY_MS + 7
    assert machine.conditions == Conditions(wall_ahead_ms=2 * DAY_MS + 3)


def test_time_outs_pass_when_they_are_meant(machine: Machine, clock: BrokerClock) -> None:
    clock.advance(seconds=45, time_outs=True)
    clock.advance(seconds=1)
    assert machine.conditions == Conditions(wall_ahead_ms=46_000, timers_ahead_ms=45_000)


def test_frozen_clock_moves_by_advances_alone(machine: Machine, clock: BrokerClock) -> None:
    clock.freeze()
    machine.clock.advance(1_000)
    assert clock.now() == NOON
    clock.advance(minutes=5)
    machine.clock.advance(1_000)
    assert clock.now() == NOON + timedelta(minutes=5)


@pytest.mark.parametrize("at", [NOON.replace(year=2024), datetime(2024, 6, 1, 14, tzinfo=timezone(timedelta(hours=2)))])
def test_clock_is_frozen_at_any_moment_and_runs_on_from_there(
    machine: Machine, clock: BrokerClock, at: datetime
) -> None:
    clock.freeze(at)
    machine.clock.advance(1_000)
    clock.run()
    machine.clock.advance(2_000)
    assert clock.now() == NOON.replace(year=2024) + timedelta(seconds=2)


def test_clock_that_runs_is_left_alone_by_run(machine: Machine, clock: BrokerClock) -> None:
    clock.advance(days=1)
    clock.run()
    assert clock.now_ms() == NOON_MS + DAY_MS


def test_time_does_not_pass_backwards(clock: BrokerClock) -> None:
    for by in (0, -1):
        with pytest.raises(ValueError, match="forwards"):
            clock.advance(hours=by)


def test_moment_without_a_time_zone_is_refused(clock: BrokerClock) -> None:
    with pytest.raises(ValueError, match="time zone"):
        clock.freeze(datetime(2026, 1, 1))  # noqa: DTZ001 (the mistake)
