"""The broker among others: its registration, elections and changes of in-sync replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.tree.broker_lifecycle import NOT_REGISTERED, BrokerLifecycle
from ottla.observe.metrics import Family, counter, gauge

if TYPE_CHECKING:
    from ottla.broker.replicas.cluster_part import ClusterPart


def lifecycle_figures(lifecycle: BrokerLifecycle, cluster: ClusterPart | None, now_ms: int) -> Iterator[Family]:
    """`cluster` is None for a broker by itself.  `now_ms`: by the lease's clock."""
    yield gauge("kafka_brokers", "Brokers that this one knows to be live, itself included.", len(lifecycle.live))
    yield gauge(
        "ottla_broker_registered",
        "1 while this broker is registered and certain of it: it leads and acknowledges.",
        0 if lifecycle.broker_epoch == NOT_REGISTERED or lifecycle.is_uncertain(now_ms) else 1,
    )
    if cluster is None:
        return
    elections_count = cluster.elector.elections_count
    yield counter("ottla_elections_total", "Elections that this broker wrote to the tree.", elections_count)
    yield counter(
        "kafka_server_replicamanager_isrshrinks_total",
        "Replicas in sync that this broker, as leader, has taken out.",
        cluster.in_sync_changes.shrinks_count,
    )
    yield counter(
        "kafka_server_replicamanager_isrexpands_total",
        "Replicas that this broker, as leader, has taken into the in-sync set.",
        cluster.in_sync_changes.expansions_count,
    )
