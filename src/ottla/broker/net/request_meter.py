"""Measures requests: counts and latencies by API, when metrics are served; a line of the log for one that took long.

Of Produce and Fetch one in 32 is timed and counts as 32, of all other APIs each one: the histograms' counts
and sums stay true to the rates.  The time runs from when the router starts a request until its answer is complete;
a fetch's wait for records is part of it, as in Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from time import perf_counter
from typing import Final

from ottla.broker.net.connection import Answer, Connection
from ottla.observe.events import frequent
from ottla.observe.metrics import Histogram
from ottla.protocol.api import API_VERSIONS, ApiKey

# One less than a power of two.
SAMPLING_MASK: Final = 31
_SAMPLED: Final = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})
_KNOWN: Final = frozenset(int(api) for api in API_VERSIONS)


# A request that is being handled: when that started, and what its connection had parked before.  No NamedTuple: to make
# one takes longer than everything else that is done for a request.
Timing = tuple[float, Answer | None]
_log = logging.getLogger(__name__)


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


class SlowRequests:
    """Reports requests above the limit, and where their time went; a limit of 0 reports none.

    Waits by intention are not slow and do not count: a fetch's for records, a join's and a sync's for the group, and
    requests that wait for an earlier request of its connection.
    """

    __slots__ = ("limit_s",)

    def __init__(self, limit_ms: int) -> None:
        self.limit_s: Final = limit_ms / 1_000 if limit_ms > 0 else inf

    def note(self, connection: Connection, api_key: int, version: int, **parts_s: float) -> None:
        """A request took this long, part by part: reported when it is long in all."""
        took_s = sum(parts_s.values())
        if took_s <= self.limit_s:
            return
        try:
            api: object = ApiKey(api_key).name
        except ValueError:
            api = api_key
        _log.warning(
            "request.slow",
            extra=frequent(
                api=api,
                version=version,
                peer=connection.peer_name,
                client_id=connection.client_id,
                took_ms=round(took_s * 1_000),
                **{f"{part}_ms": round(part_s * 1_000) for part, part_s in parts_s.items()},
            ),
        )
