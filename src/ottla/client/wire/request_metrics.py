"""What a client counts of its requests: some additions for each request and response, nothing for a record."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.wire.errors import BrokerRefused
from ottla.model.errors import OttlaError
from ottla.protocol.api import ApiKey

# Each bound is at most 2.5 times the one before: so far may a percentile be above the latency that it is of.
_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


@dataclass(frozen=True, slots=True)
class LatencyMetrics:
    """From a request to its response.  Percentiles are upper bounds, from a histogram: at most `max_ms`."""

    count: int
    min_ms: float
    average_ms: float
    max_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Since the client was opened.

    latencies      by the name of the API, such as "PRODUCE"; that of a fetch includes its wait for records
    retries_count  requests and batches that failed, and were tried again
    errors         by the broker's error code, or by the kind of the error of a connection; retried ones included
    """

    requests_count: int
    request_bytes: int
    responses_count: int
    response_bytes: int
    in_flight_count: int
    connections_opened_count: int
    connections_failed_count: int
    connections_lost_count: int
    retries_count: int
    errors: Mapping[str, int]
    latencies: Mapping[str, LatencyMetrics]


class _Latencies:
    def __init__(self) -> None:
        self.count = 0
        self.sum_ms: float = 0
        self.min_ms: float = 0
        self.max_ms: float = 0
        self.counts = [0] * (len(_BOUNDS_MS) + 1)

    def add(self, latency_ms: float) -> None:
        self.min_ms = latency_ms if not self.count else min(self.min_ms, latency_ms)
        self.max_ms = max(self.max_ms, latency_ms)
        self.sum_ms += latency_ms
        self.counts[bisect_left(_BOUNDS_MS, latency_ms)] += 1
        self.count += 1

    def merge(self, other: _Latencies) -> None:
        if other.count:
            self.min_ms = other.min_ms if not self.count else min(self.min_ms, other.min_ms)
        self.max_ms = max(self.max_ms, other.max_ms)
        self.sum_ms += other.sum_ms
        self.count += other.count
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]

    def snapshot(self) -> LatencyMetrics:
        return LatencyMetrics(
            self.count,
            self.min_ms,
            self.sum_ms / self.count if self.count else 0,
            self.max_ms,
            self._percentile(0.5),
            self._percentile(0.99),
        )

    def _percentile(self, part: float) -> float:
        rank, seen = part * self.count, 0
        for bound_ms, count in zip(_BOUNDS_MS, self.counts, strict=False):
            seen += count
            if seen >= rank:
                return min(bound_ms, self.max_ms)
        return self.max_ms


class RequestMeter:
    """Of the connections of one thread, which counts; other threads may take a snapshot."""

    def __init__(self) -> None:
        self.requests_count = 0
        self.request_bytes = 0
        self.responses_count = 0
        self.response_bytes = 0
        self.in_flight_count = 0
        self.connections_opened_count = 0
        self.connections_failed_count = 0
        self.connections_lost_count = 0
        self.retries_count = 0
        self.errors: Counter[str] = Counter()
        self.latencies: dict[ApiKey, _Latencies] = {}

    def on_sent(self, size_bytes: int, *, expects_response: bool) -> None:
        self.requests_count += 1
        self.request_bytes += size_bytes
        self.in_flight_count += expects_response

    def on_received(self, api: ApiKey, size_bytes: int, latency_ms: float) -> None:
        self.responses_count += 1
        self.response_bytes += size_bytes
        self.in_flight_count -= 1
        found = self.latencies.get(api)
        if found is None:
            found = self.latencies[api] = _Latencies()
        found.add(latency_ms)

    def on_unanswered(self, requests_count: int) -> None:
        """Their connection is closed."""
        self.in_flight_count -= requests_count

    def on_opened(self) -> None:
        self.connections_opened_count += 1

    def on_open_failed(self) -> None:
        self.connections_failed_count += 1

    def on_lost(self) -> None:
        self.connections_lost_count += 1

    def on_retry(self, reason: OttlaError) -> None:
        self.retries_count += 1
        self.on_error(reason)

    def on_error(self, error: OttlaError) -> None:
        self.errors[error.code.name if isinstance(error, BrokerRefused) else type(error).__name__] += 1

    @staticmethod
    def snapshot(meters: Iterable[RequestMeter]) -> RequestMetrics:
        """The sums of several."""
        found = list(meters)
        errors: Counter[str] = Counter()
        latencies: dict[ApiKey, _Latencies] = {}
        for meter in found:
            # Copies in one step: their thread may add to them meanwhile.
            errors.update(dict(meter.errors))
            for api, counted in dict(meter.latencies).items():
                latencies.setdefault(api, _Latencies()).merge(counted)
        return RequestMetrics(
            requests_count=sum(each.requests_count for each in found),
            request_bytes=sum(each.request_bytes for each in found),
            responses_count=sum(each.responses_count for each in found),
            response_bytes=sum(each.response_bytes for each in found),
            in_flight_count=sum(each.in_flight_count for each in found),
            connections_opened_count=sum(each.connections_opened_count for each in found),
            connections_failed_count=sum(each.connections_failed_count for each in found),
            connections_lost_count=sum(each.connections_lost_count for each in found),
            retries_count=sum(each.retries_count for each in found),
            errors=errors,
            latencies={api.name: latencies[api].snapshot() for api in sorted(latencies)},
        )
