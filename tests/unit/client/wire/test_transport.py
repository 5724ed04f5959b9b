from __future__ import annotations

import math
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from ottla.client.wire.address import Address
from ottla.client.wire.errors import BrokerUnreachable, CallTimedOut, ConnectionLost
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import SLOW_AFTER_MS, Readable, TcpTransport, dial_tcp, wait_readable
from ottla.runtime.clock import SystemClock
from ottla.testing.fake_clock import FakeClock

CLOCK = SystemClock()


@pytest.fixture
def pair() -> Iterator[tuple[TcpTransport, socket.socket]]:
    ours, theirs = socket.socketpair()
    transport = TcpTransport(ours, Address("peer", 1))
    yield transport, theirs
    transport.close()
    theirs.close()


def soon() -> Deadline:
    return Deadline(CLOCK, 5_000)


def test_transport_sends_all_pieces_in_order(pair: tuple[TcpTransport, socket.socket]) -> None:
    transport, peer = pair
    transport.send([b"one ", bytearray(b"two "), b"", memoryview(b"three")], soon())
    assert peer.recv(100) == b"one two three"


def test_transport_sends_more_than_a_socket_takes_at_once(pair: tuple[TcpTransport, socket.socket]) -> None:
    transport, peer = pair
    pieces = [bytes([number % 256]) * 3000 for number in range(1500)]
    received = bytearray()

    def read() -> None:
        while len(received) < 3000 * 1500:
            received.extend(peer.recv(1 << 16))

    reader = threading.Thread(target=read)
    reader.start()
    transport.send(pieces, soon())
    reader.join(10)
    assert received == b"".join(pieces)


def test_transport_gives_up_when_the_peer_does_not_read(pair: tuple[TcpTransport, socket.socket]) -> None:
    transport, _ = pair
    with pytest.raises(CallTimedOut):
        transport.send([bytes(1 << 24)], Deadline(CLOCK, 20))


def test_what_the_peer_does_not_read_in_time_is_sent_later(pair: tuple[TcpTransport, socket.socket]) -> None:
    transport, peer = pair
    with pytest.raises(CallTimedOut):
        transport.send([bytes(1 << 24)], Deadline(CLOCK, 0))
    with pytest.raises(CallTimedOut):
        transport.send([b"end"], Deadline(CLOCK, 0))
    assert wait_readable([transport], 0) == []
    received = bytearray(peer.recv(1 << 20))
    while transport.waits_to_write:
        with suppress(CallTimedOut):
            transport.finish_sending(Deadline(CLOCK, 0))
        received += peer.recv(1 << 20)
    while not received.endswith(b"end"):
        received += peer.recv(1 << 20)
    assert len(received) == (1 << 24) + 3


def test_transport_gives_up_when_nothing_comes(pair: tuple[TcpTransport, socket.socket]) -> None:
    transport, _ = pair
    with pytest.raises(CallTimedOut):
        transport.receive_into(memoryview(bytearray(10)), Deadline(CLOCK, 10))
    with pytest.raises(CallTimedOut):
        transport.receive_into(memoryview(bytearray(10)), Deadline(CLOCK, 0))


def test_transport_tells_that_the_peer_has_closed(pair: tuple[TcpTransport, socket.socket]) -> None:
    transport, peer = pair
    peer.close()
    with pytest.raises(ConnectionLost):
        transport.receive_into(memoryview(bytearray(10)), soon())
    with pytest.raises(ConnectionLost):
        transport.send([b"x"], soon())


def test_wait_readable_names_those_with_bytes_and_those_that_broke(pair: tuple[TcpTransport, socket.socket]) -> None:
    transport, peer = pair
    assert wait_readable([transport], 0) == []
    peer.send(b"x")
    assert wait_readable([transport], 1000) == [transport]
    transport.receive_into(memoryview(bytearray(10)), soon())
    peer.close()
    assert wait_readable([transport], 1000) == [transport]


class Buffered:
    """A stream of which bytes are read already."""

    waits_to_write = False

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def fileno(self) -> int:
        return self._stream.fileno()

    def has_buffered(self) -> bool:
        return True


def test_wait_readable_names_the_others_beside_one_with_buffered_bytes(
    pair: tuple[TcpTransport, socket.socket],
) -> None:
    transport, peer = pair
    with socket.socket() as stream:
        buffered = Buffered(stream)
        both: list[Readable] = [buffered, transport]
        assert wait_readable(both, 60_000) == [buffered]
        peer.send(b"x")
        assert wait_readable(both, 60_000) == both


def test_dial_tells_the_address_that_cannot_be_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: no other process can take it meanwhile
        address = Address(*taken.getsockname())
        with pytest.raises(BrokerUnreachable, match=str(address.port)) as caught:
            dial_tcp(address).connect(soon())
    assert caught.value.hint


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def silent() -> Iterator[Address]:
    """An address at which a connection is neither accepted nor refused: the queue of its listener is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as waiting:
        for _ in range(50):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
            poll = select.poll()
            poll.register(client, select.POLLOUT)
            if not poll.poll(50):
                break
        yield Address(*server.getsockname())


def hosts_are(monkeypatch: pytest.MonkeyPatch, *addresses: Address) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", tuple(address)) for address in addresses]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)


def test_a_connection_is_made_without_waiting_and_can_be_waited_for(listener: socket.socket) -> None:
    transport = dial_tcp(Address(*listener.getsockname()))
    assert transport.waits_to_write
    assert wait_readable([transport], 5_000) == [transport]
    transport.connect(Deadline(CLOCK, 0))
    assert wait_readable([transport], 0) == []
    transport.close()


def test_a_silent_address_is_given_back_to_the_caller_at_its_deadline(silent: Address) -> None:
    transport = dial_tcp(silent)
    for timeout_ms in (0, 20):
        with pytest.raises(CallTimedOut, match="no connection to"):
            transport.connect(Deadline(CLOCK, timeout_ms))
    assert wait_readable([transport], 0) == []
    transport.close()


def test_another_address_of_the_host_is_tried_where_one_refuses(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        hosts_are(monkeypatch, Address(*taken.getsockname()), Address(*listener.getsockname()))
        transport = dial_tcp(Address("host", 1))
        transport.connect(soon())
        assert not transport.waits_to_write
        transport.close()


def test_another_address_of_the_host_is_tried_where_one_is_silent(
    silent: Address, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.wire.transport.SLOW_AFTER_MS", 20)
    hosts_are(monkeypatch, silent, Address(*listener.getsockname()))
    transport = dial_tcp(Address("host", 1))
    transport.connect(soon())
    peer, _ = listener.accept()
    peer.send(b"x")
    assert transport.receive_into(memoryview(bytearray(10)), soon()) == 1
    peer.close()
    transport.close()


def test_a_transport_that_is_polled_tries_the_next_address_when_it_says(
    silent: Address, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr("ottla.client.wire.transport._CLOCK", clock)
    hosts_are(monkeypatch, silent, Address(*listener.getsockname()))
    transport = dial_tcp(Address("host", 1))
    for wait_ms in (SLOW_AFTER_MS, 1):
        assert transport.connect_wait_ms() == wait_ms
        with pytest.raises(CallTimedOut):
            transport.connect(Deadline(clock, 0))
        clock.advance(SLOW_AFTER_MS - 1 if wait_ms > 1 else 1)
    assert transport.connect_wait_ms() == 0
    with suppress(CallTimedOut):
        transport.connect(Deadline(clock, 0))
    assert transport.connect_wait_ms() > 0
    if transport.waits_to_write:
        assert wait_readable([transport], 5_000) == [transport]
        transport.connect(Deadline(clock, 0))
    assert transport.connect_wait_ms() == math.inf
    transport.close()


def test_a_host_of_which_every_address_is_silent_may_be_reached_later(
    silent: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.wire.transport.SLOW_AFTER_MS", 1)
    hosts_are(monkeypatch, silent, silent)
    transport = dial_tcp(Address("host", 1))
    with pytest.raises(CallTimedOut):
        transport.connect(Deadline(CLOCK, 50))
    assert transport.waits_to_write
    transport.close()


def test_what_has_arrived_is_received_also_after_the_deadline(pair: tuple[TcpTransport, socket.socket]) -> None:
    transport, peer = pair
    peer.send(b"x")
    assert transport.receive_into(memoryview(bytearray(10)), Deadline(CLOCK, 0)) == 1
    transport.send([b"y"], Deadline(CLOCK, 0))
    assert peer.recv(10) == b"y"
