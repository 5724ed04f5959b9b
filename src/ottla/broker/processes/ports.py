"""The ports of the brokers of one machine, which their supervisor holds for as long as it runs."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack

from ottla.broker.net.listener import hold
from ottla.model.identifiers import NodeId
from ottla.storage.directory.process_places import ProcessPlaces


def hold_ports(places: ProcessPlaces, left: Collection[NodeId], closing: ExitStack) -> None:
    """Make sure that no other program has the ports, and keep them for the brokers until `closing` ends.

    `left`: the brokers that run already, and have theirs.  Raises `AddressTaken`, and `ConfigError` for an address that
    cannot be.
    """
    for index, shared in enumerate(places.listeners):
        closing.enter_context(hold(shared.host, shared.port, is_in_use=bool(left)))
        for each in places.brokers:
            closing.enter_context(hold(shared.host, each.ports[index], is_in_use=each.node_id in left))
