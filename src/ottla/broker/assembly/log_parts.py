"""The third step: the logs are opened and recovered."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.topic_configs import TopicConfigs
from ottla.broker.upkeep.housekeeping import SpaceWatch
from ottla.model import broker_settings as setting
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.observe.events import fields
from ottla.storage.directory.directory_lock import NoLock
from ottla.storage.directory.log_directory import LogDirectory, LogDirectoryObserver
from ottla.storage.errors import DirectoryOffline
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

# Clients write any id that they like.  What is left above this is never used up.
PRODUCER_ID_BELIEVED_BELOW: Final = 2**62


class OpenLogs(NamedTuple):
    """The logs, and the table of the partitions that are served from them: it is filled later."""

    directory: LogDirectory
    partitions: PartitionTable
    configs: TopicConfigs


def open_logs(start: BrokerStart, tree: TreeParts) -> OpenLogs:
    events, topics = start.events, tree.coordination.topics
    configs = TopicConfigs(tree.coordination.configs, start.settings)
    partitions = PartitionTable()

    def is_only_replica(topic_partition: TopicPartition) -> bool:
        """As of the view that the broker started with.  While it is down no other replica can come to be in sync."""
        node = topics.view.partition(topic_partition)
        return node is not None and node.replicas == (start.node_id,)

    directory = LogDirectory.open(
        start.disk,
        start.options.data_dir,
        clock=start.clock,
        config_of=configs.log_config,
        node_id=start.node_id,
        cluster_id=tree.coordination.cluster_id,
        # The data directory is locked already.
        lock=NoLock(),
        retention_check_interval_ms=start.settings[setting.LOG_RETENTION_CHECK_INTERVAL_MS],
        is_only_replica=is_only_replica,
        space=tree.space,
        observer=LogDirectoryObserver(events.directory_offline, events.log_damaged, events.log_start_moved),
    )
    start.closing.callback(directory.close)
    _act_on_events(start, partitions)
    watch = SpaceWatch(directory, start.loop, events.disk_changed)
    start.closing.callback(watch.stop)
    watch.start()
    tree.coordination.producer_ids.begin_at(_greatest_producer_id(directory.logs.values()) + 1)
    return OpenLogs(directory, partitions, configs)


def _act_on_events(start: BrokerStart, partitions: PartitionTable) -> None:
    def fail_waiting(failure: DirectoryOffline) -> None:
        log.critical("broker.log_directory_offline", extra=fields(error=str(failure)))
        for partition in partitions:
            partition.waiting.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    def wake_fetches(moved: Log) -> None:
        partition = partitions.find(*moved.topic_partition)
        if partition is not None:
            partition.waiting.wake_fetches()

    start.events.directory_offline.subscribe(fail_waiting)
    start.events.log_start_moved.subscribe(wake_fetches)


def _greatest_producer_id(logs: Iterable[Log]) -> int:
    """Of those in the logs: a tree restored from a copy may not know that it gave them.  -1: there are none."""
    found = (producer_id for log in logs for producer_id, _ in log.producers.entries())
    return max((producer_id for producer_id in found if producer_id < PRODUCER_ID_BELIEVED_BELOW), default=-1)
