"""The listener: how many, how long, and what it does when the system gives no more."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.limits import RECEIVE_BUFFER_BYTES, STALLED_PEER_MS, SWEEP_INTERVAL_MS
from ottla.broker.net.listener import ConnectionLimits, Listener, bind
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.model.errors import ConfigError
from ottla.protocol.primitives import RequestBytes
from tests.unit.broker.turned_loop import TurnedLoop

SWEEP_S = SWEEP_INTERVAL_MS / 1000
IDLE_MS = 60_000
FRAME = b"\x00\x00\x00\x0c" + bytes(12)


class Parking:
    """A router that keeps every request waiting until the test answers it, unless configured otherwise."""

    def __init__(self) -> None:
        self.parked: list[Answer] = []
        self.answers_at_once = False

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        if self.answers_at_once:
            connection.answer_now(b"answer")
            return
        self.parked.append(connection.park(exclusive=True))


class Served:
    def __init__(self, connections_max: int = 10, idle_ms_max: int = IDLE_MS) -> None:
        self.loop = TurnedLoop()
        self.router = Parking()
        self.sweeps = 0
        self.listener = Listener(
            bind("127.0.0.1", 0),
            self.loop,  # type: ignore[arg-type]  # the part of a loop that it uses
            self.router,
            ConnectionLimits(connections_max, 1 << 20, idle_ms_max, -1, -1),
            self._on_sweep,
        )
        self.listener.start()
        self.clients: list[socket.socket] = []

    def _on_sweep(self) -> None:
        self.sweeps += 1

    def connect(self) -> socket.socket:
        client = socket.create_connection(self.listener.address)
        client.setblocking(False)
        self.clients.append(client)
        self.loop.turn()
        return client

    def pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms // SWEEP_INTERVAL_MS):
            self.loop.advance(SWEEP_S)

    def close(self) -> None:
        self.listener.begin_drain()
        for connection in list(self.listener._connections):
            connection.close("the test ended")
        self.listener.stop_accepting()
        for client in self.clients:
            client.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_listener_closes_who_comes_above_the_limit_and_serves_again_when_one_leaves() -> None:
    served = Served(connections_max=2)
    first, _, third = (served.connect() for _ in range(3))
    assert is_closed(third)
    assert served.listener.connections_count == 2
    first.close()
    served.loop.turn()
    fourth = served.connect()
    assert not is_closed(fourth)
    served.close()


def test_listener_closes_an_idle_connection_after_its_time_and_not_before(served: Served) -> None:
    client = served.connect()
    served.pass_time(IDLE_MS)
    assert not is_closed(client)
    served.pass_time(2 * SWEEP_INTERVAL_MS)
    assert is_closed(client)


def test_listener_never_closes_idle_connections_when_the_setting_says_so() -> None:
    served = Served(idle_ms_max=-1)
    client = served.connect()
    served.pass_time(10 * IDLE_MS)
    assert not is_closed(client)
    served.close()


def test_connection_that_waited_long_for_us_is_not_idle_when_it_is_answered(served: Served) -> None:
    client = served.connect()
    client.send(FRAME)
    served.loop.turn()
    served.pass_time(3 * IDLE_MS)
    assert not is_closed(client), "we owe it an answer"
    answer = served.router.parked[0]
    answer.complete((b"answer",))
    answer.connection.send_ready()
    assert client.recv(100) == b"answer"
    served.pass_time(IDLE_MS - 5 * SWEEP_INTERVAL_MS)
    assert not is_closed(client)
    served.pass_time(10 * SWEEP_INTERVAL_MS)
    assert is_closed(client)


def test_listener_closes_who_stops_within_a_request(served: Served) -> None:
    client, honest = served.connect(), served.connect()
    client.send(FRAME[:7])
    served.loop.turn()
    served.pass_time(STALLED_PEER_MS + 2 * SWEEP_INTERVAL_MS)
    assert is_closed(client)
    assert not is_closed(honest)


def test_listener_closes_who_trickles_a_request(served: Served) -> None:
    trickling = served.connect()
    trickling.send(b"\x00\x0f\xff\xff" + bytes(12))
    for _ in range(STALLED_PEER_MS // SWEEP_INTERVAL_MS + 2):
        if not is_closed(trickling):
            trickling.send(b"x")
            served.loop.turn()
            served.loop.advance(SWEEP_S)
    assert is_closed(trickling)


def test_listener_serves_who_sends_request_after_request_slowly_but_each_in_time(served: Served) -> None:
    served.router.answers_at_once = True
    client = served.connect()
    # At each sweep a request is half there.
    client.send(FRAME[:6])
    for _ in range(3 * STALLED_PEER_MS // SWEEP_INTERVAL_MS):
        client.send(FRAME[6:] + FRAME[:6])
        served.loop.turn()
        served.loop.advance(SWEEP_S)
    assert served.listener.connections_count == 1
    client.send(FRAME[6:])


def test_request_that_waits_for_memory_is_not_blamed_for_it(served: Served) -> None:
    large = 1 << 20
    served.listener._budget = budget = ReceiveBudget(large)
    waiting = served.connect()
    assert budget.take(large, lambda: None)
    waiting.send(struct.pack(">i", large) + bytes(2 * RECEIVE_BUFFER_BYTES))
    served.loop.turn()
    assert budget.is_contended
    served.pass_time(2 * STALLED_PEER_MS)
    assert served.listener.connections_count == 1
    budget.release(large)
    assert not budget.is_contended


def test_listener_closes_who_does_not_take_its_answer(served: Served) -> None:
    client = served.connect()
    client.send(FRAME)
    served.loop.turn()
    answer = served.router.parked[0]
    answer.complete((bytes(32 << 20),))
    answer.connection.send_ready()
    served.loop.turn()
    served.pass_time(STALLED_PEER_MS + 2 * SWEEP_INTERVAL_MS)
    assert answer.connection.is_closed
    assert served.listener.connections_count == 0


def test_listener_pauses_when_no_descriptor_is_left_and_takes_who_waited_meanwhile(served: Served) -> None:
    real = served.listener._listening

    class Exhausted:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        def fileno(self) -> int:
            return real.fileno()

    served.listener._listening = Exhausted()  # type: ignore[assignment]  # what the listener uses of it
    client = served.connect()
    assert served.listener.connections_count == 0
    assert real.fileno() not in served.loop.readers, "it would spin"
    served.listener._listening = real
    served.loop.advance(0.2)
    assert served.listener.connections_count == 1
    assert not is_closed(client)


def test_listener_turns_away_who_comes_when_no_descriptor_is_left(served: Served) -> None:
    real = served.listener._listening
    spares: list[int | None] = []

    class Full:
        def accept(self) -> tuple[socket.socket, object]:
            spares.append(served.listener._spare_fd)
            if served.listener._spare_fd is not None:
                raise OSError(errno.EMFILE, "Too many open files")
            return real.accept()

        def fileno(self) -> int:
            return real.fileno()

    served.listener._listening = Full()  # type: ignore[assignment]  # what the listener uses of it
    client = served.connect()
    assert is_closed(client), "it is not left waiting"
    assert spares[0] is not None
    assert served.listener._spare_fd is not None, "for the next one"
    assert served.listener.connections_count == 0
    assert real.fileno() not in served.loop.readers, "it would spin"
    served.listener._listening = real


def test_sweep_goes_on_after_an_error_in_what_it_calls(served: Served) -> None:
    def fail() -> None:
        served.sweeps += 1
        raise KeyError("bug")

    served.listener._on_sweep = fail
    for _ in range(2):
        with pytest.raises(KeyError):
            served.loop.advance(SWEEP_S)
    assert served.sweeps == 2


def test_listener_says_what_to_do_when_the_address_is_taken(served: Served) -> None:
    with pytest.raises(ConfigError, match="cannot listen") as refusal:
        bind(*served.listener.address)
    assert refusal.value.hint is not None
    assert "--listen" in refusal.value.hint


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("203.0.113.1", 0)])
def test_listener_refuses_an_address_that_cannot_be(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        bind(host, port)


def test_listener_serves_ipv6() -> None:
    try:
        listening = bind("::1", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with listening:
        address = listening.getsockname()
        with socket.create_connection(address[:2]) as client:
            assert client.getpeername()[:2] == address[:2]


def test_ipv4_client_of_a_listener_for_both_families_has_its_ipv4_address() -> None:
    """A rule that denies its address, and the bounds of an address, would not apply to `::ffff:127.0.0.1`."""
    try:
        listening = bind("::", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with listening:
        client = socket.create_connection(("127.0.0.1", listening.getsockname()[1]))
        peer, _ = listening.accept()
        peer.setblocking(False)
        assert peer.getpeername()[0] == "::ffff:127.0.0.1"
        connection = Connection(peer, TurnedLoop(), Parking(), ReceiveBudget(1 << 20), 1 << 20, lambda _: None)
        assert connection.peer_host == "127.0.0.1"
        connection.close("the test is over")
        client.close()
