"""The site's services, the client library of each, and the topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

CONFLUENT: Final = "confluent-kafka"
KAFKA_PYTHON: Final = "kafka-python"
OTTLA: Final = "ottla"

PAGE_VIEWS: Final = "page-views"
CLICKS: Final = "clicks"
SEARCHES: Final = "searches"
SERVICE_METRICS: Final = "service-metrics"

# Partitions of each topic.
TOPICS: Final[Mapping[str, int]] = {PAGE_VIEWS: 4, CLICKS: 4, SEARCHES: 2, SERVICE_METRICS: 2}


Codec: TypeAlias = Literal["lz4", "zstd", "snappy", "gzip"]


class Service(NamedTuple):
    """`share` is its percentage of all events."""

    name: str
    client: str
    codec: Codec
    share: int


SERVICES: Final = (
    Service("web-1", OTTLA, "lz4", 41),
    Service("web-2", CONFLUENT, "zstd", 41),
    Service("search", CONFLUENT, "snappy", 12),
    Service("metrics", KAFKA_PYTHON, "gzip", 6),
)
BY_NAME: Final = {service.name: service for service in SERVICES}


def shares_of(events_count: int) -> dict[str, int]:
    """The event count of each service: exactly `events_count` in sum."""
    counts = {service.name: events_count * service.share // 100 for service in SERVICES}
    counts[SERVICES[0].name] += events_count - sum(counts.values())
    return counts
