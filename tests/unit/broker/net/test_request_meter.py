"""Requests are counted by API; latencies run until the answer is complete, of parked requests too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from ottla.broker.net.client_quotas import ClientQuotas
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.net.request_meter import SAMPLING_MASK, RequestMeter
from ottla.broker.router import Router
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import RequestHeader
from tests.unit.broker.turned_loop import TurnedLoop, connected_pair

Script = Callable[[Connection], None]
# The first flexible version of Produce, which takes the other way through the router.
FLEXIBLE = 9


class Metered:
    """A connection before a router whose handlers' answers a test scripts, with a clock in seconds."""

    def __init__(self) -> None:
        self.loop = TurnedLoop()
        self.now_s = 0.0
        self.script: Script = lambda connection: connection.answer_now(b"answer")
        self.meter = RequestMeter(lambda: self.now_s)
        ready = ReadyConnections(self.loop)  # type: ignore[arg-type]  # the part of a loop that is used
        self.router = Router(self, self, self.Groups(self), list(ApiKey), self._serve_cold, ready, self.meter)
        self.client, server = connected_pair()
        self.connection = Connection(
            server,
            self.loop,
            self.router,
            ReceiveBudget(1 << 20),
            1 << 20,
            lambda _connection: None,
        )

    def handle(
        self,
        connection: Connection,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self.script(connection)

    class Groups:
        def __init__(self, metered: Metered) -> None:
            self._metered = metered

        def handle(self, header: RequestHeader, body: bytes, connection: Connection) -> None:
            self._metered.script(connection)

        async def handle_large(
            self, header: RequestHeader, body: memoryview, connection: Connection, answer: Answer
        ) -> None:
            raise AssertionError("all are small")

    async def _serve_cold(
        self, header: RequestHeader, body: bytes | memoryview, connection: Connection
    ) -> Sequence[Piece]:
        raise AssertionError("all are served as groups' requests")

    def request(self, api: int, count: int = 1, version: int = 4) -> None:
        tags = b"\x00" if version == FLEXIBLE else b""
        frame = api.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x07\xff\xff" + tags
        for _ in range(count):
            self.client.send(len(frame).to_bytes(4, "big") + frame)
            self.loop.turn()

    def observed(self, api: ApiKey) -> int:
        """How many latencies there are."""
        return sum(self.meter.latencies[api].counts) if api in self.meter.latencies else 0

    def total_ms(self, api: ApiKey) -> float:
        return round(self.meter.latencies[api].total, 6)


@pytest.fixture
def metered() -> Iterator[Metered]:
    made = Metered()
    yield made
    made.connection.close("the test ends")
    made.client.close()


def test_requests_are_counted_by_api(metered: Metered) -> None:
    metered.request(ApiKey.HEARTBEAT, 3, version=3)
    metered.request(ApiKey.FETCH, 2)
    metered.request(ApiKey.PRODUCE, 2)
    metered.request(ApiKey.PRODUCE, 2, version=FLEXIBLE)
    assert metered.meter.counts == {ApiKey.HEARTBEAT: 3}
    assert (metered.router.produce_count, metered.router.fetch_count) == (4, 2)


def test_request_that_is_answered_at_once_took_as_long_as_its_handler(metered: Metered) -> None:
    def take_five_ms(connection: Connection) -> None:
        metered.now_s += 0.005
        connection.answer_now(b"answer")

    metered.script = take_five_ms
    metered.request(ApiKey.HEARTBEAT, 2, version=3)
    assert metered.observed(ApiKey.HEARTBEAT) == 2
    assert metered.total_ms(ApiKey.HEARTBEAT) == 10.0


def test_parked_request_took_until_its_answer_was_complete(metered: Metered) -> None:
    parked: list[Answer] = []
    metered.script = lambda connection: parked.append(connection.park(exclusive=True))
    metered.request(ApiKey.JOIN_GROUP)
    assert metered.observed(ApiKey.JOIN_GROUP) == 0
    metered.now_s = 3.0
    parked[0].complete((b"answer",))
    assert metered.observed(ApiKey.JOIN_GROUP) == 1
    assert metered.total_ms(ApiKey.JOIN_GROUP) == 3_000.0


@pytest.mark.parametrize(("api", "version"), [(ApiKey.PRODUCE, 4), (ApiKey.PRODUCE, FLEXIBLE), (ApiKey.FETCH, 4)])
def test_one_request_of_a_sample_stands_for_all_of_them(metered: Metered, api: ApiKey, version: int) -> None:
    metered.request(api, SAMPLING_MASK, version)
    assert metered.observed(api) == 0
    metered.request(api, 1, version)
    assert metered.observed(api) == SAMPLING_MASK + 1


def test_answer_behind_a_parked_produce_is_not_taken_for_a_parked_one(metered: Metered) -> None:
    parked: list[Answer] = []
    metered.script = lambda connection: parked.append(connection.park(exclusive=False))
    metered.request(ApiKey.PRODUCE, SAMPLING_MASK)
    metered.script = lambda connection: connection.answer_now(b"answer")
    metered.request(ApiKey.PRODUCE)
    assert metered.observed(ApiKey.PRODUCE) == SAMPLING_MASK + 1


def test_request_that_closed_its_connection_has_no_latency(metered: Metered) -> None:
    metered.script = lambda connection: connection.close("refused")
    metered.request(ApiKey.HEARTBEAT, version=3)
    assert metered.meter.counts == {ApiKey.HEARTBEAT: 1}
    assert metered.observed(ApiKey.HEARTBEAT) == 0


def test_api_that_is_not_offered_is_not_counted(metered: Metered) -> None:
    metered.request(999)
    assert metered.connection.is_closed
    assert metered.meter.counts == {}
