"""Which brokers are near a consumer: those in its rack (KIP-392, replica.selector.class)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.partitions.partition_read import ANY_REPLICA, ConsumerReader
from ottla.coordination.broker_registry import BrokersView
from ottla.model.identifiers import NodeId


class RackAwareSelector:
    """As Apache Kafka's: a consumer in this broker's own rack is served here, any other one in its rack if that can be.

    `live` is the newest view of the brokers; `brokers_for` has them by the listener that a client reached, since only
    there it can reach the others.
    """

    def __init__(
        self,
        node_id: NodeId,
        live: Callable[[], BrokersView],
        brokers_for: Callable[[tuple[str, int]], Sequence[BrokerAddress]],
    ) -> None:
        self._node_id: Final = node_id
        self._live = live
        self._brokers_for = brokers_for
        # Of this view, by the port that consumers reached: the racks that have brokers, without this broker's own.
        self._seen: BrokersView | None = None
        self._readers: dict[int, Mapping[bytes, ConsumerReader]] = {}

    def reader(self, rack: bytes, local_address: tuple[str, int]) -> ConsumerReader:
        """How to serve a consumer in `rack` that reached this broker at `local_address`."""
        live = self._live()
        if live is not self._seen:
            self._seen = live
            self._readers.clear()
        by_rack = self._readers.get(local_address[1])
        if by_rack is None:
            by_rack = self._readers[local_address[1]] = self._by_rack(local_address)
        return by_rack.get(rack, ANY_REPLICA)

    def _by_rack(self, local_address: tuple[str, int]) -> dict[bytes, ConsumerReader]:
        found: dict[str, set[NodeId]] = {}
        own_rack = None
        for broker in self._brokers_for(local_address):
            if broker.node_id == self._node_id:
                own_rack = broker.rack
            elif broker.rack is not None:
                found.setdefault(broker.rack, set()).add(NodeId(broker.node_id))
        return {
            rack.encode(): ConsumerReader(may_follow=True, nearby=frozenset(node_ids))
            for rack, node_ids in found.items()
            if rack != own_rack
        }
