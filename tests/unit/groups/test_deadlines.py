from __future__ import annotations

import pytest

from ottla.groups import deadlines as deadlines_module
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.deadlines import Deadline, Deadlines
from tests.unit.groups.coordinator import Coordinator

GROUP = ClassicGroup("team", Coordinator().shard)


def deadline(name: str = "x") -> Deadline:
    return Deadline(GROUP, "session", name)


def test_deadlines_come_up_in_their_order() -> None:
    deadlines, late, early = Deadlines(), deadline("late"), deadline("early")
    deadlines.arm(late, 200)
    deadlines.arm(early, 100)
    assert deadlines.next_due_ms() == 100
    assert deadlines.take_due(99) is None
    assert deadlines.take_due(300) is early
    assert deadlines.take_due(300) is late
    assert deadlines.take_due(300) is None
    assert deadlines.next_due_ms() is None


def test_deadline_that_moves_away_is_not_due_at_its_old_time() -> None:
    deadlines, one = Deadlines(), deadline()
    deadlines.arm(one, 100)
    deadlines.arm(one, 500)
    assert deadlines.take_due(499) is None
    assert deadlines.next_due_ms() == 500
    assert deadlines.take_due(500) is one


def test_deadline_that_moves_nearer_is_due_once_at_its_new_time() -> None:
    deadlines, one = Deadlines(), deadline()
    deadlines.arm(one, 500)
    deadlines.arm(one, 100)
    assert deadlines.take_due(100) is one
    assert deadlines.take_due(10_000) is None


def test_disarmed_deadline_never_comes_up_and_may_be_armed_again() -> None:
    deadlines, one = Deadlines(), deadline()
    deadlines.arm(one, 100)
    one.due_ms = None
    assert deadlines.take_due(1_000) is None
    deadlines.arm(one, 2_000)
    assert deadlines.take_due(2_000) is one


def test_moving_a_deadline_away_a_thousand_times_queues_it_once() -> None:
    deadlines, one = Deadlines(), deadline()
    for moved in range(1_000):
        deadlines.arm(one, 100 + moved)
    assert deadlines.queued_count == 1
    assert deadlines.take_due(1_098) is None
    assert deadlines.take_due(1_099) is one


def test_cleared_deadlines_are_forgotten() -> None:
    deadlines, one = Deadlines(), deadline()
    deadlines.arm(one, 100)
    deadlines.clear()
    assert deadlines.take_due(1_000) is None
    assert one.due_ms is None


def test_flood_of_deadlines_that_are_disarmed_is_swept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines_module, "SWEPT_COUNT_MIN", 10)
    deadlines, kept = Deadlines(), deadline("kept")
    deadlines.arm(kept, 5_000)
    deadlines.arm(kept, 4_000)
    for number in range(1_000):
        gone = deadline(f"gone{number}")
        deadlines.arm(gone, 10_000)
        gone.due_ms = None
        assert deadlines.queued_count <= 21
    again = deadline("again")
    for due_ms in (9_000, None, 3_000):
        if due_ms is None:
            again.due_ms = None
        else:
            deadlines.arm(again, due_ms)
    assert deadlines.take_due(10_000) is again
    assert deadlines.take_due(10_000) is kept
    assert deadlines.take_due(20_000) is None
