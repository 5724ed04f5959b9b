from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest

from ottla.broker.net.listener import AddressTaken, bind
from ottla.broker.processes.ports import hold_ports
from ottla.model.identifiers import NodeId
from ottla.model.listener import parse_listeners
from ottla.storage.directory.process_places import FIRST_DIRECTORY, BrokerPlace, ProcessPlaces, place_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="--processes needs Linux")

HOST = "127.0.0.1"
ONE, TWO = NodeId(1), NodeId(2)


@pytest.fixture
def places() -> ProcessPlaces:
    """Two brokers at free ports."""
    with ExitStack() as closing:
        sockets = [closing.enter_context(bind(HOST, 0, listens=False)) for _ in range(3)]
        shared, first, second = (each.getsockname()[1] for each in sockets)
    listeners = parse_listeners(f"PLAINTEXT://{HOST}:{shared}", setting="listeners")
    return ProcessPlaces(listeners, (BrokerPlace(ONE, FIRST_DIRECTORY, (first,)), place_of(TWO, (second,))))


def ports_of(places: ProcessPlaces) -> list[int]:
    return [places.listeners[0].port, *(each.ports[0] for each in places.brokers)]


def test_other_supervisor_cannot_have_the_ports_before_a_broker_listens(places: ProcessPlaces) -> None:
    with ExitStack() as closing:
        hold_ports(places, (), closing)
        with pytest.raises(AddressTaken), ExitStack() as others:
            hold_ports(places, (), others)


def test_ports_of_brokers_that_run_already_are_kept_when_they_end(places: ProcessPlaces) -> None:
    shared, first, second = ports_of(places)
    with ExitStack() as closing:
        broker = [bind(HOST, port, shares=True) for port in (shared, first)]
        hold_ports(places, (ONE,), closing)
        for each in broker:
            each.close()
        for port in (shared, first, second):
            with pytest.raises(AddressTaken):
                bind(HOST, port)
            bind(HOST, port, shares=True).close()
