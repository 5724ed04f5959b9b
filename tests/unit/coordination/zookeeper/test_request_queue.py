from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss as LossOfConnection
from kazoo.exceptions import NoNodeError

from ottla.coordination.tree import ConnectionLoss, Lease, SessionLost
from ottla.coordination.zookeeper.client import Answer, Request
from ottla.coordination.zookeeper.requests import REQUESTS_MAX, RequestQueue
from ottla.testing.fake_clock import FakeClock

LEASE_MS = 1_000


class Numbered:
    """A request that a test can recognize."""

    type = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def serialize(self) -> bytes:
        return b""


class Wire:
    """A connection that the test answers; while it is down nothing is sent."""

    def __init__(self) -> None:
        self.is_up = True
        self.sent: list[tuple[int, Answer]] = []

    def send(self, request: Request, answer: Answer) -> bool:
        if self.is_up:
            assert isinstance(request, Numbered)
            self.sent.append((request.number, answer))
        return self.is_up

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.sent]


class Bench:
    """A queue over such a connection."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.clock = FakeClock(monotonic_ms=10_000)
        self.lease = Lease()
        self.queue = RequestQueue(self.wire, self.clock, self.lease)
        self.queue.open(LEASE_MS)

    def submit(self, number: int, *, is_write: bool = False) -> asyncio.Future[Any]:
        return self.queue.submit(Numbered(number), f"/{number}", is_write=is_write)


async def turn(change: Callable[[], None] = lambda: None) -> None:
    change()
    for _ in range(5):
        await asyncio.sleep(0)


async def test_bounded_number_is_under_way_and_the_others_follow_in_order() -> None:
    bench = Bench()
    calls = [bench.submit(number) for number in range(REQUESTS_MAX + 2)]
    assert bench.wire.numbers == list(range(REQUESTS_MAX))
    await turn(lambda: bench.wire.sent[0][1].set("first"))
    assert bench.wire.numbers == list(range(REQUESTS_MAX + 1))
    assert await calls[0] == "first"
    bench.queue.end(SessionLost)
    for call in calls[1:]:
        with pytest.raises(SessionLost):
            await call


async def test_calls_wait_for_the_next_connection_in_their_order() -> None:
    bench = Bench()
    bench.wire.is_up = False  # which the queue has not heard of yet
    calls = [bench.submit(number) for number in range(3)]
    bench.queue.hold()
    assert bench.wire.sent == []
    bench.wire.is_up = True
    bench.queue.open(LEASE_MS)
    calls.append(bench.submit(3))
    assert bench.wire.numbers == [0, 1, 2, 3]
    for number, answer in bench.wire.sent:
        answer.set(number)
    assert await asyncio.gather(*calls) == [0, 1, 2, 3]


async def test_answer_that_a_break_swallowed_fails_its_call_and_holds_the_others() -> None:
    bench = Bench()
    lost = bench.submit(0)
    bench.wire.is_up = False
    await turn(lambda: bench.wire.sent[0][1].set_exception(LossOfConnection()))
    with pytest.raises(LossOfConnection):
        await lost
    bench.wire.is_up = True
    waiting = bench.submit(1)
    assert bench.wire.numbers == [0]
    bench.queue.open(LEASE_MS)
    assert bench.wire.numbers == [0, 1]
    await turn(lambda: bench.wire.sent[1][1].set("again"))
    assert await waiting == "again"


async def test_call_that_waited_too_long_is_given_up_and_never_sent() -> None:
    bench = Bench()
    bench.queue.hold()
    old = bench.submit(0)
    bench.clock.advance(100)
    young = bench.submit(1)
    bench.queue.fail_waiting(bench.clock.monotonic_ms())
    with pytest.raises(ConnectionLoss) as failure:
        await old
    assert failure.value.path == "/0"
    bench.queue.open(LEASE_MS)
    assert bench.wire.numbers == [1]
    await turn(lambda: bench.wire.sent[0][1].set(None))
    await young


async def test_call_that_is_under_way_is_not_given_up() -> None:
    bench = Bench()
    call = bench.submit(0)
    bench.clock.advance(100_000)
    bench.queue.fail_waiting(bench.clock.monotonic_ms())
    assert not call.done()
    oldest = bench.queue.oldest()
    assert oldest is not None
    assert (oldest.path, oldest.sent_ms) == ("/0", 10_000)
    await turn(lambda: bench.wire.sent[0][1].set(None))
    assert bench.queue.oldest() is None


async def test_call_whose_caller_is_gone_is_not_sent() -> None:
    bench = Bench()
    bench.queue.hold()
    bench.submit(0).cancel()
    kept = bench.submit(1)
    bench.queue.open(LEASE_MS)
    assert bench.wire.numbers == [1]
    await turn(lambda: bench.wire.sent[0][1].set(None))
    await kept


async def test_lease_counts_from_the_moment_a_write_was_sent() -> None:
    bench = Bench()
    bench.queue.hold()
    write = bench.submit(0, is_write=True)
    bench.clock.advance(50)
    bench.queue.open(LEASE_MS)
    bench.clock.advance(500)
    assert bench.lease.until_ms == 0
    await turn(lambda: bench.wire.sent[0][1].set(None))
    await write
    assert bench.lease.until_ms == 10_050 + LEASE_MS


async def test_reads_and_failures_extend_no_lease() -> None:
    bench = Bench()
    read, write = bench.submit(0), bench.submit(1, is_write=True)
    bench.wire.sent[0][1].set(None)
    await turn(lambda: bench.wire.sent[1][1].set_exception(NoNodeError()))
    await read
    with pytest.raises(NoNodeError):
        await write
    assert bench.lease.until_ms == 0


async def test_answer_after_the_end_revives_nothing() -> None:
    bench = Bench()
    write = bench.submit(0, is_write=True)
    bench.queue.end(SessionLost)
    bench.lease.end()
    await turn(lambda: bench.wire.sent[0][1].set(None))
    with pytest.raises(SessionLost):
        await write
    with pytest.raises(SessionLost):
        await bench.submit(1)
    assert bench.lease.until_ms == 0
    assert bench.wire.numbers == [0]


async def test_queue_is_idle_when_everything_is_answered() -> None:
    bench = Bench()
    await bench.queue.wait_until_idle()
    bench.submit(0)
    idle = asyncio.ensure_future(bench.queue.wait_until_idle())
    await turn()
    assert not idle.done()
    await turn(lambda: bench.wire.sent[0][1].set(None))
    assert idle.done()
