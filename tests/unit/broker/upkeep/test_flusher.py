"""The flusher: one plan at a time, times kept, and an end that leaves no plan under way."""

from __future__ import annotations

import asyncio
import errno
import queue
import threading
from collections.abc import Callable

import pytest

from ottla.broker.upkeep.flusher import Flusher
from ottla.runtime.event_loop import run
from ottla.storage.log.flush import STUCK_FLUSH_MS
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.broker.turned_loop import TurnedClock


class Plan:
    """Ends when the test lets it, with the error that the test gives."""

    took_ms: float

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.failure: BaseException | None = None

    def execute(self, disk: object) -> None:
        assert self.may_end.wait(10)
        if self.failure is not None:
            raise self.failure


class Scheduler:
    """Plans are there when the test adds them; `due_ms` is when the next one would be."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.in_flight: Plan | None = None
        self.completed: list[tuple[Plan, OSError | None]] = []
        self.due_ms: int | None = None
        self.asked_at_ms: list[int] = []
        self.mark: Callable[[], None]
        self.is_stuck = False
        # Whether an acknowledgement waits for the plan in flight.
        self.is_waited_for = True
        self.looked_at_ms: list[int] = []

    def watch(self, on_marked: Callable[[], None]) -> None:
        self.mark = on_marked

    def plan(self, now_ms: int) -> Plan | None:
        self.asked_at_ms.append(now_ms)
        assert self.in_flight is None
        if self.plans:
            self.in_flight = self.plans.pop(0)
        return self.in_flight

    def next_due_ms(self, now_ms: int) -> int | None:
        return self.due_ms

    def complete(self, plan: Plan, error: OSError | None, now_ms: int) -> None:
        assert plan is self.in_flight
        self.in_flight = None
        self.completed.append((plan, error))
        self.is_stuck = False

    def becomes_stuck(self, now_ms: int) -> bool:
        self.looked_at_ms.append(now_ms)
        self.is_stuck = self.is_waited_for
        return self.is_stuck


def flusher_of(scheduler: Scheduler, loop: object, on_flushed: Callable[[OSError | None], None]) -> Flusher:
    clock = loop if isinstance(loop, TurnedClock) else FakeClock()
    return Flusher(scheduler, MemoryDisk(), clock, loop, on_flushed)  # type: ignore[arg-type]  # what it uses of them


def test_flusher_waits_for_the_log_that_is_due_first_when_one_that_waits_longer_was_dirty_before() -> None:
    loop, scheduler = TurnedClock(), Scheduler()
    flusher = flusher_of(scheduler, loop, lambda _: None)
    flusher.start()
    scheduler.due_ms = 60_000
    scheduler.mark()
    loop.turn()
    scheduler.due_ms = 1_000
    scheduler.mark()
    loop.turn()
    scheduler.asked_at_ms.clear()
    loop.advance(1.0)
    assert scheduler.asked_at_ms == [1_000]
    run(flusher.stop())


def test_flusher_asks_at_its_start_and_then_once_for_all_marks_of_a_turn() -> None:
    async def scenario() -> None:
        scheduler = Scheduler()
        flusher = flusher_of(scheduler, asyncio.get_running_loop(), lambda _: None)
        flusher.start()
        await asyncio.sleep(0)
        assert len(scheduler.asked_at_ms) == 1
        await asyncio.sleep(0)
        for _ in range(5):
            scheduler.mark()
        await asyncio.sleep(0)
        assert len(scheduler.asked_at_ms) == 2
        await flusher.stop()

    run(scenario())


def test_flusher_asks_whether_what_is_stable_may_be_told_before_it_is() -> None:
    async def scenario() -> None:
        scheduler, order = Scheduler(), []
        flusher = Flusher(
            scheduler,  # type: ignore[arg-type]  # what it uses of it
            MemoryDisk(),
            FakeClock(),
            asyncio.get_running_loop(),
            lambda _: order.append(("flushed", len(scheduler.completed))),
            lambda: order.append(("before", len(scheduler.completed))),
        )
        plan = Plan()
        plan.may_end.set()
        scheduler.plans.append(plan)
        flusher.start()
        await asyncio.sleep(0)
        await flusher.stop()
        assert order == [("before", 0), ("flushed", 1)]

    run(scenario())


def test_flusher_ends_only_when_the_flush_that_followed_the_one_under_way_has_ended() -> None:
    async def scenario() -> None:
        scheduler = Scheduler()
        flusher = flusher_of(scheduler, asyncio.get_running_loop(), lambda _: None)
        first, second = Plan(), Plan()
        scheduler.plans += [first, second]
        flusher.start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert scheduler.in_flight is first
        second.may_end.set()

        async def in_flight_after_stop() -> object:
            # Looked at without another turn of the loop, as the log directory does when it closes.
            await flusher.stop()
            return scheduler.in_flight

        stopping = asyncio.ensure_future(in_flight_after_stop())
        await asyncio.sleep(0)
        first.may_end.set()
        assert await stopping is None
        assert [plan for plan, _ in scheduler.completed] == [first, second]

    run(scenario())


def test_flusher_plans_nothing_after_its_end() -> None:
    async def scenario() -> None:
        scheduler = Scheduler()
        flusher = flusher_of(scheduler, asyncio.get_running_loop(), lambda _: None)
        flusher.start()
        scheduler.plans.append(Plan())
        await flusher.stop()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert scheduler.in_flight is None

    run(scenario())


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "cannot sync"), ValueError("a closed file")])
def test_flusher_tells_of_a_flush_that_failed_for_whatever_reason(failure: Exception) -> None:
    async def scenario() -> None:
        scheduler = Scheduler()
        told: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        flusher = flusher_of(scheduler, asyncio.get_running_loop(), told.set_result)
        plan = Plan()
        plan.failure = failure
        plan.may_end.set()
        scheduler.plans.append(plan)
        flusher.start()
        error = await asyncio.wait_for(told, 10)
        assert error is not None
        assert error.errno == errno.EIO
        assert scheduler.completed == [(plan, error)]
        await flusher.stop()

    run(scenario())


class LoopWithThread(TurnedClock):
    """Keeps what the flusher's thread schedules until the test runs it."""

    def __init__(self) -> None:
        super().__init__()
        self._from_thread: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        self._from_thread.put(lambda: callback(*args))

    def run_from_thread(self) -> None:
        """Waits for the thread."""
        self._from_thread.get(timeout=10)()


def test_flush_that_is_stuck_and_its_end_are_announced_once_each(caplog: pytest.LogCaptureFixture) -> None:
    loop, scheduler = LoopWithThread(), Scheduler()
    changes: list[bool] = []
    flusher = Flusher(
        scheduler,  # type: ignore[arg-type]  # what it uses of it
        MemoryDisk(),
        loop,
        loop,  # type: ignore[arg-type]  # what it uses of it
        lambda _: None,
        on_stuck_changed=lambda: changes.append(scheduler.is_stuck),
    )
    first, stuck = Plan(), Plan()
    first.may_end.set()
    scheduler.plans += [first, stuck]
    scheduler.is_waited_for = False
    flusher.start()
    loop.turn()
    loop.advance(1.0)
    # The second one starts when the first one ends, a second later than the timer.
    loop.run_from_thread()
    loop.advance(STUCK_FLUSH_MS / 1000 - 1)
    loop.advance(1.0)
    assert changes == []
    scheduler.is_waited_for = True
    loop.advance(1.0)
    assert changes == [True]
    loop.advance(60)
    stuck.may_end.set()
    loop.run_from_thread()
    assert changes == [True, False]
    # Not before it may be stuck, and no more once it is.
    assert scheduler.looked_at_ms == [5_000, 6_000, 7_000]
    warned = [(record.getMessage(), vars(record)["ottla_facts"]) for record in caplog.records]
    assert warned == [("flush.stuck", {"seconds": 6.0}), ("flush.recovered", {"seconds": 66.0})]
    run(flusher.stop())
    assert loop.timers_count == 0
