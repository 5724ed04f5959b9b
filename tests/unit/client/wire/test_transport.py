from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from ottla.client.wire.address import Address
from ottla.client.wire.errors import BrokerUnreachable, CallTimedOut, ConnectionLost
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import TcpTransport, dial_tcp, wait_readable
from ottla.runtime.clock import SystemClock

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


def test_dial_tells_the_address_that_cannot_be_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: no other process can take it meanwhile
        address = Address(*taken.getsockname())
        with pytest.raises(BrokerUnreachable, match=str(address.port)) as caught:
            dial_tcp(address, soon())
    assert caught.value.hint
