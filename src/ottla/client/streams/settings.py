"""The settings of a ConsumerConnector.  Names and defaults are those of Kafka's consumers, where they have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Generic, Literal, TypeAlias

from typing_extensions import TypedDict, TypeVar

from ottla.client.fetching.offsets import EARLIEST, LATEST, Isolation, IsolationLevel, isolation_level_of
from ottla.client.membership.kafka_group.options import AUTO
from ottla.client.streams.consumer_metrics import ConsumerMetrics
from ottla.client.streams.message_run import Deserializer
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.security_argument import given_security
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.model.errors import ConfigError
from ottla.model.limits import MIB

KeyT = TypeVar("KeyT", default=bytes)
ValueT = TypeVar("ValueT", default=bytes)

ResetPolicy: TypeAlias = Literal["earliest", "latest", "error"]

RESET_QUESTIONS: Final = {"earliest": EARLIEST, "latest": LATEST, "error": None}
# They may be 0: nothing is waited for.
_MAY_BE_ZERO: Final = {"consumer_timeout_ms", "release_wait_ms", "fetch_max_wait_ms"}

_MAY_BE_NONE: Final = {"consumer_timeout_ms", "session_timeout_ms"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Raises ConfigError for values that cannot be used."""

    auto_offset_reset: ResetPolicy = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    consumer_timeout_ms: int | None = None
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    stream_buffer_bytes: int = 4 * MIB
    max_partition_fetch_bytes: int = 1 * MIB
    fetch_max_bytes: int = 50 * MIB
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    release_wait_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    request_timeout_ms: int = 30_000
    connection_timeout_ms: int = 10_000
    client_id: str = "ottla"
    # Of the group: None is the default of its coordination.
    session_timeout_ms: int | None = None
    group_protocol: str = AUTO
    zookeeper_digest: str | None = field(default=None, repr=False)
    # It may have a password, too.
    zookeeper_security: Mapping[str, str] | None = field(default=None, repr=False)
    security: ClientSecurity = PLAINTEXT
    statistics_interval_ms: int = 60_000
    on_statistics: Callable[[ConsumerMetrics], object] | None = None

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in RESET_QUESTIONS:
            raise ConfigError(
                f"auto_offset_reset is {self.auto_offset_reset!r}", hint='use "latest", "earliest" or "error"'
            )
        for each in fields(self):
            value = getattr(self, each.name)
            if not each.name.endswith(("_ms", "_bytes")) or (value is None and each.name in _MAY_BE_NONE):
                continue
            least = 0 if each.name in _MAY_BE_ZERO else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{each.name} is {value!r}", hint=f"it is a whole number of at least {least}")
        for name in ("key_deserializer", "value_deserializer", "on_statistics"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ConfigError(f"{name} is {getattr(self, name)!r}", hint="it is a callable")

    def client_options(self) -> ClientOptions:
        return ClientOptions(
            client_id=self.client_id, request_timeout_ms=self.request_timeout_ms, security=self.security
        )

    @property
    def of_zookeeper(self) -> dict[str, str]:
        """The settings of the connection to ZooKeeper by their names."""
        of_digest = {} if self.zookeeper_digest is None else {"zookeeper.digest": self.zookeeper_digest}
        return {**(self.zookeeper_security or {}), **of_digest}


class ConnectorArguments(TypedDict, Generic[KeyT, ValueT], total=False):
    """The settings as users of a connector give them: see `ConsumerConnector`; the defaults are `StreamSettings`'s."""

    auto_offset_reset: ResetPolicy
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    consumer_timeout_ms: int | None
    key_deserializer: Callable[[bytes], KeyT] | None
    value_deserializer: Callable[[bytes], ValueT] | None
    stream_buffer_bytes: int
    max_partition_fetch_bytes: int
    fetch_max_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool
    isolation_level: Isolation
    release_wait_ms: int
    metadata_max_age_ms: int
    request_timeout_ms: int
    session_timeout_ms: int | None
    connection_timeout_ms: int
    group_protocol: str
    zookeeper_digest: str | None
    zookeeper_security: Mapping[str, str] | None
    client_id: str
    security: ClientSecurity | Mapping[str, object] | None
    statistics_interval_ms: int
    on_statistics: Callable[[ConsumerMetrics], object] | None


def stream_settings(arguments: ConnectorArguments[KeyT, ValueT]) -> StreamSettings:
    """Raises ConfigError for what cannot be used."""
    found: dict[str, Any] = dict(arguments)
    if "security" in found:
        found["security"] = given_security(found["security"])
    if "isolation_level" in found:
        found["isolation_level"] = isolation_level_of(found["isolation_level"])
    return StreamSettings(**found)
