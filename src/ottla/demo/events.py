"""The events of the site: activity data (page views, clicks, searches) and operational data (service metrics).

Pure, and deterministic for a seed.  Every event has its own time, and its record has that time as timestamp.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ottla.demo.day import BY_HOUR, EVEN, HOUR_MS, arrivals
from ottla.demo.services import CLICKS, PAGE_VIEWS, SEARCHES, SERVICE_METRICS
from ottla.demo.skew import Skewed

MEMBERS_COUNT: Final = 20_000
# One event in so many arrives hours after it happened: a phone was offline, a batch was resent.
LATE_ONE_IN: Final = 200
LATE_MS_MIN: Final = 2 * HOUR_MS
LATE_MS_MAX: Final = 6 * HOUR_MS
# One event in so many is not JSON: truncated, a proxy's error page, or binary.
MALFORMED_ONE_IN: Final = 2_500

_PAGES: Final = ["/feed", "/jobs", "/network", "/inbox", "/learning"] + [
    f"/{kind}/{number}" for number in range(1, 200) for kind in ("in", "company", "jobs")
]
_ELEMENTS: Final = ["like", "connect", "apply", "share", "comment", "follow", "hide"]
_QUERIES: Final = [
    f"{what} {where}"
    for what in ("engineer", "data engineer", "kafka", "spark", "manager", "nurse", "designer", "teacher", "welder")
    for where in ("jobs", "remote", "helsinki", "berlin", "bangalore", "são paulo", "salary", "courses")
]
_HOSTS: Final = [f"{service}-{number:02}" for service in ("web", "search", "feed", "graph") for number in range(1, 9)]
_METRICS: Final = [("cpu_percent", 35.0), ("latency_ms", 12.0), ("requests_per_s", 900.0), ("heap_mb", 700.0)]

_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Event(NamedTuple):
    """`arrival_ms` is when the site sends it, `timestamp_ms` when it happened; a late one happened much earlier."""

    arrival_ms: int
    timestamp_ms: int
    topic: str
    key: bytes
    value: bytes


class _Happening(NamedTuple):
    topic: str
    key: str
    facts: dict[str, object]


def events_of(service: str, count: int, seed: int, day_start_ms: int) -> Iterator[Event]:
    """The day of one service, exactly `count` events in the order of their arrival."""
    rng = random.Random(f"{seed}/{service}")
    if service == "metrics":
        happen, load = _measurements(), EVEN
    elif service == "search":
        happen, load = _searching(), BY_HOUR
    else:
        happen, load = _browsing(), BY_HOUR
    for arrival_ms in arrivals(day_start_ms, count, load, rng):
        timestamp_ms = arrival_ms - _lateness_ms(arrival_ms - day_start_ms, rng)
        topic, key, facts = happen(rng)
        value = _encode({"at_ms": timestamp_ms, **facts}).encode()
        if rng.random() * MALFORMED_ONE_IN < 1:
            value = _spoil(value, rng)
        yield Event(arrival_ms, timestamp_ms, topic, key.encode(), value)


def _lateness_ms(since_day_start_ms: int, rng: random.Random) -> int:
    """Mostly 0; never so much that the event would belong to the day before."""
    if rng.random() * LATE_ONE_IN >= 1:
        return 0
    late_ms = rng.randrange(LATE_MS_MIN, LATE_MS_MAX)
    return late_ms if late_ms <= since_day_start_ms else 0


def _browsing() -> Callable[[random.Random], _Happening]:
    """Page views, and clicks on pages that were viewed just before."""
    members = Skewed(list(range(1, MEMBERS_COUNT + 1)), exponent=0.7)
    pages = Skewed(_PAGES)
    elements = Skewed(_ELEMENTS)
    recent: deque[tuple[int, str]] = deque(maxlen=64)

    def happen(rng: random.Random) -> _Happening:
        if recent and rng.random() < 0.3:
            member, page = recent[int(rng.random() * len(recent))]
            return _Happening(CLICKS, f"m{member}", {"member": member, "page": page, "on": elements.draw(rng)})
        member, page = members.draw(rng), pages.draw(rng)
        recent.append((member, page))
        return _Happening(
            PAGE_VIEWS, f"m{member}", {"member": member, "page": page, "ms": int(rng.gammavariate(3, 40))}
        )

    return happen


def _searching() -> Callable[[random.Random], _Happening]:
    members = Skewed(list(range(1, MEMBERS_COUNT + 1)), exponent=0.7)
    queries = Skewed(_QUERIES)

    def happen(rng: random.Random) -> _Happening:
        member = members.draw(rng)
        facts = {"member": member, "query": queries.draw(rng), "found": int(rng.expovariate(1 / 200))}
        return _Happening(SEARCHES, f"m{member}", facts)

    return happen


def _measurements() -> Callable[[random.Random], _Happening]:
    def happen(rng: random.Random) -> _Happening:
        host = _HOSTS[int(rng.random() * len(_HOSTS))]
        metric, usual = _METRICS[int(rng.random() * len(_METRICS))]
        return _Happening(
            SERVICE_METRICS, host, {"host": host, "metric": metric, "value": round(rng.gauss(usual, usual / 6), 2)}
        )

    return happen


def _spoil(value: bytes, rng: random.Random) -> bytes:
    kind = int(rng.random() * 3)
    if kind == 0:
        return value[: rng.randrange(1, len(value))]
    return b"<html><h1>502 Bad Gateway</h1></html>" if kind == 1 else b"\xc3\x28" + value
