"""The live brokers of the cluster as this broker sees them now, and its own place among them."""

from __future__ import annotations

from typing import Final

from ottla.broker.net.advertising import Advertising, BrokerAddress
from ottla.broker.tree.broker_lifecycle import NOT_REGISTERED, BrokerLifecycle
from ottla.broker.tree.registrar import Registrar
from ottla.coordination.broker_registry import BrokersView
from ottla.model.identifiers import NodeId
from ottla.runtime.clock import Clock


class LiveBrokers:
    """`Brokers` of the context.

    `peer_listener`: the listener, by its name, at which brokers reach each other where they have it.
    `session_timeout_ms`: of this broker's session with the tree.
    """

    def __init__(
        self,
        registrar: Registrar,
        lifecycle: BrokerLifecycle,
        advertising: Advertising,
        peer_listener: str,
        clock: Clock,
        session_timeout_ms: int,
    ) -> None:
        self._registrar: Final = registrar
        self._lifecycle: Final = lifecycle
        self._advertising: Final = advertising
        self._peer_listener: Final = peer_listener
        self._clock: Final = clock
        self._session_timeout_ms: Final = session_timeout_ms

    @property
    def live(self) -> BrokersView:
        return self._registrar.view

    @property
    def controller_id(self) -> NodeId:
        return min(self.live.by_id, default=self._lifecycle.node_id)

    @property
    def may_lead(self) -> bool:
        lifecycle = self._lifecycle
        return lifecycle.broker_epoch != NOT_REGISTERED and not lifecycle.is_uncertain(self._clock.boottime_ms())

    @property
    def is_replaced(self) -> bool:
        """Whether its session has ended, by any clock: the others list it no more, and lead what it led."""
        lease = self._lifecycle.lease
        return lease is not None and self._clock.boottime_ms() >= lease.until_ms + self._session_timeout_ms

    def addresses_for(self, local_address: tuple[str, int]) -> list[BrokerAddress]:
        return self._advertising.brokers_for(local_address, self.live)

    def peer_address(self, node_id: NodeId) -> tuple[str, int] | None:
        """Where a live broker listens for others: at the listener for peers, else at its first.  None: not live."""
        found = self.live.by_id.get(node_id)
        if found is None:
            return None
        listeners = sorted(found.registration.listeners, key=lambda each: each.name != self._peer_listener)
        return (listeners[0].host, listeners[0].port) if listeners else None
