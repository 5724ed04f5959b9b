"""The receive budget: a limit, turns in order, and no connection waits for ever."""

from __future__ import annotations

from ottla.broker.net.receive_buffer import ReceiveBudget


class Taker:
    """Grows step by step as a connection does, and tries again when it is called."""

    def __init__(self, budget: ReceiveBudget, *, is_small: bool = True) -> None:
        self.budget = budget
        self.is_small = is_small
        self.held_bytes = 0
        self.wanted_bytes = 0

    def want(self, size_bytes: int) -> bool:
        self.wanted_bytes = size_bytes
        self.on_room()
        return self.wanted_bytes == 0

    def on_room(self) -> None:
        if self.budget.take(self.wanted_bytes, self.on_room, held_bytes=self.held_bytes, is_small=self.is_small):
            self.held_bytes += self.wanted_bytes
            self.wanted_bytes = 0

    def leave(self) -> None:
        held_bytes, self.held_bytes = self.held_bytes, 0
        self.budget.forget(self.on_room)
        self.budget.release(held_bytes)


def test_budget_serves_the_first_to_ask_even_above_the_limit() -> None:
    taker = Taker(ReceiveBudget(100))
    assert taker.want(1_000)


def test_budget_serves_who_waits_in_order_when_room_is_given_back() -> None:
    budget = ReceiveBudget(100)
    holder, first, second = Taker(budget), Taker(budget), Taker(budget)
    assert holder.want(100)
    assert not first.want(60)
    assert not second.want(60)
    assert budget.is_contended
    holder.leave()
    assert (first.held_bytes, second.held_bytes) == (60, 0)
    first.leave()
    assert second.held_bytes == 60
    assert not budget.is_contended


def test_budget_serves_somebody_when_all_holders_wait_for_each_other() -> None:
    budget = ReceiveBudget(100)
    first, second = Taker(budget), Taker(budget)
    assert first.want(50)
    assert second.want(50)
    assert not first.want(30)
    assert second.want(30), "no other connection could release memory"
    second.leave()
    assert first.held_bytes == 80


def test_budget_serves_somebody_when_the_only_holder_that_did_not_wait_has_left() -> None:
    budget = ReceiveBudget(100)
    first, second, reading = Taker(budget), Taker(budget), Taker(budget)
    assert first.want(45)
    assert second.want(45)
    assert reading.want(10)
    assert not first.want(50)
    assert not second.want(50)
    reading.leave()
    assert sorted((first.held_bytes, second.held_bytes)) == [45, 95]


def test_budget_keeps_nothing_of_who_left_while_waiting() -> None:
    budget = ReceiveBudget(100)
    holder, gone = Taker(budget), Taker(budget)
    assert holder.want(100)
    for _ in range(100):
        assert not gone.want(50)
        gone.leave()
    assert not budget.is_contended
    holder.leave()
    assert budget.taken_bytes == 0


def test_small_requests_do_not_wait_for_large_ones() -> None:
    budget = ReceiveBudget(100)
    large, other, small = Taker(budget, is_small=False), Taker(budget, is_small=False), Taker(budget)
    assert large.want(75)
    assert not other.want(1), "a quarter is left to small ones"
    assert small.want(25)


def test_small_requests_wait_for_small_ones_that_fill_the_budget() -> None:
    budget = ReceiveBudget(100)
    first, second = Taker(budget), Taker(budget)
    assert first.want(100)
    assert not second.want(1)
    first.leave()
    assert second.held_bytes == 1
