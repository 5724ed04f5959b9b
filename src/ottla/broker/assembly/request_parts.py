"""The fifth step: requests are served, from the flushes that acknowledge records to the open listeners."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.admin_changes import ChangeReports
from ottla.broker.assembly.authorizer_parts import AuthorizerParts
from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import Listening
from ottla.broker.assembly.log_parts import OpenLogs
from ottla.broker.assembly.quota_parts import QuotaParts
from ottla.broker.assembly.transaction_parts import TransactionParts
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.async_requests import AsyncRequests
from ottla.broker.callback_requests import CallbackRequests
from ottla.broker.context import BrokerContext
from ottla.broker.fetching.fetch_session_cache import FetchSessionCache
from ottla.broker.fetching.parked_fetches import FetchDeadlines
from ottla.broker.fetching.rack_aware_selector import RackAwareSelector
from ottla.broker.groups.coordinator import GroupCoordinator, consumer_times, group_settings
from ottla.broker.handlers import CALLBACK_HANDLERS
from ottla.broker.handlers.fetch import FetchHandler
from ottla.broker.handlers.produce import ProduceHandler
from ottla.broker.net.limits import DRAIN_MS
from ottla.broker.net.listener import ConnectionLimits, Listener, ListenerSecurity, listen
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.request_meter import RequestMeter, SlowRequests
from ottla.broker.net.request_tasks import RequestTasks
from ottla.broker.net.response_budget import ResponseBudget
from ottla.broker.net.security_log import SecurityLog
from ottla.broker.producing.opening_threads import BatchOpener
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.broker.router import Router
from ottla.broker.shards.shard_table import ShardSources
from ottla.broker.topics.served_topics import ServedTopics
from ottla.broker.tree.broker_lifecycle import LeaseWatch
from ottla.broker.upkeep.flusher import Flusher, FlushSignal
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.model import broker_settings as setting
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.model.limits import INT32_MAX

if TYPE_CHECKING:
    from ottla.broker.assembly.logins import Logins
    from ottla.broker.replicas.cluster_part import ClusterPart
    from ottla.broker.security.tls_server import TlsServer


class Flushing(NamedTuple):
    """The flushes, and the connections that they make ready.  No lease: of a standalone broker, which leads alone."""

    flusher: Flusher
    ready: ReadyConnections
    lease_watch: LeaseWatch | None


def start_flusher(
    start: BrokerStart, tree: TreeParts, logs: OpenLogs, served: ServedTopics, flushes: FlushSignal
) -> Flushing:
    ready = ReadyConnections(start.loop)

    def on_flushed(error: OSError | None) -> None:
        ready.send_all()
        flushes.on_flushed(error)

    lifecycle, lease_watch = tree.lifecycle, None
    if lifecycle.lease is not None:
        lease_watch = LeaseWatch(lifecycle, lifecycle.lease, start.clock, start.loop, served.follow_registrations)
    flusher = Flusher(
        logs.directory.scheduler,
        start.disk,
        start.clock,
        start.loop,
        on_flushed,
        # What waits for a flush that ended after the lease must not be acknowledged.
        before_announced=None if lease_watch is None else lease_watch.check,
        on_stuck_changed=start.events.disk_changed,
    )
    flusher.start()
    start.closing.push_async_callback(flusher.stop)
    return Flushing(flusher, ready, lease_watch)


def shard_sources(start: BrokerStart, tree: TreeParts, logs: OpenLogs, flushing: Flushing) -> ShardSources:
    return ShardSources(
        logs.partitions,
        start.clock,
        start.loop,
        lambda: flushing.flusher.is_busy,
        lifecycle=tree.lifecycle,
        lease_watch=flushing.lease_watch,
    )


def start_groups(start: BrokerStart, tree: TreeParts, served: ServedTopics, sources: ShardSources) -> GroupCoordinator:
    """The contents of `__consumer_offsets` are loaded while requests are served."""
    settings, configs, events = start.settings, tree.coordination.configs, start.events
    groups = GroupCoordinator(
        group_settings(settings),
        lambda group_id: consumer_times(configs.view, group_id, settings),
        settings[setting.OFFSETS_LOAD_BUFFER_SIZE],
        sources,
    )
    start.closing.callback(groups.stop)
    # The broker is ready before they are; until then their clients get an error that they retry.
    start.loop.call_soon(lambda: groups.on_topics_changed(served.view))
    events.topics_followed.subscribe(groups.on_topics_changed)
    events.topic_changed.subscribe(lambda name, topic: groups.follow(topic) if name == OFFSETS_TOPIC else None)
    events.directory_offline.subscribe(lambda _: groups.on_directory_offline())
    return groups


class RequestParts(NamedTuple):
    """What serves the requests of all connections."""

    fetch: FetchHandler
    router: Router
    # None: no admin listener reads the metrics.
    meter: RequestMeter | None
    deadlines: FetchDeadlines
    slow: SlowRequests
    response_budget: ResponseBudget


def serve_requests(
    start: BrokerStart,
    tree: TreeParts,
    context: BrokerContext,
    cluster: ClusterPart | None,
    transactions: TransactionParts,
    flushing: Flushing,
    authorizer: AuthorizerParts | None,
    security_log: SecurityLog,
    *,
    is_metered: bool,
) -> RequestParts:
    settings, brokers, ready = start.settings, tree.brokers, flushing.ready
    deadlines = FetchDeadlines(start.loop)
    start.closing.callback(deadlines.cancel)
    leader_hints = LeaderHints(
        start.node_id, lambda: context.topics, lambda: brokers.live, brokers.addresses_for, tree.lifecycle
    )
    slow = SlowRequests(settings[setting.REQUEST_SLOW_MS])
    opener = BatchOpener(start.clock)
    start.closing.callback(opener.close)
    produce = ProduceHandler(
        context.partitions,
        ready,
        start.clock,
        leader_hints,
        tree.lifecycle.lease,
        slow,
        opener,
        transactions.verifier,
    )
    selector = None
    if settings[setting.REPLICA_SELECTOR_CLASS] == setting.RACK_AWARE_SELECTOR:
        selector = RackAwareSelector(start.node_id, lambda: brokers.live, brokers.addresses_for)
    sessions = FetchSessionCache(
        settings[setting.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
        lambda: secrets.randbelow(INT32_MAX),
        tells_watermarks=selector is not None,
        release=RequestTasks().run,
    )
    fetch = FetchHandler(
        context.partitions,
        ready,
        deadlines,
        settings[setting.FETCH_MAX_BYTES],
        sessions,
        start.clock,
        leader_hints,
        tree.lifecycle,
        None if cluster is None else cluster.gone_followers.on_connection_closed,
        selector,
        flushing.lease_watch,
        start.options.replica_listeners,
    )
    response_budget = ResponseBudget()
    guarded = None if authorizer is None else authorizer.calls
    changes = ChangeReports(security_log)
    callback_requests = CallbackRequests(context, ready, slow, response_budget, guarded, changes)
    async_requests = AsyncRequests(context, slow, response_budget, guarded, changes)
    meter = RequestMeter() if is_metered else None
    router = Router(produce, fetch, callback_requests, CALLBACK_HANDLERS, async_requests.answer, ready, meter)
    start.closing.push_async_callback(router.stop)
    return RequestParts(fetch, router, meter, deadlines, slow, response_budget)


def accept_connections(
    start: BrokerStart,
    listening: Listening,
    requests: RequestParts,
    housekeeping: Housekeeping,
    groups: GroupCoordinator,
    transactions: TransactionParts,
    logs: OpenLogs,
    logins: Sequence[Logins | None],
    authorizer: AuthorizerParts | None,
    quotas: QuotaParts,
) -> Sequence[Listener]:
    """Requests are served from now on; at the stop those in progress are answered before the parts below stop."""
    limits = _connection_limits(start)
    plans = list(zip(start.options.listeners, listening.tls, logins, strict=True))
    by_name = {named.name: (named, tls, login) for named, tls, login in plans}
    own = zip(listening.sockets, plans, strict=True)
    shared = zip(listening.shared, [by_name[each.name] for each in start.options.shared], strict=True)
    listeners = [
        Listener(
            each,
            start.loop,
            requests.router,
            limits,
            housekeeping.expire_waits,
            start.sockets,
            requests.slow,
            requests.response_budget,
            _security(named.name, tls, login, requests.router),
            access_of=None if authorizer is None else authorizer.access_of,
            quotas_of=quotas.of_listener(named.name, start.options.inter_broker_name),
            addresses=quotas.addresses,
        )
        for each, (named, tls, login) in (*own, *shared)
    ]
    for each in listening.shared:
        listen(each)
    for listener in listeners:
        quotas.limits_changed.subscribe(listener.follow_quotas)
        listener.start()

    async def drain() -> None:
        """Accept no further request; answer those in progress without waiting for more records or a due flush."""
        for listener in listeners:
            listener.stop_accepting()
            listener.begin_drain()
        requests.deadlines.expire_all()
        # Before the last flush: parked members are answered, and commits that were logged are answered after it.
        groups.stop()
        transactions.coordinator.stop()
        for partition in logs.partitions:
            if partition.waiting.has_produces:
                logs.directory.scheduler.mark_due(logs.directory.logs[partition.topic_partition])
        await asyncio.gather(*(listener.drain(DRAIN_MS) for listener in listeners))

    start.closing.push_async_callback(drain)
    return listeners


def _security(name: str, tls: TlsServer | None, logins: Logins | None, router: Router) -> ListenerSecurity:
    if logins is None:
        return ListenerSecurity(name, tls)
    return ListenerSecurity(name, tls, partial(logins.start, router), logins.request_bytes_max)


def _connection_limits(start: BrokerStart) -> ConnectionLimits:
    settings = start.settings
    # Half of the descriptors are for segments: a flood of connections must not keep a log from rolling.
    connections_max = settings[setting.MAX_CONNECTIONS]
    if start.open_files_max is not None:
        connections_max = min(connections_max, max(start.open_files_max // 2, 16))
    return ConnectionLimits(
        connections_max,
        settings[setting.SOCKET_REQUEST_MAX_BYTES],
        settings[setting.CONNECTIONS_MAX_IDLE_MS],
        settings[setting.SOCKET_SEND_BUFFER_BYTES],
        settings[setting.SOCKET_RECEIVE_BUFFER_BYTES],
        settings[setting.QUEUED_MAX_REQUEST_BYTES],
        settings[setting.SOCKET_RECEIVE_MIN_BYTES_PER_SECOND],
    )
