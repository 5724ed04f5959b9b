"""Which brokers are near a consumer."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.fetching.rack_aware_selector import RackAwareSelector
from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.partitions.partition_read import ANY_REPLICA
from ottla.coordination.broker_registry import BrokersView
from ottla.model.identifiers import NodeId
from tests.unit.broker.live_brokers import live

REACHED = ("10.0.0.7", 9092)
OTHER_LISTENER = ("10.0.0.7", 9093)


class Brokers:
    """Broker 1 selects; only broker 3 has the other listener.  `lists_made` counts how often the brokers are listed."""

    def __init__(self, racks: Mapping[int, str]) -> None:
        self.view = live(*range(1, 6), racks=racks)
        self.lists_made = 0
        self.selector = RackAwareSelector(NodeId(1), lambda: self.view, self.brokers_for)

    def brokers_for(self, local_address: tuple[str, int]) -> list[BrokerAddress]:
        self.lists_made += 1
        view: BrokersView = self.view
        return [
            BrokerAddress(node_id, f"broker-{node_id}.example", 9092, broker.registration.rack)
            for node_id, broker in view.by_id.items()
            if local_address == REACHED or node_id in (1, 3)
        ]

    def near(self, rack: bytes, local_address: tuple[str, int] = REACHED) -> set[int]:
        reader = self.selector.reader(rack, local_address)
        assert reader.may_follow
        return set(reader.nearby)


def test_consumer_is_near_the_brokers_of_its_rack() -> None:
    brokers = Brokers({1: "a", 2: "b", 3: "b", 4: "c"})
    assert (brokers.near(b"b"), brokers.near(b"c")) == ({2, 3}, {4})


def test_consumer_in_the_rack_of_this_broker_is_served_here() -> None:
    assert Brokers({1: "a", 2: "a"}).selector.reader(b"a", REACHED) is ANY_REPLICA


def test_consumer_in_a_rack_without_brokers_is_served_here() -> None:
    brokers = Brokers({2: "b"})
    assert brokers.selector.reader(b"elsewhere", REACHED) is ANY_REPLICA
    assert brokers.selector.reader(b"\xff" * 100, REACHED) is ANY_REPLICA


def test_brokers_that_the_consumer_cannot_reach_by_its_listener_are_not_near() -> None:
    assert Brokers({2: "b", 3: "b"}).near(b"b", OTHER_LISTENER) == {3}


def test_brokers_are_listed_once_for_each_view_and_listener() -> None:
    brokers = Brokers({2: "b", 3: "b"})
    for _ in range(3):
        brokers.near(b"b")
    brokers.near(b"b", OTHER_LISTENER)
    assert brokers.lists_made == 2
    brokers.view = live(1, 3, racks={3: "b"})
    assert (brokers.near(b"b"), brokers.lists_made) == ({3}, 3)
