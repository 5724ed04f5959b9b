"""Which membership a connector has: that of a group of brokers, or Algorithm 1 on ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ottla.client.membership.kafka_group.membership import kafka_group_membership
from ottla.client.membership.kafka_group.options import AUTO, KafkaGroupOptions
from ottla.client.streams.connector_core import ConnectorCore
from ottla.client.streams.settings import StreamSettings
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.options import ClientOptions
from ottla.model.errors import ConfigError


def core_of(
    bootstrap: str | Sequence[str] | None,
    zookeeper: str | None,
    group: str,
    settings: StreamSettings,
    *,
    session_timeout_ms: int | None,
    group_protocol: str,
    zookeeper_digest: str | None,
) -> ConnectorCore:
    """Raises ConfigError unless exactly one of `bootstrap` and `zookeeper` is given."""
    if (bootstrap is None) == (zookeeper is None):
        raise ConfigError(
            "a connector needs either brokers or a ZooKeeper",
            hint='bootstrap="localhost:9092", or zookeeper="localhost:2181/ottla"',
        )
    if not isinstance(group, str) or not group:
        raise ConfigError(f"{group!r} is not a group", hint="its name is a text")
    if zookeeper is not None:
        if group_protocol != AUTO:
            raise ConfigError(
                f"group_protocol is {group_protocol!r}, with ZooKeeper",
                hint="it is of groups that brokers coordinate: leave it out",
            )
        # Imported late: most users have no ZooKeeper.
        from ottla.client.membership.tree.brokers import brokers_of_tree
        from ottla.client.membership.tree.membership import TreeMembership, TreeOptions

        of_tree = TreeOptions(
            connection_timeout_ms=settings.connection_timeout_ms, client_id=settings.client_id, digest=zookeeper_digest
        )
        if session_timeout_ms is not None:
            of_tree = replace(of_tree, session_timeout_ms=session_timeout_ms)
        return ConnectorCore(
            TreeMembership(zookeeper, group, of_tree),
            lambda: brokers_of_tree(zookeeper, digest=zookeeper_digest, timeout_ms=settings.connection_timeout_ms),
            settings,
        )
    assert bootstrap is not None
    if zookeeper_digest is not None:
        raise ConfigError("a zookeeper_digest was given, but no ZooKeeper", hint="it goes with zookeeper=...")
    brokers = parse_bootstrap(bootstrap)
    of_group = KafkaGroupOptions(protocol=group_protocol)
    if session_timeout_ms is not None:
        of_group = replace(
            of_group,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=max(1, min(of_group.heartbeat_interval_ms, session_timeout_ms // 3)),
        )
    membership = kafka_group_membership(bootstrap, group, of_group, ClientOptions(client_id=settings.client_id))
    return ConnectorCore(membership, lambda: [str(broker) for broker in brokers], settings)
