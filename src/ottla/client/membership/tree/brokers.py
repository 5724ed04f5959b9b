"""The brokers of a cluster, as ZooKeeper has them: where a consumer that only knows ZooKeeper begins."""

from __future__ import annotations

from ottla.client.wire.address import Address
from ottla.coordination.broker_registry import BrokerRegistration
from ottla.coordination.zookeeper.access import ConnectString
from ottla.coordination.zookeeper.inspection import inspect_tree
from ottla.coordination.zookeeper.security import UNSECURED, ZooKeeperSecurity
from ottla.model.errors import OttlaError
from ottla.security.protocol import SecurityProtocol


class NoBrokersInTree(OttlaError):
    """ZooKeeper answers, but names no broker that could be connected to."""


def brokers_of_tree(
    zookeeper: str,
    *,
    security: ZooKeeperSecurity = UNSECURED,
    timeout_ms: int = 10_000,
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
) -> list[str]:
    """The addresses of the live brokers' listeners of `protocol`, each `host:port`: for `bootstrap` of a client.
    Changes nothing.

    Raises `BadConnectString`, `ConfigError`, `ZooKeeperUnreachable`, `ZooKeeperDistrusted`, `ZooKeeperRefused`,
    `NoBrokersInTree`, and `NodeDamaged`.
    """
    seen = inspect_tree(zookeeper, security, timeout_ms / 1000)
    where = ConnectString.parse(zookeeper)
    if seen.cluster_id is None:
        raise NoBrokersInTree(
            f"there is no cluster at {where}", hint="it is zookeeper.connect of the brokers, with the chroot at its end"
        )
    found = [_address(broker.registration, protocol) for _, broker in sorted(seen.brokers.items())]
    addresses = [str(address) for address in found if address is not None]
    if not addresses:
        problem = f"none of them has a {protocol} listener" if seen.brokers else "none is registered"
        raise NoBrokersInTree(
            f"no broker of the cluster at {where} can be reached: {problem}", hint="start the brokers"
        )
    return addresses


def _address(registration: BrokerRegistration, protocol: SecurityProtocol) -> Address | None:
    """The first one that this client speaks the protocol of: as they are listed, those for clients come first."""
    for listener in registration.listeners:
        if listener.security_protocol == protocol:
            return Address(listener.host, listener.port)
    return None
