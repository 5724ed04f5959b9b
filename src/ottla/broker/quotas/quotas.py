"""The quotas of a running broker: the limits in force, what was used of them, and the clock between the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.broker.quotas.quota_limits import NO_LIMITS, Limit, QuotaLimits
from ottla.broker.quotas.usage import QuotaRate, QuotaUsage
from ottla.model.quotas import QuotaKind
from ottla.runtime.clock import Clock


class Quotas:
    """Shared by all connections of a broker."""

    def __init__(self, usage: QuotaUsage, clock: Clock, request_throttle_ms_max: int) -> None:
        """`request_throttle_ms_max`: of one request, for request time and connections (Kafka's: one sample)."""
        self._usage: Final = usage
        self.now_ms: Final = clock.monotonic_ms
        self._request_throttle_ms_max: Final = request_throttle_ms_max
        self.limits = NO_LIMITS
        self.throttled_count: Final[Counter[QuotaKind]] = Counter()
        self.throttled_ms: Final[Counter[QuotaKind]] = Counter()

    def follow(self, limits: QuotaLimits) -> None:
        """These are in force from now on."""
        self.limits = limits

    @property
    def sharers_count(self) -> int:
        return self._usage.sharers_count

    def rates(self, count_max: int) -> Iterator[QuotaRate]:
        return self._usage.rates(self.now_ms(), count_max)

    def allowed_in_window(self, limit: Limit) -> float:
        """The largest amount that is not above the limit when it is the only one."""
        return self._usage.allowed_in_window(limit)

    def record(self, limit: Limit, amount: float) -> int:
        """How long the client is throttled after this amount."""
        return self._bounded(limit, self._usage.record(limit, amount, self.now_ms()))

    def record_unless_above(self, limit: Limit, amount: float) -> tuple[bool, int]:
        """See `QuotaUsage`."""
        return self._usage.record_unless_above(limit, amount, self.now_ms())

    def take_connection(self, limit: Limit) -> int:
        """Count a new connection; or how long its address is throttled, and then it is not counted."""
        now_ms = self.now_ms()
        throttle_ms = self._usage.record(limit, 1, now_ms)
        if throttle_ms:
            self._usage.record(limit, -1, now_ms)
        return self._bounded(limit, throttle_ms)

    def throttle_ms(self, limit: Limit) -> int:
        """How long the client is throttled for what it has used so far."""
        return self._bounded(limit, self._usage.throttle_ms(limit, self.now_ms()))

    def record_mutations(self, limit: Limit, count: int) -> int:
        return self._usage.record_mutations(limit, count, self.now_ms())

    def mutations_throttle_ms(self, limit: Limit) -> int:
        return self._usage.mutations_throttle_ms(limit, self.now_ms())

    def count_throttle(self, throttles: Mapping[QuotaKind, int]) -> int:
        """Report a request that is throttled for the longest of these; returns that time."""
        kind, throttle_ms = max(throttles.items(), key=lambda each: each[1])
        self.throttled_count[kind] += 1
        self.throttled_ms[kind] += throttle_ms
        return throttle_ms

    def _bounded(self, limit: Limit, throttle_ms: int) -> int:
        if limit.kind in _BOUNDED:
            return min(throttle_ms, self._request_throttle_ms_max)
        return throttle_ms


_BOUNDED: Final = (QuotaKind.REQUEST_PERCENTAGE, QuotaKind.CONNECTION_CREATION_RATE)
