"""The admin listener, and what it shows: the metrics of all parts, and whether the broker is healthy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import CertificateReloads
from ottla.broker.assembly.log_parts import OpenLogs
from ottla.broker.assembly.request_parts import RequestParts
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.net.listener import Listener, bind
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.upkeep.flusher import Flusher

if TYPE_CHECKING:
    from ottla.broker.admin.server import AdminServer
    from ottla.broker.replicas.cluster_part import ClusterPart


async def start_admin(start: BrokerStart) -> AdminServer | None:
    """Before everything that may take long, so that supervisors see that the broker starts."""
    address = start.options.admin_listener
    if address is None:
        return None
    # Few brokers serve it, and all would pay for its import.
    from ottla.broker.admin.server import AdminServer

    admin = AdminServer(bind(address.host, address.port))
    start.closing.push_async_callback(admin.stop)
    await admin.start()
    return admin


def show_metrics(
    start: BrokerStart,
    admin: AdminServer,
    tree: TreeParts,
    logs: OpenLogs,
    cluster: ClusterPart | None,
    groups: GroupCoordinator,
    flusher: Flusher,
    requests: RequestParts,
    listeners: Sequence[Listener],
    certificates: CertificateReloads,
    quotas: Quotas,
) -> None:
    # Few brokers have the admin listener, and all would pay for this import.
    from ottla.broker.admin.metrics import (
        certificate_metrics,
        group_metrics,
        lifecycle_metrics,
        partition_metrics,
        process_families,
        quota_metrics,
        replica_fetcher_metrics,
        request_metrics,
    )

    directory, partitions, clock = logs.directory, logs.partitions, start.clock
    started_ms, cluster_id = clock.now_ms(), tree.coordination.cluster_id
    registry = admin.registry
    registry.add(lambda: process_families(started_ms, start.node_id, cluster_id))
    if requests.meter is not None:
        meter = requests.meter
        registry.add(lambda: request_metrics(requests.router, meter, requests.fetch, partitions, listeners, flusher))
    registry.add(lambda: partition_metrics(partitions, directory, clock.monotonic_ms()))
    registry.add(lambda: group_metrics(groups, partitions))
    registry.add(lambda: lifecycle_metrics(tree.lifecycle, cluster, clock.boottime_ms()))
    registry.add(lambda: quota_metrics(quotas))
    if certificates.are_needed:
        registry.add(lambda: certificate_metrics(certificates.days_left()))
    if cluster is not None:
        registry.add(lambda: replica_fetcher_metrics(cluster.fetchers))
    offline = "the log directory is read-only: look at the disk, then start again"
    admin.health.add_life_check(lambda: offline if directory.offline is not None else None)
    admin.health.add_service_check(lambda: _session_problem(start, tree))


def _session_problem(start: BrokerStart, tree: TreeParts) -> str | None:
    """Why this broker can lead nothing now."""
    if tree.lifecycle.is_uncertain(start.clock.boottime_ms()):
        return "ZooKeeper has not answered for so long that nothing is acknowledged"
    if not tree.lifecycle.is_registered:
        return "not registered yet in a new session with ZooKeeper"
    return None
