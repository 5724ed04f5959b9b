"""The site: its services, topics and events of one day (activity data and service metrics).

Pure, and deterministic for a seed.  Every event has its own time, and its record has that time as timestamp.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from ottla.model.limits import DAY_MS, HOUR_MS, MINUTE_MS

T = TypeVar("T")

CONFLUENT: Final = "confluent-kafka"
KAFKA_PYTHON: Final = "kafka-python"
OTTLA: Final = "ottla"

PAGE_VIEWS: Final = "page-views"
CLICKS: Final = "clicks"
SEARCHES: Final = "searches"
SERVICE_METRICS: Final = "service-metrics"
# Partitions of each topic.
TOPICS: Final[Mapping[str, int]] = {PAGE_VIEWS: 4, CLICKS: 4, SEARCHES: 2, SERVICE_METRICS: 2}


class Service(NamedTuple):
    """`client` is the library that it sends with; `share` is its percentage of all events."""

    name: str
    client: str
    codec: Literal["lz4", "zstd", "snappy", "gzip"]
    share: int


SERVICES: Final = (
    Service("web-1", OTTLA, "lz4", 41),
    Service("web-2", CONFLUENT, "zstd", 41),
    Service("search", CONFLUENT, "snappy", 12),
    Service("metrics", KAFKA_PYTHON, "gzip", 6),
)

MEMBERS_COUNT: Final = 20_000
# One event in so many arrives hours after it happened: a phone was offline, a batch was resent.
LATE_ONE_IN: Final = 200
LATE_MS_MIN: Final = 2 * HOUR_MS
LATE_MS_MAX: Final = 6 * HOUR_MS
# One event in so many is not JSON: truncated, a proxy's error page, or binary.
MALFORMED_ONE_IN: Final = 2_500

# Relative load at the full hours: night, work, lunch, and another peak in the evening.  Machines report day and night.
_BY_HOUR: Final = (18, 12, 9, 8, 9, 14, 28, 52, 80, 96, 100, 97, 84, 92, 97, 94, 88, 78, 66, 60, 58, 50, 38, 26)
_EVEN: Final = (1,) * 24

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


# A topic, a key, and the fields of the value.
_Content: TypeAlias = tuple[str, str, dict[str, object]]


def shares_of(events_count: int) -> dict[str, int]:
    """The event count of each service: exactly `events_count` in sum."""
    counts = {service.name: events_count * service.share // 100 for service in SERVICES}
    counts[SERVICES[0].name] += events_count - sum(counts.values())
    return counts


def yesterday_ms(now_ms: int) -> int:
    """The start of the last whole day (UTC): recent enough for a week's retention, and not in the future."""
    return (now_ms // DAY_MS - 1) * DAY_MS


def clock_name(timestamp_ms: int) -> str:
    """The time of day, as in 09:41."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%H:%M")


def events_of(service: str, count: int, seed: int, day_start_ms: int) -> Iterator[Event]:
    """The day of one service, exactly `count` events in the order of their arrival."""
    rng = random.Random(f"{seed}/{service}")
    load = _EVEN if service == "metrics" else _BY_HOUR
    draw = _DRAWN.get(service) or _visits()
    for arrival_ms in _arrivals(day_start_ms, count, load, rng):
        timestamp_ms = arrival_ms - _lateness_ms(arrival_ms - day_start_ms, rng)
        topic, key, facts = draw(rng)
        value = _encode({"at_ms": timestamp_ms, **facts}).encode()
        if rng.random() * MALFORMED_ONE_IN < 1:
            value = _spoil(value, rng)
        yield Event(arrival_ms, timestamp_ms, topic, key.encode(), value)


def _arrivals(day_start_ms: int, count: int, load: Sequence[int], rng: random.Random) -> Iterator[int]:
    """Exactly `count` moments of the day in ascending order, with the density `load` (24 weights, interpolated)."""
    weights = [
        load[hour] + (load[(hour + 1) % 24] - load[hour]) * minute / 60 for hour in range(24) for minute in range(60)
    ]
    total = sum(weights)
    done = 0
    for minute, sum_so_far in enumerate(accumulate(weights)):
        due = count if minute == len(weights) - 1 else int(count * sum_so_far / total)
        start_ms = day_start_ms + minute * MINUTE_MS
        yield from sorted(start_ms + int(rng.random() * MINUTE_MS) for _ in range(due - done))
        done = due


def _lateness_ms(since_day_start_ms: int, rng: random.Random) -> int:
    """Mostly 0; never so much that the event would belong to the day before."""
    if rng.random() * LATE_ONE_IN >= 1:
        return 0
    late_ms = rng.randrange(LATE_MS_MIN, LATE_MS_MAX)
    return late_ms if late_ms <= since_day_start_ms else 0


def _skewed(values: Sequence[T], exponent: float = 1.05) -> Callable[[random.Random], T]:
    """Draws by Zipf's law: the n-th value `n ** exponent` times less often than the first."""
    sums = list(accumulate(rank**-exponent for rank in range(1, len(values) + 1)))
    return lambda rng: rng.choices(values, cum_weights=sums)[0]


_member: Final = _skewed(range(1, MEMBERS_COUNT + 1), 0.7)
_page: Final = _skewed(_PAGES)
_element: Final = _skewed(_ELEMENTS)
_query: Final = _skewed(_QUERIES)


def _visits() -> Callable[[random.Random], _Content]:
    """Page views, and clicks on pages that were viewed just before."""
    recent: deque[tuple[int, str]] = deque(maxlen=64)

    def draw(rng: random.Random) -> _Content:
        if recent and rng.random() < 0.3:
            member, page = recent[int(rng.random() * len(recent))]
            return CLICKS, f"m{member}", {"member": member, "page": page, "on": _element(rng)}
        member, page = _member(rng), _page(rng)
        recent.append((member, page))
        return PAGE_VIEWS, f"m{member}", {"member": member, "page": page, "ms": int(rng.gammavariate(3, 40))}

    return draw


def _search(rng: random.Random) -> _Content:
    member = _member(rng)
    return SEARCHES, f"m{member}", {"member": member, "query": _query(rng), "found": int(rng.expovariate(1 / 200))}


def _metric(rng: random.Random) -> _Content:
    host = _HOSTS[int(rng.random() * len(_HOSTS))]
    metric, usual = _METRICS[int(rng.random() * len(_METRICS))]
    return SERVICE_METRICS, host, {"host": host, "metric": metric, "value": round(rng.gauss(usual, usual / 6), 2)}


_DRAWN: Final = {"metrics": _metric, "search": _search}


def _spoil(value: bytes, rng: random.Random) -> bytes:
    kind = int(rng.random() * 3)
    if kind == 0:
        return value[: rng.randrange(1, len(value))]
    return b"<html><h1>502 Bad Gateway</h1></html>" if kind == 1 else b"\xc3\x28" + value
