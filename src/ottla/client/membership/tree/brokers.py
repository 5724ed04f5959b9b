"""The brokers of a cluster, as ZooKeeper has them: where a consumer that only knows ZooKeeper begins."""

from __future__ import annotations

from typing import Final

from ottla.client.wire.address import Address
from ottla.coordination.registries import BrokerRegistration
from ottla.coordination.zookeeper.connect_string import ConnectString
from ottla.coordination.zookeeper.credentials import DigestCredentials
from ottla.coordination.zookeeper.inspection import inspect_tree
from ottla.model.errors import OttlaError

PLAINTEXT: Final = "PLAINTEXT"


class NoBrokersInTree(OttlaError):
    """ZooKeeper answers, but names no broker that could be connected to."""


def brokers_of_tree(zookeeper: str, *, digest: str | None = None, timeout_ms: int = 10_000) -> list[str]:
    """The addresses of the live brokers, each `host:port`: for `bootstrap` of a client.  Changes nothing.

    Raises `BadConnectString`, `ConfigError`, `ZooKeeperUnreachable`, `ZooKeeperRefused`, `NoBrokersInTree`, and
    `NodeDamaged`.
    """
    credentials = None if digest is None else DigestCredentials.parse(digest)
    seen = inspect_tree(zookeeper, credentials, timeout_ms / 1000)
    where = ConnectString.parse(zookeeper)
    if seen.cluster_id is None:
        raise NoBrokersInTree(
            f"there is no cluster at {where}", hint="it is zookeeper.connect of the brokers, with the chroot at its end"
        )
    found = [_address(broker.registration) for _, broker in sorted(seen.brokers.items())]
    addresses = [str(address) for address in found if address is not None]
    if not addresses:
        problem = "none of them has a PLAINTEXT listener" if seen.brokers else "none is registered"
        raise NoBrokersInTree(
            f"no broker of the cluster at {where} can be reached: {problem}", hint="start the brokers"
        )
    return addresses


def _address(registration: BrokerRegistration) -> Address | None:
    """The first one that this client speaks the protocol of: as they are listed, those for clients come first."""
    for listener in registration.listeners:
        if listener.security_protocol == PLAINTEXT:
            return Address(listener.host, listener.port)
    return None
