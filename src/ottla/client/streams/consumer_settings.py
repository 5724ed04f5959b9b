"""The settings of a Consumer: those of streams, and of its place in a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic

from typing_extensions import TypedDict

from ottla.client.fetching.offsets import Isolation
from ottla.client.membership.kafka_group.options import AUTO, KafkaGroupOptions
from ottla.client.streams.consumer_metrics import ConsumerMetrics
from ottla.client.streams.interceptors import ConsumerInterceptor, ConsumerInterceptors
from ottla.client.streams.settings import KeyT, ResetPolicy, StreamSettings, ValueT, stream_settings
from ottla.client.wire.other_clients import check_names
from ottla.client.wire.security.settings import ClientSecurity
from ottla.model.errors import ConfigError

# A third of it is the time between heartbeats: two of them may be lost.
_HEARTBEATS_IN_SESSION: Final = 3
DEFAULT_MAX_POLL_INTERVAL_MS: Final = 300_000


class ConsumerArguments(TypedDict, Generic[KeyT, ValueT], total=False):
    """The settings as users of a consumer give them: see `Consumer`."""

    auto_offset_reset: ResetPolicy
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    key_deserializer: Callable[[bytes], KeyT] | None
    value_deserializer: Callable[[bytes], ValueT] | None
    isolation_level: Isolation
    group_instance_id: str | None
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    group_protocol: str
    stream_buffer_bytes: int
    max_partition_fetch_bytes: int
    fetch_max_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool
    metadata_max_age_ms: int
    request_timeout_ms: int
    connection_timeout_ms: int
    client_id: str
    security: ClientSecurity | Mapping[str, object] | None
    statistics_interval_ms: int
    on_statistics: Callable[[ConsumerMetrics], object] | None
    interceptors: Sequence[ConsumerInterceptor]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """`group` None: the consumer belongs to none, and commits nothing."""

    group: str | None
    streams: StreamSettings
    of_group: KafkaGroupOptions
    interceptors: ConsumerInterceptors | None = None


def consumer_settings(of: str, group: str | None, arguments: ConsumerArguments[KeyT, ValueT]) -> ConsumerSettings:
    """Raises ConfigError for what cannot be used, TypeError for what is no setting of `of`."""
    given: dict[str, Any] = dict(arguments)
    check_names(of, given, {"group", *ConsumerArguments.__annotations__})
    if group is not None and (not isinstance(group, str) or not group):
        raise ConfigError(f"{group!r} is not a group", hint="its name is a text; leave it out to read without a group")
    max_poll_ms = given.pop("max_poll_interval_ms", DEFAULT_MAX_POLL_INTERVAL_MS)
    if isinstance(max_poll_ms, bool) or not isinstance(max_poll_ms, int) or max_poll_ms < 1:
        raise ConfigError(f"max_poll_interval_ms is {max_poll_ms!r}", hint="it is a whole number of at least 1")
    interceptors = tuple(given.pop("interceptors", ()))
    for each in interceptors:
        if not isinstance(each, ConsumerInterceptor):
            raise ConfigError(f"{each!r} is no interceptor", hint="subclass ottla.interceptors.ConsumerInterceptor")
    instance_id = given.pop("group_instance_id", None)
    heartbeat_ms = given.pop("heartbeat_interval_ms", None)
    streams = stream_settings({**given, "release_wait_ms": max_poll_ms})  # type: ignore[typeddict-item]
    if group is None:
        streams = replace(streams, enable_auto_commit=False)
    options = KafkaGroupOptions()
    session_ms = options.session_timeout_ms if streams.session_timeout_ms is None else streams.session_timeout_ms
    if heartbeat_ms is None:
        heartbeat_ms = max(1, min(options.heartbeat_interval_ms, session_ms // _HEARTBEATS_IN_SESSION))
    of_group = KafkaGroupOptions(
        protocol=given.get("group_protocol", AUTO),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        # What is revoked is given back in two thirds of it at the latest: the lease of a member that is late ends then.
        rebalance_timeout_ms=max_poll_ms * 3 // 2 + 1,
        group_instance_id=instance_id,
    )
    return ConsumerSettings(group, streams, of_group, ConsumerInterceptors(interceptors) if interceptors else None)
