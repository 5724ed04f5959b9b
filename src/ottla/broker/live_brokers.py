"""The live brokers of the cluster as this broker sees them now, and its own place among them."""

from __future__ import annotations

from typing import Final

from ottla.broker.net.advertising import Advertising, BrokerAddress
from ottla.broker.tree.membership import NOT_REGISTERED, Membership
from ottla.broker.tree.registrar import Registrar
from ottla.coordination.registries import BrokersView
from ottla.model.identifiers import NodeId
from ottla.runtime.clock import Clock


class LiveBrokers:
    """`Brokers` of the context.

    `peer_listener`: the listener, by its name, at which brokers reach each other where they have it.
    """

    def __init__(
        self, registrar: Registrar, membership: Membership, advertising: Advertising, peer_listener: str, clock: Clock
    ) -> None:
        self._registrar: Final = registrar
        self._membership: Final = membership
        self._advertising: Final = advertising
        self._peer_listener: Final = peer_listener
        self._clock: Final = clock

    @property
    def live(self) -> BrokersView:
        return self._registrar.view

    @property
    def controller_id(self) -> NodeId:
        return min(self.live.by_id, default=self._membership.node_id)

    @property
    def may_lead(self) -> bool:
        membership = self._membership
        return membership.broker_epoch != NOT_REGISTERED and not membership.is_uncertain(self._clock.boottime_ms())

    def addresses_for(self, local_address: tuple[str, int]) -> list[BrokerAddress]:
        return self._advertising.brokers_for(local_address, self.live)

    def peer_address(self, node_id: NodeId) -> tuple[str, int] | None:
        """Where a live broker listens for others: at the listener for peers, else at its first.  None: not live."""
        found = self.live.by_id.get(node_id)
        if found is None:
            return None
        listeners = sorted(found.registration.listeners, key=lambda each: each.name != self._peer_listener)
        return (listeners[0].host, listeners[0].port) if listeners else None
