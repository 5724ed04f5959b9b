"""What both faces of a connector are told, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

from typing_extensions import TypeVar

from ottla.client.streams.connector_core import ConnectorCore
from ottla.client.streams.connector_hold import ConnectorHold
from ottla.client.streams.homes import core_of
from ottla.client.streams.settings import ResetPolicy, StreamSettings
from ottla.model.limits import MIB

KeyT = TypeVar("KeyT", default=bytes)
ValueT = TypeVar("ValueT", default=bytes)


class ConnectorFace(Generic[KeyT, ValueT]):
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
        )
        self._core: ConnectorCore = core_of(
            bootstrap,
            zookeeper,
            group,
            settings,
            session_timeout_ms=session_timeout_ms,
            group_protocol=group_protocol,
            zookeeper_digest=zookeeper_digest,
        )
        self._name = f"{type(self).__name__} of group {group!r}"
        self._hold = ConnectorHold(self._core, self._name)

    def __repr__(self) -> str:
        return f"<{self._name}, {len(self._core.feeds)} streams>"

    @property
    def blocked_reason(self) -> str | None:
        """Why a rebalance does not end: who holds what; None while there is no such."""
        return None if self._core.engine is None else self._core.engine.blocked_reason
