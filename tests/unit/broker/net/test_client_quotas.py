"""A throttled connection: answered at once, then muted for the time of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from ottla.broker.net.client_quotas import ClientQuotas, Timed
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.net.request_tasks import RequestTasks
from ottla.broker.quotas.quota_limits import QuotaLimits
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.quotas.rate import Window
from ottla.broker.quotas.usage import QuotaUsage
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.quotas import QuotaEntity, QuotaKind
from ottla.protocol.primitives import RequestBytes
from tests.unit.broker.turned_loop import TurnedClock, connected_pair

FRAME = b"\x00\x00\x00\x0c\x00\x12\x00\x00\x00\x00\x00\x01\x00\x02me"
WINDOW = Window(11, 1_000)
Script = Callable[["Throttled"], None]


class Throttled:
    """A connection of `User:alice`, before a router that counts each request as the test scripts it."""

    def __init__(self, kind: QuotaKind, value: float, script: Script) -> None:
        self.clock = TurnedClock()
        self.quotas = Quotas(QuotaUsage(WINDOW, WINDOW), self.clock, 1_000)
        self.quotas.follow(QuotaLimits(1, {QuotaEntity("alice"): {kind: value}}))
        self.script = script
        self.throttles: list[int] = []
        self.parked: list[Answer] = []
        self.client, server = connected_pair()
        self.connection = Connection(
            server,
            self.clock,
            self,
            ReceiveBudget(1 << 20),
            1 << 20,
            lambda _connection: None,
            principal="User:alice",
            quotas_of=self.quotas_of,
        )

    def quotas_of(self, connection: object, principal: str) -> ClientQuotas | None:
        if not self.quotas.limits.has_clients:
            return None
        timers: object = self.clock
        return ClientQuotas(self.quotas, connection, principal.partition(":")[2], timers)  # type: ignore[arg-type]

    @property
    def own(self) -> ClientQuotas:
        assert self.connection.quotas is not None
        return self.connection.quotas

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        quotas = self.own
        quotas.begin("me", end - position)
        self.script(self)
        quotas.settle()

    def request(self, count: int = 1) -> None:
        self.client.sendall(FRAME * count)
        self.clock.turn()

    def answers(self) -> bytes:
        try:
            return self.client.recv(1 << 16)
        except BlockingIOError:
            return b""


class Make(Protocol):
    def __call__(self, kind: QuotaKind, value: float, script: Script = ...) -> Throttled: ...


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Throttled] = []

    def one(kind: QuotaKind, value: float, script: Script = lambda _: None) -> Throttled:
        made.append(Throttled(kind, value, script))
        return made[-1]

    yield one
    for each in made:
        each.connection.close("the test ended")
        each.client.close()


def produce(size_bytes: int) -> Script:
    def script(throttled: Throttled) -> None:
        throttled.own.begin("me", size_bytes)
        throttled.throttles.append(throttled.own.produced())
        throttled.connection.answer_now(b"x")

    return script


def throttled_by(make: Make, size_bytes: int) -> Throttled:
    return make(QuotaKind.PRODUCER_BYTE_RATE, 1_000, produce(size_bytes))


def test_throttled_request_is_answered_at_once_and_the_next_one_after_the_time(make: Make) -> None:
    throttled = throttled_by(make, 12_000)
    throttled.request()
    assert throttled.throttles == [2_000]
    assert throttled.answers() == b"x"
    throttled.request()
    throttled.clock.advance(1.9)
    assert throttled.answers() == b""
    throttled.clock.advance(0.1)
    assert throttled.answers() == b"x"


def test_pipelined_requests_wait_for_the_throttle_of_the_first(make: Make) -> None:
    throttled = throttled_by(make, 12_000)
    throttled.request(3)
    assert throttled.answers() == b"x"
    throttled.clock.advance(2.0)
    assert throttled.answers() == b"x"
    assert len(throttled.throttles) == 2


def test_request_below_the_quota_is_not_throttled(make: Make) -> None:
    throttled = throttled_by(make, 100)
    throttled.request(5)
    assert throttled.throttles == [0] * 5
    assert throttled.answers() == b"xxxxx"
    assert throttled.clock.timers_count == 0


def test_connection_that_drains_is_not_muted_any_longer(make: Make) -> None:
    throttled = throttled_by(make, 50_000)
    throttled.request()
    throttled.answers()
    throttled.connection.drain()
    assert throttled.connection.is_closed
    assert throttled.clock.timers_count == 0


def test_connection_that_closes_while_it_is_muted_leaves_no_timer(make: Make) -> None:
    throttled = throttled_by(make, 50_000)
    throttled.request()
    throttled.connection.close("the test closes it")
    assert throttled.clock.timers_count == 0


def test_connection_continues_when_the_last_quota_is_deleted(make: Make) -> None:
    throttled = throttled_by(make, 50_000)
    throttled.request(2)
    throttled.answers()
    throttled.quotas.follow(QuotaLimits(2, {}))
    throttled.script = lambda each: each.connection.answer_now(b"y")
    own = throttled.own
    throttled.connection.follow_quotas()
    assert throttled.connection.quotas is None
    # What was counted before does not mute it again.
    own.produced()
    assert throttled.clock.timers_count == 0


def test_late_answer_mutes_after_it(make: Make) -> None:
    """A parked fetch or a coroutine is counted when it is answered."""

    def park(each: Throttled) -> None:
        each.parked.append(each.connection.park(exclusive=True))

    throttled = make(QuotaKind.CONSUMER_BYTE_RATE, 1_000, park)
    throttled.request(2)
    (answer,) = throttled.parked
    assert throttled.own.fetched(12_000) == (True, 2_000)
    throttled.script = lambda each: each.connection.answer_now(b"next")
    answer.complete((b"late",))
    throttled.connection.send_ready()
    assert throttled.answers() == b"late"
    throttled.clock.advance(2.0)
    assert throttled.answers() == b"next"


def test_fetch_above_the_quota_is_empty_and_not_counted(make: Make) -> None:
    throttled = throttled_by(make, 0)
    throttled.quotas.follow(QuotaLimits(2, {QuotaEntity("alice"): {QuotaKind.CONSUMER_BYTE_RATE: 1_000}}))
    throttled.own.begin("me", 0)
    assert throttled.own.fetch_bytes_max == 10_000
    assert throttled.own.fetched(9_000) == (True, 0)
    assert throttled.own.fetched(9_000)[0] is False
    assert throttled.own.fetched(1_000) == (True, 0)


def test_time_of_a_request_throttles_the_next_one(make: Make) -> None:
    throttled = make(QuotaKind.REQUEST_PERCENTAGE, 1.0)
    own = throttled.own
    own.begin("me", 0)
    own.spent(0.2)
    # 20 % of a second in ten of them are 2 %: as long again, and one sample at most.
    assert own.answered() == 1_000


async def test_time_of_a_request_that_is_served_in_steps_counts(make: Make) -> None:
    throttled = make(QuotaKind.REQUEST_PERCENTAGE, 0.000_001)
    served = asyncio.Event()

    async def serve() -> None:
        served.set()

    throttled.request()
    RequestTasks().start(throttled.connection, serve())
    await served.wait()
    await asyncio.sleep(0)
    assert throttled.own.answered() > 0


def test_request_between_brokers_is_exempt(make: Make) -> None:
    throttled = make(QuotaKind.REQUEST_PERCENTAGE, 1.0)
    own = throttled.own
    own.begin("broker", 0)
    own.exempt()
    own.spent(10.0)
    assert own.fetched(1 << 30) == (True, 0)
    own.begin("broker", 0)
    assert own.answered() == 0


def test_client_that_changed_too_many_topics_is_refused_with_the_time(make: Make) -> None:
    throttled = make(QuotaKind.CONTROLLER_MUTATION_RATE, 1.0)
    own = throttled.own
    own.begin("me", 0)
    own.require_mutations()
    own.count_mutations(14, throttles=False)
    assert own.answered() == 0
    own.begin("me", 0)
    with pytest.raises(RequestError) as refusal:
        own.require_mutations()
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert own.answered() == 3_000


def test_client_that_does_not_know_the_refusal_is_throttled(make: Make) -> None:
    own = make(QuotaKind.CONTROLLER_MUTATION_RATE, 1.0).own
    own.begin("me", 0)
    own.count_mutations(14, throttles=True)
    assert own.answered() == 3_000


def test_request_without_changes_is_not_throttled_for_those_before(make: Make) -> None:
    throttled = make(QuotaKind.CONTROLLER_MUTATION_RATE, 1.0)
    own = throttled.own
    own.begin("me", 0)
    own.count_mutations(100, throttles=True)
    own.begin("me", 0)
    assert own.answered() == 0


async def test_steps_of_a_coroutine_are_timed_and_its_outcome_is_kept() -> None:
    times: list[float] = []

    async def serve() -> str:
        await asyncio.sleep(0)
        return "served"

    assert await asyncio.get_running_loop().create_task(Timed(serve(), times.append)) == "served"
    # Before the pause and after it.
    assert len(times) == 2


async def test_error_of_a_timed_coroutine_is_raised() -> None:
    async def serve() -> str:
        raise RequestError(ErrorCode.INVALID_REQUEST, "no")

    with pytest.raises(RequestError, match="no"):
        await asyncio.get_running_loop().create_task(Timed(serve(), lambda _: None))


async def test_timed_coroutine_can_be_cancelled() -> None:
    ended: list[str] = []

    async def serve() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    task = asyncio.get_running_loop().create_task(Timed(serve(), lambda _: None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]
