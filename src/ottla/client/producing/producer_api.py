"""What the faces of a producer have in common: its settings, and what happens when it is dropped."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from ottla.client.producing.prepared import Preparing
from ottla.client.producing.producer_core import ProducerCore
from ottla.client.producing.serializing import Partitioner
from ottla.client.producing.settings import (
    BATCH_BYTES,
    BATCH_COUNT_MAX,
    BUFFER_BYTES,
    DELIVERY_TIMEOUT_MS,
    LINGER_MS,
    MAX_BLOCK_MS,
    MAX_IN_FLIGHT,
    MAX_REQUEST_BYTES,
    METADATA_MAX_AGE_MS,
    REQUEST_TIMEOUT_MS,
    ProducerSettings,
    acks_of,
    codec_of,
)
from ottla.client.producing.settlement import Acknowledged
from ottla.client.wire.security.given import given_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.runtime.clock import SystemClock

KeyT = TypeVar("KeyT", default=bytes)
ValueT = TypeVar("ValueT", default=bytes)

Acks: TypeAlias = Literal["all", "1", "0", "-1", 1, 0, -1]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class ProducerApi(Generic[KeyT, ValueT]):
    """`bootstrap`: "host:port,host:port" or a sequence of such.  Settings: see `ottla.Producer`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] = "localhost:9092",
        *,
        acks: Acks = "all",
        enable_idempotence: bool | None = None,
        compression: Compression | None = "none",
        compression_level: int | None = None,
        linger_ms: float = LINGER_MS,
        batch_bytes: int = BATCH_BYTES,
        batch_count_max: int = BATCH_COUNT_MAX,
        buffer_bytes: int = BUFFER_BYTES,
        max_block_ms: float = MAX_BLOCK_MS,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT,
        metadata_max_age_ms: int = METADATA_MAX_AGE_MS,
        allow_auto_create_topics: bool = True,
        client_id: str = "ottla-producer",
        key_serializer: Callable[[KeyT], bytes | None] | None = None,
        value_serializer: Callable[[ValueT], bytes | None] | None = None,
        partitioner: Partitioner | None = None,
        security: ClientSecurity | Mapping[str, object] | None = None,
    ) -> None:
        settings = ProducerSettings(
            acks=acks_of(acks),
            enable_idempotence=enable_idempotence,
            compression=codec_of(compression),
            compression_level=compression_level,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            batch_count_max=batch_count_max,
            buffer_bytes=buffer_bytes,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_request_bytes=max_request_bytes,
            max_in_flight=max_in_flight,
            metadata_max_age_ms=metadata_max_age_ms,
            allow_auto_create_topics=allow_auto_create_topics,
            client_id=client_id,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            security=given_security(security),
        )
        chance = random.Random()
        self._preparing = Preparing(settings, SystemClock().now_ms, chance.choice)
        # What the short way of `send` is for.
        self._is_plain = settings.is_plain
        self._core = ProducerCore(bootstrap, settings, chance.choice)
        self._bootstrap = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        # What the short way looks at, each message.
        self._monitor = self._core.monitor
        self._keyless = self._core.accumulator.keyless

    @property
    def bootstrap(self) -> str:
        """The addresses that it was given: "host:port,host:port"."""
        return self._bootstrap

    def on_acknowledged(self, call: Callable[[Acknowledged], object]) -> None:
        """`call` for each batch of messages that is stored from now on; `ottla.audit` counts by it.

        On the producer's thread, which must not be held up, and before the messages' senders get their receipts.
        """
        self._core.on_acknowledged(call)

    def __repr__(self) -> str:
        end = ", closed" if self._core.is_closed else ""
        return f"<{type(self).__name__} to {self._bootstrap}{end}>"

    def _raise_failures(self) -> None:
        failures = self._core.take_failures()
        if failures is not None:
            raise failures

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # missing after a setting that was refused
        if core is not None and not core.is_closed:
            name = repr(self)  # before its thread, which closes it now, can have done so
            core.orphan()
            # At last: where warnings are errors it raises.
            warnings.warn(f"{name} was not closed", ResourceWarning, stacklevel=1, source=self)
