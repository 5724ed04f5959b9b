"""The context of the handlers, once all that it offers is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.broker.assembly.authorizer_parts import AuthorizerParts
from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.log_parts import OpenLogs
from ottla.broker.assembly.topic_parts import TopicParts
from ottla.broker.assembly.transaction_parts import TransactionParts
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.context import AclAdmin, LogDirectoryState
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.live_brokers import LiveBrokers
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.record_deletions import RecordDeletions
from ottla.broker.topics.served_topics import ServedTopics
from ottla.broker.topics.topic_requests import TopicRequests
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.transactions.marker_writer import MarkerWriter
from ottla.broker.transactions.verifier import TransactionVerifier
from ottla.broker.tree.coordination import Coordination
from ottla.coordination.configs import ConfigsView
from ottla.coordination.features import FeaturesView
from ottla.coordination.producer_ids import ProducerIdBlocks
from ottla.coordination.topics_view import TopicsView
from ottla.model.identifiers import NodeId
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import Clock
from ottla.runtime.posix_disk import volume_size
from ottla.storage.directory.log_directory import LogDirectory

if TYPE_CHECKING:
    from ottla.broker.replicas.cluster_part import ClusterPart
    from ottla.broker.replicas.elector import Elector


@dataclass(frozen=True, slots=True)
class ServingContext:
    """`BrokerContext` of a running broker."""

    node_id: NodeId
    cluster_id: str
    is_sole: bool
    settings: BrokerSettings
    clock: Clock
    partitions: PartitionTable
    brokers: LiveBrokers
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    markers: MarkerWriter
    topic_admin: TopicRequests
    record_deletions: RecordDeletions
    producer_ids: ProducerIdBlocks
    acls: AclAdmin | None
    log_directory: DirectoryReport
    elections: Elector | None
    _served: ServedTopics
    _coordination: Coordination

    @property
    def topics(self) -> TopicsView:
        return self._served.view

    @property
    def features(self) -> FeaturesView:
        return self._coordination.features.view

    @property
    def configs(self) -> ConfigsView:
        return self._coordination.configs.view


def serving_context(
    start: BrokerStart,
    tree: TreeParts,
    logs: OpenLogs,
    topics: TopicParts,
    groups: GroupCoordinator,
    transactions: TransactionParts,
    cluster: ClusterPart | None,
    authorizer: AuthorizerParts | None,
) -> ServingContext:
    return ServingContext(
        start.node_id,
        tree.coordination.cluster_id,
        start.is_sole,
        start.settings,
        start.clock,
        logs.partitions,
        tree.brokers,
        groups,
        transactions.coordinator,
        transactions.verifier,
        transactions.writer,
        topics.requests,
        RecordDeletions(logs.partitions, logs.directory),
        tree.coordination.producer_ids,
        None if authorizer is None else authorizer.acls,
        DirectoryReport(logs.directory),
        None if cluster is None else cluster.elector,
        topics.served,
        tree.coordination,
    )


class DirectoryReport:
    """`LogDirectoryReport` of a directory on this machine."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory

    def state(self) -> LogDirectoryState:
        path = os.path.abspath(self._directory.path)
        size = volume_size(path)
        return LogDirectoryState(path, self._directory.offline is None, *size)
