"""The admin listener, and what it shows: the metrics of all parts, and whether the broker is healthy."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import CertificateReloads, tls_of
from ottla.broker.assembly.log_parts import OpenLogs
from ottla.broker.assembly.request_parts import RequestParts
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.net.listener import Listener, bind
from ottla.broker.net.security_log import SecurityLog
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.upkeep.flusher import Flusher
from ottla.model import http_settings, security_settings
from ottla.model.broker_settings import TRANSACTION_MAX_TIMEOUT_MS
from ottla.model.limits import MINUTE_MS
from ottla.model.settings import BrokerSettings
from ottla.runtime.installed import TOKENS, require_modules

if TYPE_CHECKING:
    from ottla.broker.monitoring.server import AdminServer
    from ottla.broker.replicas.cluster_part import ClusterPart
    from ottla.broker.security.http_logins import TreeUsers
    from ottla.security.sasl_server import VerifiedToken
    from ottla.security.secret import Secret

# For the coordinator to notice the time-out, and to write the markers.
_LATE_TRANSACTION_MARGIN_MS: Final = 5 * MINUTE_MS


class AdminParts(NamedTuple):
    """`users`: those who log in with a password; None: there is no such login."""

    server: AdminServer
    users: TreeUsers | None


async def start_admin(start: BrokerStart, security_log: SecurityLog) -> AdminParts | None:
    """Before everything that may take long, so that supervisors see that the broker starts."""
    address = start.options.admin_listener
    if address is None:
        return None
    # Few brokers serve it, and all would pay for its import.
    from ottla.broker.monitoring.server import AdminServer
    from ottla.broker.security.http_logins import HttpLogins, TreeUsers, http_access
    from ottla.security.http_access import HttpHosts

    settings = start.settings.of_listener(address.name)
    advertised = [each.host for each in (*start.options.listeners, *start.options.advertised)]
    names = [address.host, socket.gethostname(), *advertised, *settings[http_settings.ADMIN_ALLOWED_HOSTS]]
    access = http_access(settings, HttpHosts(names, http_settings.ADMIN_ALLOWED_HOSTS.name))
    methods = settings[http_settings.AUTHENTICATION_METHOD]
    users = TreeUsers() if http_settings.BASIC in methods else None
    logins = HttpLogins(
        address.name,
        access,
        security_log,
        start.clock,
        users=users,
        verify_token=_verify_token(start, settings) if http_settings.BEARER in methods else None,
        failure_delay_s=settings[security_settings.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000,
    )
    start.closing.callback(logins.close)
    server = AdminServer(bind(address.host, address.port), logins, tls_of(start, address))
    start.closing.push_async_callback(server.stop)
    await server.start()
    return AdminParts(server, users)


def _verify_token(start: BrokerStart, settings: BrokerSettings) -> Callable[[Secret], VerifiedToken]:
    """The keys are read beside the start, which does not wait for them."""
    require_modules("authentication.method=BEARER", TOKENS, "security")
    from ottla.broker.security.token_issuer import open_issuer

    issuer = open_issuer(settings, start.clock.now_ms)
    start.closing.push_async_callback(issuer.keys.stop)
    issuer.keys.start()
    return issuer.tokens.verify


def show_metrics(
    start: BrokerStart,
    admin: AdminServer,
    tree: TreeParts,
    logs: OpenLogs,
    cluster: ClusterPart | None,
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    flusher: Flusher,
    requests: RequestParts,
    listeners: Sequence[Listener],
    certificates: CertificateReloads,
    quotas: Quotas,
) -> None:
    # Few brokers have the admin listener, and all would pay for this import.
    from ottla.broker.monitoring.metrics import (
        certificate_metrics,
        group_metrics,
        late_transaction_metrics,
        lifecycle_metrics,
        partition_metrics,
        process_families,
        quota_metrics,
        replica_fetcher_metrics,
        request_metrics,
        transaction_metrics,
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
    registry.add(lambda: transaction_metrics(transactions))
    late_after_ms = start.settings[TRANSACTION_MAX_TIMEOUT_MS] + _LATE_TRANSACTION_MARGIN_MS
    registry.add(lambda: late_transaction_metrics(partitions, clock.now_ms() - late_after_ms))
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
