"""What this broker fetches from the leaders of partitions that it follows."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.observe.metrics import Family, counter, gauge


def replica_fetcher_figures(fetchers: ReplicaFetchers) -> Iterator[Family]:
    yield counter(
        "kafka_server_fetcherstats_requests_total",
        "Fetches sent to leaders, as their follower.",
        fetchers.totals.requests_count,
    )
    yield counter(
        "kafka_server_fetcherstats_failures_total",
        "Connections to leaders that were not made, were lost, or were closed for what came.",
        fetchers.totals.failures_count,
    )
    yield gauge(
        "kafka_server_replicafetchermanager_partitioncount",
        "Partitions that this broker fetches from their leaders.",
        fetchers.followed_count,
    )
    yield gauge(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        "Partitions that it does not fetch, since their logs take nothing any more.",
        fetchers.failed_count,
    )
