"""How many connections an address may have, and open each second."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping

import pytest

from ottla.broker.net.address_limits import AddressLimits
from ottla.broker.net.connection import Connection
from ottla.broker.net.listener import ConnectionLimits, Listener, bind
from ottla.broker.quotas.quota_limits import QuotaLimits
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.quotas.rate import Window
from ottla.broker.quotas.usage import QuotaUsage
from ottla.model.broker_settings import parse_address_counts
from ottla.model.errors import ConfigError
from ottla.model.quotas import QuotaEntity, QuotaKind
from ottla.protocol.primitives import RequestBytes
from tests.unit.broker.turned_loop import TurnedClock

WINDOW = Window(1, 1_000)
RATE = QuotaKind.CONNECTION_CREATION_RATE


class Silent:
    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        raise AssertionError("the test sends nothing")


class Served:
    """Two listeners of one broker on loopback."""

    def __init__(
        self, connections_max: int = 100, overrides: Mapping[str, int] = {}, rate: float | None = None
    ) -> None:
        self.clock = TurnedClock()
        quotas = Quotas(QuotaUsage(WINDOW, WINDOW), self.clock, 1_000)
        if rate is not None:
            quotas.follow(QuotaLimits(1, {QuotaEntity(ip=""): {RATE: rate}}))
        addresses = AddressLimits(quotas, connections_max, overrides)
        self.listeners = [
            Listener(
                bind("127.0.0.1", 0),
                self.clock,  # type: ignore[arg-type]  # the part of a loop that it uses
                Silent(),
                ConnectionLimits(100, 1 << 20, -1, -1, -1),
                lambda: None,
                addresses=addresses,
            )
            for _ in range(2)
        ]
        for listener in self.listeners:
            listener.start()
        self.clients: list[socket.socket] = []

    def connect(self, listener: int = 0) -> socket.socket:
        client = socket.create_connection(self.listeners[listener].address)
        client.setblocking(False)
        self.clients.append(client)
        self.clock.turn()
        return client

    def stop(self) -> None:
        for listener in self.listeners:
            listener.stop_accepting()
            listener.begin_drain()
        for client in self.clients:
            client.close()


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(**given: object) -> Served:
        made.append(Served(**given))  # type: ignore[arg-type]  # passed on
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_connections_of_all_listeners_count(serve: Callable[..., Served]) -> None:
    served = serve(connections_max=2)
    clients = [served.connect(0), served.connect(1), served.connect(1)]
    assert [is_closed(client) for client in clients] == [False, False, True]


def test_closed_connection_makes_room_for_another(serve: Callable[..., Served]) -> None:
    served = serve(connections_max=1)
    served.connect().close()
    served.clock.turn()
    assert not is_closed(served.connect())


def test_address_has_a_count_that_is_set_for_it(serve: Callable[..., Served]) -> None:
    served = serve(connections_max=5, overrides={"127.0.0.1": 1})
    served.connect()
    assert is_closed(served.connect())


def test_connection_above_the_rate_is_closed_after_its_throttle(serve: Callable[..., Served]) -> None:
    served = serve(rate=2)
    clients = [served.connect() for _ in range(3)]
    assert [is_closed(client) for client in clients] == [False] * 3
    assert served.listeners[0].connections_count == 2
    served.clock.advance(1.0)
    assert [is_closed(client) for client in clients] == [False, False, True]
    assert not is_closed(served.connect())


def test_waiting_connection_above_the_rate_is_closed_when_the_broker_stops(serve: Callable[..., Served]) -> None:
    served = serve(rate=1)
    served.connect()
    refused = served.connect()
    served.stop()
    assert served.clients[1] is refused
    assert served.clock.timers_count == 0


def test_counts_of_addresses_are_read() -> None:
    assert parse_address_counts(["10.0.0.5:200", "[::1]:7"]) == {"10.0.0.5": 200, "::1": 7}


def test_ipv4_address_in_ipv6_form_is_the_ipv4_address() -> None:
    assert parse_address_counts(["[::ffff:10.0.0.5]:200"]) == {"10.0.0.5": 200}


@pytest.mark.parametrize("text", ["10.0.0.5", "broker.example:5", "10.0.0.5:many", "10.0.0.5:-1"])
def test_count_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        parse_address_counts([text])
