"""Fetches of a client with a quota: what is sent, and what the next request still reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.broker.net.client_quotas import ClientQuotas
from ottla.broker.net.connection import Connection
from ottla.broker.quotas.quota_limits import QuotaLimits
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.quotas.rate import Window
from ottla.broker.quotas.usage import QuotaUsage
from ottla.model.quotas import QuotaEntity, QuotaKind
from ottla.protocol.frame import read_request_header
from ottla.protocol.primitives import RequestBytes
from tests.unit.broker.handlers.test_fetch import Served, at

WINDOW = Window(11, 1_000)
LIMIT = 100


class Limited(Served):
    """The client of `test_fetch`, whose answers may have 100 bytes of records a second."""

    def __init__(self) -> None:
        super().__init__()
        quotas = Quotas(QuotaUsage(WINDOW, WINDOW), self.clock, 1_000)
        quotas.follow(QuotaLimits(1, {QuotaEntity("alice"): {QuotaKind.CONSUMER_BYTE_RATE: LIMIT}}))
        self.quotas = ClientQuotas(quotas, self.connection, "alice", self.loop)  # type: ignore[arg-type]  # its timers

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        header = read_request_header(view, position, end)
        body = header.body_position
        self.quotas.begin(header.client_id, end - position)
        self.handler.handle(connection, view, body, end, header.api_version, header.correlation_id, self.quotas)
        self.quotas.settle()

    def use_up(self) -> None:
        """The client has fetched what the window allows."""
        self.quotas.begin("test", 0)
        self.quotas.fetched(LIMIT * 10)
        self.quotas.settle()

    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds * 1_000)
        self.loop.advance(seconds)


@pytest.fixture
def limited() -> Iterator[Limited]:
    made = Limited()
    yield made
    made.connection.close("the test ended")
    made.client.close()


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_throttled_fetch_is_empty_and_the_next_one_reads_the_records(limited: Limited, version: int) -> None:
    limited.version = version
    size = limited.add("t").add()
    limited.use_up()
    limited.ask(at(0))
    response = limited.answer()
    assert response is not None
    assert response.responses == []
    assert response.throttle_time_ms > 0
    limited.advance(20)
    limited.ask(at(0))
    assert limited.sizes() == [size]


def test_throttled_request_for_a_session_opens_none(limited: Limited) -> None:
    limited.add("t").add()
    limited.use_up()
    limited.ask(at(0), session_epoch=0)
    response = limited.answer()
    assert response is not None
    assert (response.session_id, response.responses) == (0, [])


def test_session_of_a_throttled_client_continues(limited: Limited) -> None:
    log = limited.add("t")
    limited.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert limited.partitions()
    size = log.add()
    limited.use_up()
    limited.ask(session_id=100, session_epoch=1)
    response = limited.answer()
    assert response is not None
    assert (response.session_id, response.responses) == (100, [])
    limited.advance(20)
    limited.ask(session_id=100, session_epoch=2)
    assert limited.sizes() == [size]


def test_answer_has_at_most_what_the_window_allows(limited: Limited) -> None:
    log = limited.add("t")
    sizes = [log.add() for _ in range(100)]
    assert sum(sizes) > LIMIT * 10
    limited.ask(at(0))
    (size,) = limited.sizes()
    assert 0 < size <= LIMIT * 10


def test_parked_fetch_is_counted_when_it_is_answered(limited: Limited) -> None:
    log = limited.add("t")
    limited.ask(at(0))
    assert limited.answer() is None
    limited.quotas.fetched(LIMIT * 10)
    log.add()
    response = limited.answer()
    assert response is not None
    assert response.responses == []
    assert response.throttle_time_ms > 0


def test_reads_of_a_parked_fetch_are_counted_as_its_time(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    log = limited.add("t")
    limited.ask(at(0))
    times: list[float] = []
    monkeypatch.setattr(ClientQuotas, "spent", lambda _, took_s: times.append(took_s))
    log.add()
    assert limited.partitions()
    assert len(times) == 1
