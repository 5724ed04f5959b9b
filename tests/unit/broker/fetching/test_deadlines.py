"""Deadlines: one timer for all that waits."""

from __future__ import annotations

from ottla.broker.fetching.parked_fetches import FetchDeadlines
from tests.unit.broker.turned_loop import TurnedLoop


class Waiting:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.is_over = False

    def on_expired(self) -> None:
        self.log.append(self.name)
        self.is_over = True


def make() -> tuple[TurnedLoop, FetchDeadlines, list[str]]:
    loop = TurnedLoop()
    return loop, FetchDeadlines(loop), []  # type: ignore[arg-type]  # the part of a loop that deadlines use


def test_what_waits_expires_in_the_order_of_deadlines_not_of_arrival() -> None:
    loop, deadlines, log = make()
    for name, delay_ms in (("late", 900), ("early", 100), ("middle", 500)):
        deadlines.add(Waiting(name, log), delay_ms)
    loop.advance(0.05)
    assert log == []
    loop.advance(0.06)
    assert log == ["early"]
    loop.advance(1)
    assert log == ["early", "middle", "late"]


def test_what_is_over_before_its_deadline_does_not_expire() -> None:
    loop, deadlines, log = make()
    over, other = Waiting("over", log), Waiting("other", log)
    deadlines.add(over, 100)
    deadlines.add(other, 200)
    over.is_over = True
    loop.advance(1)
    assert log == ["other"]


def test_deadlines_do_not_gather_what_is_over() -> None:
    _, deadlines, log = make()
    for _ in range(10_000):
        waiting = Waiting("x", log)
        deadlines.add(waiting, 500)
        waiting.is_over = True
    assert deadlines.waiting_count < 2_100


def test_nothing_expires_after_cancel() -> None:
    loop, deadlines, log = make()
    deadlines.add(Waiting("x", log), 100)
    deadlines.cancel()
    loop.advance(1)
    assert log == []
