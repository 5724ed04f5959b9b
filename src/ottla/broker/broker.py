"""One broker: the order in which its parts start and stop.  No request passes here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.broker.assembly.admin_parts import show_metrics, start_admin
from ottla.broker.assembly.authorizer_parts import start_authorizer
from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import CertificateReloads, Listening, bind_listeners
from ottla.broker.assembly.log_parts import open_logs
from ottla.broker.assembly.quota_parts import start_quotas
from ottla.broker.assembly.request_parts import (
    accept_connections,
    serve_requests,
    shard_sources,
    start_flusher,
    start_groups,
)
from ottla.broker.assembly.serving_context import ServingContext, serving_context
from ottla.broker.assembly.topic_parts import serve_topics, start_cluster
from ottla.broker.assembly.transaction_parts import start_transactions
from ottla.broker.assembly.tree_parts import TreeParts, open_tree
from ottla.broker.assembly.tree_updates import Registering
from ottla.broker.assembly.upkeep_parts import start_audit, start_compaction, start_housekeeping
from ottla.broker.events import BrokerEvents
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.net.security_log import open_security_log
from ottla.broker.net.socket_loop import SocketLoop
from ottla.broker.topics.served_topics import ServedTopics
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.tree.broker_lifecycle import LeaseWatch
from ottla.broker.tree.tree_backend import TreeBackend, shares_tree, with_node_id
from ottla.broker.tree.tree_follower import TreeFollower
from ottla.broker.upkeep.flusher import FlushSignal
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.coordination.tree_retries import TreeRetries
from ottla.model import broker_settings as setting
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId
from ottla.model.serve_options import ServeOptions
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory

if TYPE_CHECKING:
    from ottla.broker.assembly.admin_parts import AdminParts
    from ottla.broker.assembly.logins import Logins
    from ottla.broker.replicas.cluster_part import ClusterPart

log = logging.getLogger(__name__)

# Without ZooKeeper a broker stops all the same.
LEAVE_WITHIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker, started by `start`.  `context` is what the handlers use of it."""

    context: ServingContext
    addresses: list[tuple[str, int]]
    cluster: ClusterPart | None
    certificates: CertificateReloads
    _directory: LogDirectory
    _housekeeping: Housekeeping
    _groups: GroupCoordinator
    _transactions: TransactionCoordinator
    _lease_watch: LeaseWatch | None
    _closing: AsyncExitStack

    @property
    def node_id(self) -> NodeId:
        return self.context.node_id

    @property
    def cluster_id(self) -> str:
        return self.context.cluster_id

    @classmethod
    async def start(
        cls,
        options: ServeOptions,
        *,
        clock: Clock,
        open_files_max: int | None,
        backend: TreeBackend | None = None,
        disk: PosixDisk | None = None,
        sockets: SocketLoop | None = None,
    ) -> Broker:
        """Open the data directory, recover, and listen.  Raises `OttlaError`; then nothing is left open.

        `backend`: of a tree that other brokers share; the caller closes it.  Without one it follows from the options.
        `disk` and `sockets` have something between the broker and the machine, for tests; None: nothing.
        """
        disk = disk or PosixDisk()
        # Several brokers share any other tree.
        is_sole = backend is None and not shares_tree(options.settings)
        settings = options.settings if is_sole else with_node_id(options.settings, disk, options.data_dir)
        start = BrokerStart(
            options,
            settings,
            NodeId(settings[setting.NODE_ID]),
            is_sole,
            backend,
            clock,
            asyncio.get_running_loop(),
            disk,
            sockets,
            open_files_max,
            TreeRetries(clock, settings[setting.ZOOKEEPER_CONNECTION_TIMEOUT_MS], asyncio.sleep),
            BrokerEvents(),
            AsyncExitStack(),
        )
        try:
            return await cls._start(start)
        except BaseException:
            await start.closing.aclose()
            raise

    @classmethod
    async def _start(cls, start: BrokerStart) -> Broker:
        """Each step depends on those before it; a stop undoes them in the opposite order."""
        listening = bind_listeners(start)
        security_log = open_security_log(start.settings, start.clock, start.closing)
        admin = await start_admin(start, security_log)
        follower = TreeFollower(start.loop)
        flushes = FlushSignal(start.loop)

        tree = await open_tree(start, listening, follower.on_stale)
        logs = open_logs(start, tree)
        registering = Registering(start, tree, logs.directory)
        await registering.first(listening)
        cluster = start_cluster(start, listening, tree, logs, flushes)
        authorizer = await start_authorizer(start, tree, security_log)
        topics = await serve_topics(start, tree, logs, registering, cluster, authorizer)

        quotas = start_quotas(start, tree)
        flushing = start_flusher(start, tree, logs, topics.served, flushes)
        sources = shard_sources(start, tree, logs, flushing)
        groups = start_groups(start, tree, topics.served, sources)
        transactions = start_transactions(start, listening, tree, logs, topics.served, sources, groups)
        context = serving_context(start, tree, logs, topics, groups, transactions, cluster, authorizer)
        requests = serve_requests(
            start,
            tree,
            context,
            cluster,
            transactions,
            flushing,
            authorizer,
            security_log,
            is_metered=admin is not None,
        )
        housekeeping = start_housekeeping(start, logs)
        start_compaction(start, logs)
        logins = await _open_logins(start, listening, tree, admin)
        listeners = accept_connections(
            start, listening, requests, housekeeping, groups, transactions, logs, logins, authorizer, quotas
        )
        certificates = CertificateReloads(start, [*listening.tls, None if admin is None else admin.server.tls])
        if admin is not None:
            server, flusher = admin.server, flushing.flusher
            show_metrics(
                start,
                server,
                tree,
                logs,
                cluster,
                groups,
                transactions.coordinator,
                flusher,
                requests,
                listeners,
                certificates,
                quotas.quotas,
            )

        if cluster is not None:
            cluster.follow_leaders()
            start.closing.push_async_callback(cluster.fetchers.stop)
        if flushing.lease_watch is not None:
            start.closing.callback(flushing.lease_watch.stop)
            flushing.lease_watch.start()
        start.closing.push_async_callback(follower.stop)
        follower.start(topics.updates.apply)
        if cluster is not None and start.settings[setting.CONTROLLED_SHUTDOWN_ENABLE]:
            start.closing.push_async_callback(_leave, cluster, topics.served)
        start_audit(start, listening)
        if admin is not None:
            admin.server.health.serving()
            start.closing.callback(admin.server.health.stopping)
        return cls(
            context,
            list(listening.addresses),
            cluster,
            certificates,
            logs.directory,
            housekeeping,
            groups,
            transactions.coordinator,
            flushing.lease_watch,
            start.closing,
        )

    async def on_clock_moved(self) -> None:
        """Do at once what is due by now: a test has moved the clock.  Retention runs regardless of its interval."""
        await self._housekeeping.run_all()
        self._groups.on_clock_moved()
        self._transactions.on_clock_moved()
        if self._lease_watch is not None:
            self._lease_watch.check()

    def on_room_changed(self) -> None:
        """Look at the disk's room at once: a test has filled it, or made room."""
        self._directory.look_at_space()

    async def stop(self) -> None:
        """Stop accepting, answer requests in progress, flush, and write the clean shutdown mark."""
        await self._closing.aclose()


async def _open_logins(
    start: BrokerStart, listening: Listening, tree: TreeParts, admin: AdminParts | None
) -> Sequence[Logins | None]:
    """Those of each listener; None: it has no SASL."""
    plans, users = listening.login_plans, None if admin is None else admin.users
    if users is None and not any(plans):
        return [None] * len(plans)
    from ottla.broker.assembly.logins import open_logins

    return await open_logins(start, plans, tree.coordination, users)


async def _leave(cluster: ClusterPart, served: ServedTopics) -> None:
    """Hand over, as the first step of a stop, while requests are still answered."""
    try:
        async with asyncio.timeout(LEAVE_WITHIN_S):
            await cluster.hand_over()
            # From here on clients of what was handed over get the error that sends them to the next leader.
            await served.follow()
    except (TimeoutError, OttlaError) as error:
        log.warning("broker.left_late", extra=fields(error=str(error) or "time-out"))
