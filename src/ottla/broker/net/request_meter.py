"""Counts requests by API and takes their latencies, when metrics are served.

Of Produce and Fetch one in 32 is timed and counts as 32, of all other APIs each one: the histograms' counts
and sums stay true to the rates.  The time runs from when the router starts a request until its answer is complete;
a fetch's wait for records is part of it, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final

from ottla.broker.net.connection import Answer, Connection
from ottla.observe.metrics import Histogram
from ottla.protocol.api import ApiKey

# One less than a power of two.
SAMPLING_MASK: Final = 31
_SAMPLED: Final = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})
_KNOWN: Final = frozenset(int(api) for api in ApiKey)


# A request that is being handled: when that started, and what its connection had parked before.  No NamedTuple: to make
# one takes longer than everything else that is done for a request.
Timing = tuple[float, Answer | None]


class RequestMeter:
    """The router calls it around a handler.  Produce and Fetch are counted, and sampled, by the router itself."""

    def __init__(self, now_s: Callable[[], float] = perf_counter) -> None:
        self._now_s = now_s
        self._counts: dict[int, int] = {}
        self._latencies: dict[int, Histogram] = {}

    @property
    def counts(self) -> Mapping[ApiKey, int]:
        """Requests that have come, of all APIs but Produce and Fetch."""
        return {ApiKey(key): count for key, count in self._counts.items() if key not in _SAMPLED}

    @property
    def latencies(self) -> Mapping[ApiKey, Histogram]:
        """Of requests that were answered, in milliseconds."""
        return {ApiKey(key): latencies for key, latencies in self._latencies.items()}

    def count(self, key: int) -> None:
        """A request of this API has come.  One that is not offered is refused later, and not counted."""
        if key in _KNOWN:
            self._counts[key] = self._counts.get(key, 0) + 1

    def begin(self, connection: Connection) -> Timing:
        return self._now_s(), connection.newest_unanswered

    def handled(self, key: int, connection: Connection, timing: Timing) -> None:
        """The handler has returned: the request is answered, or parked, or its connection is closed."""
        if connection.is_closed:
            return
        started_s, newest_before = timing
        newest = connection.newest_unanswered
        if newest is None or newest is newest_before or newest.pieces is not None:
            self._observe(key, started_s)
        else:
            newest.watch_complete(partial(self._observe, key, started_s))

    def _observe(self, key: int, started_s: float) -> None:
        latencies = self._latencies.get(key)
        if latencies is None:
            latencies = self._latencies[key] = Histogram()
        latencies.observe((self._now_s() - started_s) * 1_000, SAMPLING_MASK + 1 if key in _SAMPLED else 1)
