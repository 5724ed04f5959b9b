"""The addresses of `ottla serve --processes`, which its supervisor keeps for its brokers."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack

import pytest

from ottla.broker.net.listener import AddressTaken, bind, hold, listen

HOST = "127.0.0.1"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="--processes needs Linux")


@pytest.fixture
def port() -> int:
    with bind(HOST, 0, listens=False) as chosen:
        found: int = chosen.getsockname()[1]
        return found


def test_held_address_is_for_processes_that_share_it_alone(port: int) -> None:
    with hold(HOST, port):
        with pytest.raises(AddressTaken):
            # Another supervisor, before a broker of this one listens.
            hold(HOST, port)
        with pytest.raises(AddressTaken):
            bind(HOST, port)
        with bind(HOST, port, shares=True), bind(HOST, port, shares=True), pytest.raises(AddressTaken):
            hold(HOST, port)


def test_holder_gets_no_connections(port: int) -> None:
    with hold(HOST, port), pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))


def test_of_two_that_bind_an_address_at_the_same_time_one_holds_it(port: int) -> None:
    with bind(HOST, port, listens=False) as other:
        holding = hold(HOST, port)
        with holding, pytest.raises(AddressTaken):
            listen(other)


@pytest.mark.parametrize("shares", [False, True])
def test_address_is_held_while_the_kernel_keeps_closed_connections_of_it(port: int, *, shares: bool) -> None:
    with bind(HOST, port, shares=shares) as listening:
        listening.setblocking(True)
        client = socket.create_connection((HOST, port))
        accepted, _ = listening.accept()
        # The side that closes first has its port kept.
        accepted.close()
        assert client.recv(1) == b""
        client.close()
    with hold(HOST, port), bind(HOST, port, shares=True):
        pass


def test_address_that_brokers_have_already_is_held_for_them(port: int) -> None:
    with ExitStack() as closing:
        broker = closing.enter_context(bind(HOST, port, shares=True))
        closing.enter_context(hold(HOST, port, is_in_use=True))
        broker.close()
        with pytest.raises(AddressTaken):
            bind(HOST, port)
        closing.enter_context(bind(HOST, port, shares=True))


def test_address_that_another_program_has_is_not_held_for_brokers_that_have_it(port: int) -> None:
    with bind(HOST, port), pytest.raises(AddressTaken):
        hold(HOST, port, is_in_use=True)
