"""The address that a client is advertised: the configured one, else the way by which it came."""

from __future__ import annotations

import pytest

from ottla.broker.net.advertising import Advertising, BrokerAddress, reachable, registered_listeners
from ottla.model.identifiers import NodeId
from ottla.model.listener import Listener
from ottla.model.serve_options import ServeOptions
from ottla.model.settings import BrokerSettings
from tests.unit.broker.live_brokers import live

INSIDE, OUTSIDE = Listener("PLAINTEXT", "::", 0), Listener("OUTSIDE", "::", 0)
ADDRESSES = [("::", 9092), ("::", 9093)]


def advertising(*advertised: Listener) -> Advertising:
    options = ServeOptions(
        settings=BrokerSettings.of({}), data_dir="d", listeners=(INSIDE, OUTSIDE), advertised=advertised
    )
    return Advertising(options, ADDRESSES)


@pytest.mark.parametrize(
    ("reached", "advertised"),
    [
        (("10.0.0.7", 9092), ("10.0.0.7", 9092)),
        (("2001:db8::7", 9092), ("2001:db8::7", 9092)),
        (("::ffff:10.0.0.7", 9092), ("10.0.0.7", 9092)),
    ],
)
def test_client_gets_the_address_that_it_connected_to(reached: tuple[str, int], advertised: tuple[str, int]) -> None:
    assert advertising().address_for(reached) == advertised


def test_client_gets_the_configured_address_of_the_listener_that_it_reached() -> None:
    advertised = advertising(Listener("OUTSIDE", "broker.example", 19_093))
    assert advertised.address_for(("10.0.0.7", 9093)) == ("broker.example", 19_093)
    assert advertised.address_for(("10.0.0.7", 9092)) == ("10.0.0.7", 9092)


REACHED = ("10.0.0.7", 9092)


def options(
    *listeners: Listener, advertised: tuple[Listener, ...] = (), shared: tuple[Listener, ...] = ()
) -> ServeOptions:
    return ServeOptions(
        settings=BrokerSettings.of({}), data_dir="d", listeners=listeners, advertised=advertised, shared=shared
    )


def test_sole_broker_is_told_as_it_was_reached() -> None:
    told = Advertising(options(INSIDE), [("::", 9092)], own_id=NodeId(1)).brokers_for(REACHED, live(1, racks={1: "r"}))
    assert told == [BrokerAddress(NodeId(1), "10.0.0.7", 9092, "r")]


def test_brokers_of_a_cluster_are_told_by_id_as_they_registered() -> None:
    told = Advertising(options(INSIDE), [("::", 9092)]).brokers_for(REACHED, live(2, 1, racks={2: "b"}))
    assert told == [
        BrokerAddress(NodeId(1), "broker-1.example", 9092, None),
        BrokerAddress(NodeId(2), "broker-2.example", 9092, "b"),
    ]


def test_brokers_without_the_clients_listener_are_left_out() -> None:
    told = Advertising(options(INSIDE, OUTSIDE), ADDRESSES).brokers_for(("10.0.0.7", 9093), live(1, 2))
    assert told == []


SHARED = (Listener("PLAINTEXT", "::", 9000), Listener("OUTSIDE", "::", 9001))


@pytest.mark.parametrize("port", [9000, 9092])
def test_brokers_of_one_machine_have_the_host_that_the_client_used(port: int) -> None:
    """At the shared port as at the broker's own."""
    advertised = Advertising(options(INSIDE, OUTSIDE, shared=SHARED), ADDRESSES)
    assert advertised.brokers_for(("::ffff:10.0.0.7", port), live(1, 2)) == [
        BrokerAddress(NodeId(1), "10.0.0.7", 9092, None),
        BrokerAddress(NodeId(2), "10.0.0.7", 9092, None),
    ]


def test_brokers_of_one_machine_have_the_advertised_host_where_one_is_given() -> None:
    given = options(INSIDE, OUTSIDE, advertised=(Listener("PLAINTEXT", "kafka.example", 19_092),), shared=SHARED)
    found = Advertising(given, ADDRESSES).brokers_for(("10.0.0.7", 9000), live(1))
    assert found == [BrokerAddress(NodeId(1), "broker-1.example", 9092, None)]
    assert [(each.host, each.port) for each in registered_listeners(given, ADDRESSES, "machine")] == [
        ("kafka.example", 19_092),
        # Brokers reach each other without the machine's name.
        ("::1", 9093),
    ]
    # But by a name that a certificate may have.
    tls = tuple(each._replace(protocol="SSL") for each in (INSIDE, OUTSIDE))
    secured = registered_listeners(options(*tls, shared=SHARED), ADDRESSES, "machine")
    assert [each.host for each in secured] == ["machine", "machine"]


@pytest.mark.parametrize(
    ("listener", "bound", "registered"),
    [
        (Listener("PLAINTEXT", "127.0.0.1", 0), ("127.0.0.1", 40_000), ("127.0.0.1", 40_000)),
        (Listener("PLAINTEXT", "localhost", 9092), ("127.0.0.1", 9092), ("127.0.0.1", 9092)),
        (Listener("PLAINTEXT", "::1", 9092), ("::1", 9092), ("::1", 9092)),
        (Listener("PLAINTEXT", "", 9092), ("::", 9092), ("machine", 9092)),
        (Listener("PLAINTEXT", "0.0.0.0", 9092), ("0.0.0.0", 9092), ("machine", 9092)),
        (Listener("PLAINTEXT", "::", 9092), ("::", 9092), ("machine", 9092)),
        (Listener("PLAINTEXT", "b1.example", 9092), ("10.0.0.7", 9092), ("b1.example", 9092)),
    ],
)
def test_address_that_others_reach_is_registered(
    listener: Listener, bound: tuple[str, int], registered: tuple[str, int]
) -> None:
    (found,) = registered_listeners(options(listener), [bound], "machine")
    assert (found.name, found.security_protocol) == ("PLAINTEXT", "PLAINTEXT")
    assert (found.host, found.port) == registered


def test_advertised_address_is_registered() -> None:
    given = options(INSIDE, OUTSIDE, advertised=(Listener("OUTSIDE", "broker.example", 19_093),))
    found = registered_listeners(given, ADDRESSES, "machine")
    assert [(each.name, each.host, each.port) for each in found] == [
        ("PLAINTEXT", "machine", 9092),
        ("OUTSIDE", "broker.example", 19_093),
    ]


def test_broker_on_every_interface_is_reached_on_this_machine() -> None:
    assert reachable(("", 1)) == ("127.0.0.1", 1)
    assert reachable(("0.0.0.0", 1)) == ("127.0.0.1", 1)
    assert reachable(("::", 1)) == ("::1", 1)
    assert reachable(("10.0.0.1", 1)) == ("10.0.0.1", 1)
