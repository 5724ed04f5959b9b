"""The broker among others: its registration, elections and changes of in-sync replicas."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.elector import Elector
from ottla.broker.in_sync_changes import InSyncChanges
from ottla.broker.membership import NOT_REGISTERED, Membership
from ottla.observe.metrics import Family, counter, gauge


def membership_figures(
    membership: Membership, elector: Elector | None, changes: InSyncChanges | None, now_ms: int
) -> Iterator[Family]:
    """`elector` and `changes` are None for a broker that shares its tree with nobody.  `now_ms`: monotonic."""
    yield gauge("kafka_brokers", "Brokers that this one knows to be live, itself included.", len(membership.live))
    yield gauge(
        "ottla_broker_registered",
        "1 while this broker is registered and certain of it: it leads and acknowledges.",
        0 if membership.broker_epoch == NOT_REGISTERED or membership.is_uncertain(now_ms) else 1,
    )
    if elector is not None:
        yield counter("ottla_elections_total", "Elections that this broker wrote to the tree.", elector.elections_count)
    if changes is not None:
        yield counter(
            "kafka_server_replicamanager_isrshrinks_total",
            "Replicas in sync that this broker, as leader, has taken out.",
            changes.shrinks_count,
        )
        yield counter(
            "kafka_server_replicamanager_isrexpands_total",
            "Replicas that this broker, as leader, has taken into the in-sync set.",
            changes.expansions_count,
        )
