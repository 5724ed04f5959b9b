"""The fourth step: in a cluster this broker's replicas take part, and the topics of the tree are served."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.assembly.authorizer_parts import AuthorizerParts
from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import Listening
from ottla.broker.assembly.log_parts import OpenLogs
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.assembly.tree_updates import Registering, TreeUpdates
from ottla.broker.partitions.partition import Partition
from ottla.broker.topics.served_topics import ServedTopics, TopicsObserver
from ottla.broker.topics.topic_requests import TopicRequests
from ottla.broker.upkeep.flusher import FlushSignal
from ottla.coordination.elections import ElectionRules
from ottla.model import broker_settings as setting
from ottla.observe.events import fields
from ottla.runtime.process import open_files_about
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.open_files import LogsRoom, too_many_open_files
from ottla.storage.errors import lacks_descriptors
from ottla.storage.log.log import Log

if TYPE_CHECKING:
    from ottla.broker.replicas.cluster_part import ClusterPart

log = logging.getLogger(__name__)


class TopicParts(NamedTuple):
    """What serves the topics, and what changes them."""

    served: ServedTopics
    requests: TopicRequests
    updates: TreeUpdates


def start_cluster(
    start: BrokerStart,
    listening: Listening,
    tree: TreeParts,
    logs: OpenLogs,
    flushes: FlushSignal,
) -> ClusterPart | None:
    """None for a standalone broker."""
    if start.is_sole:
        return None
    # It imports much that a standalone broker does not need.
    from ottla.broker.assembly.peer_security import peer_security
    from ottla.broker.replicas.cluster_part import ClusterPart

    cluster = ClusterPart(
        tree.coordination,
        logs.directory,
        logs.partitions,
        start.settings,
        ElectionRules(logs.configs.min_in_sync, logs.configs.allows_unclean_election),
        flushes,
        tree.brokers.peer_address,
        start.clock,
        start.loop,
        peer_security(start, listening),
    )
    events = start.events
    events.roles_changed.subscribe(cluster.fetchers.follow)
    events.log_start_moved.subscribe(cluster.on_log_start_moved)
    events.log_damaged.subscribe(cluster.on_log_damaged)
    events.disk_changed.subscribe(cluster.on_logs_changed)
    events.directory_offline.subscribe(lambda _: cluster.on_logs_changed())
    start.closing.push_async_callback(cluster.stop)
    cluster.start()
    return cluster


async def serve_topics(
    start: BrokerStart,
    tree: TreeParts,
    logs: OpenLogs,
    registering: Registering,
    cluster: ClusterPart | None,
    authorizer: AuthorizerParts | None,
) -> TopicParts:
    """Serve the topics of the tree; their requests are accepted later.  Raises `TooManyOpenFiles`."""
    coordination, events = tree.coordination, start.events
    directory, partitions, configs = logs
    high_watermarks, lag_time_max_ms = directory.high_watermarks, start.settings[setting.REPLICA_LAG_TIME_MAX_MS]

    def new_partition(opened: Log) -> Partition:
        return Partition(
            opened,
            start.node_id,
            high_watermark=high_watermarks().get(opened.topic_partition, 0),
            lag_time_max_ms=lag_time_max_ms,
            in_sync_observer=None if cluster is None else cluster.in_sync_changes,
            on_log_failed=None if cluster is None else cluster.on_log_failed,
        )

    served = ServedTopics(
        coordination.lifecycle,
        coordination.topics,
        coordination.configs,
        directory,
        configs.log_config,
        partitions,
        start.loop,
        start.clock,
        new_partition,
        TopicsObserver(events.topic_changed, events.roles_changed, events.topics_followed, events.configs_changed),
    )
    events.session_lost.subscribe(served.follow_registrations)
    start.closing.push_async_callback(served.stop)
    await start.retries.until_done(served.start)
    updates = TreeUpdates(registering, tree, served, cluster, authorizer)
    updates.elect()
    await start.retries.until_done(updates.finalize_features)
    await start.retries.until_done(lambda: _sweep(tree))
    room = _logs_room(start, directory)
    if room is not None and not room.allows_start(len(directory.logs)):
        # Clients could not connect, nor modules be imported.
        raise too_many_open_files(start.disk, start.options.data_dir)
    requests = TopicRequests(
        start.node_id,
        lambda: tree.brokers.live,
        start.settings,
        coordination.topics,
        coordination.configs,
        directory,
        partitions,
        served,
        configs.min_in_sync,
        room,
    )
    return TopicParts(served, requests, updates)


async def _sweep(tree: TreeParts) -> None:
    """Ages are by the tree's clock: by this broker's, which may be off, a topic that is being created may look old."""
    coordination = tree.coordination
    registered_ms = await coordination.registrar.registered_ms()
    swept_count = 0 if registered_ms is None else await coordination.topics.sweep(registered_ms)
    if swept_count:
        log.info("topics.swept", extra=fields(topics_count=swept_count))


def _logs_room(start: BrokerStart, directory: LogDirectory) -> LogsRoom | None:
    """None where the number of open files is not limited."""
    if start.open_files_max is None:
        return None
    try:
        open_count = open_files_about()
    except OSError as error:
        if not lacks_descriptors(error):
            raise
        open_count = start.open_files_max
    return LogsRoom(start.open_files_max, open_count - len(directory.logs))
