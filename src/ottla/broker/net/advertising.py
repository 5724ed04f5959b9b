"""The addresses given to clients: from `advertised.listeners`, else those that they can reach.

A standalone broker returns the address that the client itself used, which works through port forwards, containers'
names and loopback alike.  Brokers of a cluster register an address for each listener, and each of them returns
the same addresses to a client: those of the listener that it connected to, by the listener's name.  Brokers that share
a port are on one machine: each returns the host that the client itself used, with the port of each broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.coordination.broker_registry import BrokerListener, BrokersView
from ottla.model.identifiers import NodeId
from ottla.model.listener import Listener, without_mapping
from ottla.model.serve_options import ServeOptions

# By which this machine reaches what is bound to every interface.
_LOOPBACK: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class BrokerAddress(NamedTuple):
    """A broker as Metadata and DescribeCluster list it."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


class Advertising:
    """Addresses by the port that a connection was accepted on.

    `own_id`: of a broker that is the only one of its tree; None in a cluster.
    """

    def __init__(
        self, options: ServeOptions, addresses: Sequence[tuple[str, int]], own_id: NodeId | None = None
    ) -> None:
        by_name = {listener.name: (listener.host, listener.port) for listener in options.advertised}
        self._own_id = own_id
        self._names: dict[int, str] = {}
        self._by_port: dict[int, tuple[str, int]] = {}
        # Listeners of brokers that are all on this machine, where no host is given for clients.
        self._of_one_machine = {each.name for each in options.shared} - by_name.keys()
        for listener, (_, port) in zip(options.listeners, addresses, strict=True):
            self._names[port] = listener.name
            advertised = by_name.get(listener.name)
            if advertised is not None:
                self._by_port[port] = advertised
        for listener in options.shared:
            self._names[listener.port] = listener.name

    def address_for(self, local_address: tuple[str, int]) -> tuple[str, int]:
        """Host and port of this broker to return to a client that connected to `local_address`."""
        host, port = local_address
        return self._by_port.get(port, (without_mapping(host), port))

    def brokers_for(self, local_address: tuple[str, int], live: BrokersView) -> list[BrokerAddress]:
        """The live brokers to return to that client, by id; brokers without its listener are left out, as in Kafka."""
        name = self._names.get(local_address[1])
        own_host = without_mapping(local_address[0]) if name in self._of_one_machine else None
        found: list[BrokerAddress] = []
        for node_id in sorted(live.by_id):
            registration = live.by_id[node_id].registration
            if node_id == self._own_id:
                found.append(BrokerAddress(node_id, *self.address_for(local_address), registration.rack))
                continue
            found += [
                BrokerAddress(node_id, own_host or listener.host, listener.port, registration.rack)
                for listener in registration.listeners
                if listener.name == name
            ]
        return found


def registered_listeners(
    options: ServeOptions, addresses: Sequence[tuple[str, int]], host_name: str
) -> tuple[BrokerListener, ...]:
    """The addresses that this broker registers, by which clients and other brokers reach it."""
    advertised = {listener.name: listener for listener in options.advertised}
    found: list[BrokerListener] = []
    for listener, (bound_host, port) in zip(options.listeners, addresses, strict=True):
        if listener.name in advertised:
            host, port = advertised[listener.name].host, advertised[listener.name].port
        elif options.shared and not listener.uses_tls:
            # The others are on this machine, and clients get another host: `brokers_for`.  A certificate names neither.
            host, _ = reachable((bound_host, port))
        else:
            host = _reachable_host(listener, bound_host, host_name)
        found.append(BrokerListener(listener.name, listener.protocol, host, port))
    return tuple(found)


def reachable(address: tuple[str, int]) -> tuple[str, int]:
    """Where this machine reaches what listens there."""
    host, port = address
    return _LOOPBACK.get(host, host), port


def _reachable_host(listener: Listener, bound_host: str, host_name: str) -> str:
    if listener.is_every_interface:
        return host_name
    # `localhost` may resolve to an address that is not the bound one, a name of the machine is what others resolve.
    return bound_host if listener.is_loopback else listener.host
