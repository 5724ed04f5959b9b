"""What the connectors for threads and for coroutines have in common: settings, and the choice of a membership."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic

from typing_extensions import TypeVar

from ottla.client.membership.kafka_group.membership import kafka_group_membership
from ottla.client.membership.kafka_group.options import AUTO, KafkaGroupOptions
from ottla.client.streams.connector_core import ConnectorCore, ConnectorHold
from ottla.client.streams.settings import ResetPolicy, StreamSettings
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.given import given_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.model.errors import ConfigError
from ottla.model.limits import MIB


def core_of(
    bootstrap: str | Sequence[str] | None, zookeeper: str | None, group: str, settings: StreamSettings
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
        if settings.group_protocol != AUTO:
            raise ConfigError(
                f"group_protocol is {settings.group_protocol!r}, with ZooKeeper",
                hint="it is of groups that brokers coordinate: leave it out",
            )
        # Imported late: most users have no ZooKeeper.
        from ottla.client.membership.tree.brokers import brokers_of_tree
        from ottla.client.membership.tree.membership import TreeMembership, TreeOptions

        of_tree = TreeOptions(
            connection_timeout_ms=settings.connection_timeout_ms,
            client_id=settings.client_id,
            digest=settings.zookeeper_digest,
        )
        if settings.session_timeout_ms is not None:
            of_tree = replace(of_tree, session_timeout_ms=settings.session_timeout_ms)
        return ConnectorCore(
            TreeMembership(zookeeper, group, of_tree),
            lambda: brokers_of_tree(
                zookeeper,
                digest=settings.zookeeper_digest,
                timeout_ms=settings.connection_timeout_ms,
                protocol=settings.security.protocol,
            ),
            settings,
        )
    assert bootstrap is not None
    if settings.zookeeper_digest is not None:
        raise ConfigError("a zookeeper_digest was given, but no ZooKeeper", hint="it goes with zookeeper=...")
    brokers = parse_bootstrap(bootstrap)
    of_group = KafkaGroupOptions(protocol=settings.group_protocol)
    if settings.session_timeout_ms is not None:
        of_group = replace(
            of_group,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=max(1, min(of_group.heartbeat_interval_ms, settings.session_timeout_ms // 3)),
        )
    client = ClientOptions(client_id=settings.client_id, security=settings.security)
    membership = kafka_group_membership(bootstrap, group, of_group, client)
    return ConnectorCore(membership, lambda: [str(broker) for broker in brokers], settings)


KeyT = TypeVar("KeyT", default=bytes)
ValueT = TypeVar("ValueT", default=bytes)


class ConnectorApi(Generic[KeyT, ValueT]):
    """See `ConsumerConnector` for the settings."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        zookeeper: str | None = None,
        group: str,
        auto_offset_reset: ResetPolicy = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        consumer_timeout_ms: int | None = None,
        key_deserializer: Callable[[bytes], KeyT] | None = None,
        value_deserializer: Callable[[bytes], ValueT] | None = None,
        stream_buffer_bytes: int = 4 * MIB,
        max_partition_fetch_bytes: int = 1 * MIB,
        fetch_max_bytes: int = 50 * MIB,
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        check_crcs: bool = True,
        release_wait_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        session_timeout_ms: int | None = None,
        connection_timeout_ms: int = 10_000,
        group_protocol: str = "auto",
        zookeeper_digest: str | None = None,
        client_id: str = "ottla",
        security: ClientSecurity | Mapping[str, object] | None = None,
    ) -> None:
        settings = StreamSettings(
            auto_offset_reset=auto_offset_reset,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            consumer_timeout_ms=consumer_timeout_ms,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            stream_buffer_bytes=stream_buffer_bytes,
            max_partition_fetch_bytes=max_partition_fetch_bytes,
            fetch_max_bytes=fetch_max_bytes,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_wait_ms=fetch_max_wait_ms,
            check_crcs=check_crcs,
            release_wait_ms=release_wait_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            connection_timeout_ms=connection_timeout_ms,
            client_id=client_id,
            session_timeout_ms=session_timeout_ms,
            group_protocol=group_protocol,
            zookeeper_digest=zookeeper_digest,
            security=given_security(security),
        )
        self._core: ConnectorCore = core_of(bootstrap, zookeeper, group, settings)
        self._name = f"{type(self).__name__} of group {group!r}"
        self._hold = ConnectorHold(self._core, self._name)

    def __repr__(self) -> str:
        return f"<{self._name}, {len(self._core.feeds)} streams>"

    @property
    def blocked_reason(self) -> str | None:
        """Why a rebalance does not end: who holds what; None while there is no such."""
        return None if self._core.engine is None else self._core.engine.blocked_reason
