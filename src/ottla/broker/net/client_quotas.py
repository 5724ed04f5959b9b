"""The quotas of one connection: what its requests use, and how long it starts no further one.

As in Apache Kafka (KIP-219) a throttled request is answered at once, with the time; then the connection is muted for
that time.  What a request uses is counted when its amount is known: bytes produced when it comes, bytes fetched when it
is answered, its time on the event loop after each step of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from ottla.broker.quotas.quota_limits import Limit
from ottla.broker.quotas.quotas import Quotas
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.quotas import QuotaKind
from ottla.runtime.loop_offload import Timers

R = TypeVar("R")

_PRODUCE: Final = QuotaKind.PRODUCER_BYTE_RATE
_FETCH: Final = QuotaKind.CONSUMER_BYTE_RATE
_REQUEST: Final = QuotaKind.REQUEST_PERCENTAGE
_MUTATIONS: Final = QuotaKind.CONTROLLER_MUTATION_RATE
_UNBOUNDED: Final = 1 << 62


class Muting(Protocol):
    """The connection."""

    def mute(self) -> None:
        """Start no further request until `unmute`."""
        ...

    def unmute(self) -> None: ...


class ClientQuotas:
    """Of one connection, which has one request at a time that may be throttled when it is answered."""

    __slots__ = (
        "_began_s",
        "_client_id",
        "_connection",
        "_is_exempt",
        "_is_over",
        "_is_routing",
        "_limits",
        "_mutations_ms",
        "_muted_until_ms",
        "_owed_ms",
        "_quotas",
        "_size_bytes",
        "_timer",
        "_timers",
        "_user",
        "_version",
    )

    def __init__(self, quotas: Quotas, connection: Muting, user: str, timers: Timers) -> None:
        self._quotas: Final = quotas
        self._connection: Final = connection
        self._user: Final = user
        self._timers: Final = timers
        self._client_id: str | None = None
        # Of the limits that were looked up for the client id.
        self._version = -1
        self._limits: Mapping[QuotaKind, Limit] = {}
        self._size_bytes = 0
        # The answer may not have its position yet: what mutes the connection comes after it.
        self._is_routing = False
        self._began_s = 0.0
        self._is_exempt = False
        self._is_over = False
        self._owed_ms = self._mutations_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._muted_until_ms = 0

    def begin(self, client_id: str | None, size_bytes: int) -> None:
        """A request is routed; `settle` ends that."""
        self._is_routing, self._is_exempt = True, False
        self._began_s = perf_counter()
        self._size_bytes = size_bytes
        self._owed_ms = self._mutations_ms = 0
        limits, client_id = self._quotas.limits, client_id or ""
        if client_id != self._client_id or limits.version != self._version:
            self._client_id, self._version = client_id, limits.version
            self._limits = limits.of_client(self._user, client_id)

    def settle(self) -> None:
        """The request was routed: it is answered, or its answer has its position."""
        self._is_routing = False
        self.spent(perf_counter() - self._began_s)
        if self._owed_ms:
            self._mute(self._owed_ms)

    def exempt(self) -> None:
        """The request is one between brokers."""
        self._is_exempt = True

    def spent(self, took_s: float) -> None:
        """The request took this time of the event loop; a later one is throttled for it."""
        limit = self._limits.get(_REQUEST)
        if limit is not None and not self._is_exempt:
            self._quotas.record(limit, took_s * 100)

    def produced(self) -> int:
        """How long the client is throttled for the produce request that is routed, in milliseconds."""
        limit = self._limits.get(_PRODUCE)
        return self._throttled(_PRODUCE, 0 if limit is None else self._quotas.record(limit, self._size_bytes))

    @property
    def fetch_bytes_max(self) -> int:
        """Of one answer: what the limit allows in a window."""
        limit = self._limits.get(_FETCH)
        return _UNBOUNDED if limit is None else max(int(self._quotas.allowed_in_window(limit)), 1)

    def fetched(self, size_bytes: int) -> tuple[bool, int]:
        """Whether an answer with so many bytes may be sent, and how long the client is throttled."""
        limit = self._limits.get(_FETCH)
        may_send, throttle_ms = True, 0
        if limit is not None and size_bytes:
            may_send, throttle_ms = self._quotas.record_unless_above(limit, size_bytes)
        return may_send, self._throttled(_FETCH, throttle_ms)

    def answered(self) -> int:
        """How long the client is throttled for any other request, which is answered now."""
        return self._throttled(_MUTATIONS, self._mutations_ms)

    def answer(self, response: object) -> None:
        """The same, with the time in the response where that has a place for it."""
        throttle_ms = self.answered()
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms

    def require_mutations(self) -> None:
        """Raises `RequestError` (THROTTLING_QUOTA_EXCEEDED) when no change of topics is allowed now."""
        limit = self._limits.get(_MUTATIONS)
        throttle_ms = 0 if limit is None else self._quotas.mutations_throttle_ms(limit)
        if throttle_ms:
            self._mutations_ms = throttle_ms
            raise RequestError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"controller_mutation_rate: try again in {throttle_ms} ms"
            )

    def count_mutations(self, count: int, *, throttles: bool) -> None:
        """So many partitions were created or deleted.  `throttles`: else further ones are refused."""
        limit = self._limits.get(_MUTATIONS)
        if limit is not None:
            throttle_ms = self._quotas.record_mutations(limit, count)
            if throttles:
                self._mutations_ms = throttle_ms

    def end(self) -> None:
        """Throttle the connection no more: it closes, or its client has other quotas now."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._unmute()

    def _unmute(self) -> None:
        self._timer = None
        self._connection.unmute()

    def _throttled(self, kind: QuotaKind, throttle_ms: int) -> int:
        limit = self._limits.get(_REQUEST)
        request_ms = 0 if limit is None or self._is_exempt else self._quotas.throttle_ms(limit)
        if not throttle_ms and not request_ms:
            return 0
        longest_ms = self._quotas.count_throttle({kind: throttle_ms, _REQUEST: request_ms})
        if self._is_routing:
            self._owed_ms = longest_ms
        else:
            self._mute(longest_ms)
        return longest_ms

    def _mute(self, throttle_ms: int) -> None:
        if self._is_over:
            return
        until_ms = self._quotas.now_ms() + throttle_ms
        if self._timer is not None:
            if until_ms <= self._muted_until_ms:
                return
            self._timer.cancel()
        else:
            self._connection.mute()
        self._muted_until_ms = until_ms
        self._timer = self._timers.call_later(throttle_ms / 1_000, self._unmute)


# Of a connection and its principal; None: no quota is set.
QuotasOf: TypeAlias = Callable[[Muting, str], ClientQuotas | None]


def timed(work: Coroutine[Any, Any, R], quotas: ClientQuotas | None) -> Coroutine[Any, Any, R]:
    """The work of a request, whose time on the event loop counts against its client's quotas."""
    return work if quotas is None else Timed(work, quotas.spent)


class Timed(Coroutine[Any, Any, R]):
    """A coroutine that reports the time of each of its steps in seconds, without what it waits for."""

    __slots__ = ("_serving", "_spent")

    def __init__(self, serving: Coroutine[Any, Any, R], spent: Callable[[float], None]) -> None:
        self._serving: Final = serving
        self._spent: Final = spent

    def send(self, value: Any) -> Any:
        began_s = perf_counter()
        try:
            return self._serving.send(value)
        finally:
            self._spent(perf_counter() - began_s)

    def throw(self, *error: Any) -> Any:
        began_s = perf_counter()
        try:
            return self._serving.throw(*error)
        finally:
            self._spent(perf_counter() - began_s)

    def close(self) -> None:
        self._serving.close()

    def __await__(self) -> Generator[Any, Any, R]:
        return (yield from self._serving.__await__())
