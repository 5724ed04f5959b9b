"""Settings of producers: of batches (`ProducerOptions`), and of messages, with Kafka's names where Kafka has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias

from typing_extensions import TypedDict, TypeVar

from ottla.client.producing.interceptor import ProducerInterceptor
from ottla.client.producing.produce_requests import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from ottla.client.producing.producer_metrics import ProducerMetrics
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.security_argument import given_security
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.model.errors import ConfigError
from ottla.model.limits import KIB, MIB
from ottla.records.compression import CODEC_NAMES, Codec, check_level

KeyT = TypeVar("KeyT", default=bytes)
ValueT = TypeVar("ValueT", default=bytes)

Acks: TypeAlias = Literal["all", "1", "0", "-1", 1, 0, -1]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Serializer: TypeAlias = Callable[[Any], bytes | None]
Partitioner: TypeAlias = Callable[[bytes, int], int]

# The leader recognises this many of a producer's last batches in each partition.
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5

DEFAULT_STATISTICS_INTERVAL_MS: Final = 60_000

_ACKS: Final = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Kafka's producer settings; times in ms.  Raises ConfigError for settings that contradict each other.

    acks                 -1 all in-sync replicas, 1 the leader, 0 no answer
    idempotent           None: with acks -1
    max_in_flight        unanswered requests for each broker; at most 5 when idempotent
    request_bytes_max    batches of several partitions share a request up to this; one batch may be larger
    buffer_bytes_max     `send` blocks while more than this is unacknowledged
    delivery_timeout_ms  from `send` to the result, all retries included
    halts_on_refusal     after a batch was refused the later ones of its partition are too, until `resume`: what is
                         stored has no gap.  For copies of a log; needs an idempotent producer
    transactional_id     of a producer whose batches are in transactions; needs an idempotent producer
    transaction_timeout_ms  a transaction that is open for longer is aborted by its coordinator
    """

    acks: int = ACKS_ALL
    idempotent: bool | None = None
    max_in_flight: int = IDEMPOTENT_IN_FLIGHT_MAX
    request_bytes_max: int = 1 * MIB
    buffer_bytes_max: int = 32 * MIB
    delivery_timeout_ms: int = 120_000
    allow_auto_topic_creation: bool = True
    halts_on_refusal: bool = False
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            raise ConfigError(f"acks {self.acks} does not exist", hint="use all (-1), 1 or 0")
        if self.max_in_flight < 1:
            raise ConfigError("a producer needs at least one request in flight")
        if self.is_idempotent and self.acks != ACKS_ALL:
            raise ConfigError(f"an idempotent producer needs acks all, not {self.acks}")
        if self.is_idempotent and self.max_in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
            raise ConfigError(f"an idempotent producer has at most {IDEMPOTENT_IN_FLIGHT_MAX} requests in flight")
        if self.halts_on_refusal and not self.is_idempotent:
            raise ConfigError("without idempotence later batches may be stored before an earlier one is refused")
        if self.transactional_id is not None and not self.is_idempotent:
            raise ConfigError(
                "transactions need an idempotent producer",
                hint='leave acks and enable_idempotence out, or use acks "all"',
            )

    @property
    def is_idempotent(self) -> bool:
        return self.acks == ACKS_ALL if self.idempotent is None else self.idempotent


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """All times in ms.  Raises ConfigError for what cannot be, or contradicts itself.

    acks                   "all" in-sync replicas, 1 the leader, 0 no answer
    enable_idempotence     None: with acks "all"
    compression            none, gzip, snappy, lz4 or zstd, of each batch as a whole
    linger_ms              a batch that is not full is sent after this
    batch_bytes            a batch is full at this size before compression; one message may be larger
    batch_count_max        ... or at this count of messages
    buffer_bytes           messages that are not acknowledged; `send` waits while there are more
    max_block_ms           so long `send` waits for room, or to learn a topic's partitions
    delivery_timeout_ms    from a batch's sending to its end, all retries included
    max_request_bytes      no message, and no request of several batches, is larger
    transactional_id       messages are in transactions; only the newest producer with this id may write
    transaction_timeout_ms a transaction that is open for longer is aborted by its coordinator
    statistics_interval_ms so often `on_statistics` is called, on the producer's thread
    """

    acks: int = ACKS_ALL
    enable_idempotence: bool | None = None
    compression: Codec = Codec.NONE
    compression_level: int | None = None
    linger_ms: float = 5
    # Of 64 KiB to 1 MiB the smallest that is as fast as any: the work for a batch is shared by more messages.
    batch_bytes: int = 256 * KIB
    batch_count_max: int = 10_000
    buffer_bytes: int = 32 * MIB
    max_block_ms: float = 60_000
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    max_request_bytes: int = 1 * MIB
    max_in_flight: int = IDEMPOTENT_IN_FLIGHT_MAX
    metadata_max_age_ms: int = 300_000
    allow_auto_create_topics: bool = True
    client_id: str = "ottla-producer"
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    partitioner: Partitioner | None = None
    security: ClientSecurity = PLAINTEXT
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    statistics_interval_ms: float = DEFAULT_STATISTICS_INTERVAL_MS
    on_statistics: Callable[[ProducerMetrics], object] | None = None
    interceptors: tuple[ProducerInterceptor, ...] = ()

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            found = getattr(self, name)
            if isinstance(found, bool) or not isinstance(found, int | float) or not found >= least:
                raise ConfigError(f"{name} is {found!r}; it is a number of at least {least}")
        if self.delivery_timeout_ms < self.linger_ms:
            raise ConfigError(
                f"delivery_timeout_ms {self.delivery_timeout_ms} is below linger_ms {self.linger_ms}",
                hint="a batch waits for linger_ms before it is sent",
            )
        for name in ("key_serializer", "value_serializer", "partitioner", "on_statistics"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise ConfigError(f"{name} is a callable, not {type(given).__name__}")
        for each in self.interceptors:
            if not isinstance(each, ProducerInterceptor):
                raise ConfigError(f"{each!r} is no interceptor", hint="subclass ottla.interceptors.ProducerInterceptor")
        check_level(self.compression, self.compression_level)
        if self.transactional_id is not None and (
            not isinstance(self.transactional_id, str) or not self.transactional_id
        ):
            raise ConfigError(
                f"transactional_id {self.transactional_id!r} is no id", hint="it is a text, not an empty one"
            )
        self.raw_options()

    @property
    def is_plain(self) -> bool:
        """Whether bytes are sent as they are, to the partitions of Java's clients."""
        codes = (self.key_serializer, self.value_serializer, self.partitioner)
        return not self.interceptors and all(code is None for code in codes)

    def raw_options(self) -> ProducerOptions:
        """For the producer of whole batches; what `buffer_bytes` bounds here is not bounded again there."""
        return ProducerOptions(
            acks=self.acks,
            idempotent=self.enable_idempotence,
            max_in_flight=self.max_in_flight,
            request_bytes_max=self.max_request_bytes,
            buffer_bytes_max=_UNBOUNDED,
            delivery_timeout_ms=self.delivery_timeout_ms,
            allow_auto_topic_creation=self.allow_auto_create_topics,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
        )

    def client_options(self) -> ClientOptions:
        return ClientOptions(
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            call_timeout_ms=_CALL_MS,
            metadata_max_age_ms=self.metadata_max_age_ms,
            security=self.security,
        )


class ProducerArguments(TypedDict, Generic[KeyT, ValueT], total=False):
    """The settings as users of a producer give them: see `ottla.Producer`; the defaults are `ProducerSettings`'s."""

    acks: Acks
    enable_idempotence: bool | None
    compression: Compression | None
    compression_level: int | None
    linger_ms: float
    batch_bytes: int
    batch_count_max: int
    buffer_bytes: int
    max_block_ms: float
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_request_bytes: int
    max_in_flight: int
    metadata_max_age_ms: int
    allow_auto_create_topics: bool
    client_id: str
    key_serializer: Callable[[KeyT], bytes | None] | None
    value_serializer: Callable[[ValueT], bytes | None] | None
    partitioner: Partitioner | None
    security: ClientSecurity | Mapping[str, object] | None
    transactional_id: str | None
    transaction_timeout_ms: int
    statistics_interval_ms: float
    on_statistics: Callable[[ProducerMetrics], object] | None
    interceptors: Sequence[ProducerInterceptor]


def producer_settings(arguments: ProducerArguments[KeyT, ValueT]) -> ProducerSettings:
    """Raises ConfigError for what cannot be used."""
    found: dict[str, Any] = dict(arguments)
    for name, parsed in _PARSED.items():
        if name in found:
            found[name] = parsed(found[name])
    return ProducerSettings(**found)


def acks_of(acks: str | int) -> int:
    """ "all", 1 or 0, as users write it."""
    found = None if isinstance(acks, bool) else _ACKS.get(str(acks))
    if found is None:
        raise ConfigError(f"acks {acks!r} does not exist", hint='use "all", 1 or 0')
    return found


def codec_of(compression: str | None) -> Codec:
    """The codec, as users write it; None is none."""
    if compression is not None and not isinstance(compression, str):
        raise ConfigError(f"compression {compression!r} does not exist", hint=f"use one of {', '.join(CODEC_NAMES)}")
    return Codec.from_name(compression or "none")


# Of what users write as text or mappings.
_PARSED: Final[Mapping[str, Callable[[Any], object]]] = {
    "acks": acks_of,
    "compression": codec_of,
    "security": given_security,
    "interceptors": tuple,
}
_UNBOUNDED: Final = 1 << 62
# One attempt to reach a cluster, of several requests: between two of them the thread looks after everything else.
_CALL_MS: Final = 5_000
_LEAST: Final = {
    "linger_ms": 0,
    "batch_bytes": 1,
    "batch_count_max": 1,
    "buffer_bytes": 1,
    "max_block_ms": 0,
    "delivery_timeout_ms": 1,
    "request_timeout_ms": 1,
    "max_request_bytes": 1,
    "max_in_flight": 1,
    "metadata_max_age_ms": 1,
    "transaction_timeout_ms": 1,
    "statistics_interval_ms": 1,
}
