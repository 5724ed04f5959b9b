"""A view of live brokers for tests: those of the given node ids, each in its first life."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ottla.coordination.broker_registry import BrokerListener, BrokerRegistration, BrokersView, LiveBroker
from ottla.model.identifiers import NodeId

BROKER_EPOCH = 1
PORT = 9092


def live(*node_ids: int, version: int = 1, racks: Mapping[int, str] | None = None) -> BrokersView:
    """Broker 1 listens as `broker-1.example`, and so on."""
    brokers: dict[NodeId, LiveBroker] = {}
    for each in node_ids:
        node_id = NodeId(each)
        listeners = (BrokerListener("PLAINTEXT", "PLAINTEXT", f"broker-{each}.example", PORT),)
        registration = BrokerRegistration(node_id, listeners, None if racks is None else racks.get(each))
        brokers[node_id] = LiveBroker(registration, BROKER_EPOCH)
    return BrokersView(version, MappingProxyType(brokers))
