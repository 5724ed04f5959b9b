"""The client's metadata: brokers, topics, leaders.  Pure: the cluster passes responses and the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ottla.client.wire.address import Address
from ottla.client.wire.errors import error_code_of
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_LEADER_EPOCH, TopicPartition
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """`leader_id` is -1 while there is no leader."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """`topic_id` is all zeros where the broker returns none (before Metadata v10)."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]
    error_code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker of the cluster, at the address of the listener that the client uses."""

    node_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The live brokers by their ids; `controller_id` is -1 where none is named."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)


class MetadataCache:
    """The newest metadata of each topic, with its age.  `on_new_leader` receives a partition whose leader was another
    one in the metadata before, and the id of that.
    """

    def __init__(
        self,
        age_max_ms: float,
        on_new_leader: Callable[[TopicPartition, PartitionInfo, int], None] = lambda partition, found, former_id: None,
    ) -> None:
        self.cluster = ClusterInfo()
        self._age_max_ms = age_max_ms
        self._on_new_leader = on_new_leader
        self._topics: dict[str, tuple[TopicInfo, float]] = {}

    def topic(self, name: str, now_ms: float) -> TopicInfo | None:
        """The topic, if it is cached, without error and not expired."""
        known = self._topics.get(name)
        if known is None or known[0].error_code or now_ms - known[1] >= self._age_max_ms:
            return None
        return known[0]

    def age_ms(self, name: str, now_ms: float) -> float:
        """Of the topic's metadata; infinite when it is stale, or there is none."""
        known = self._topics.get(name)
        return float("inf") if known is None else now_ms - known[1]

    def last_known_leader_id(self, partition: TopicPartition) -> int:
        """However old; -1 when none is known."""
        known = self._topics.get(partition.topic)
        found = None if known is None else known[0].partitions.get(partition.partition)
        return -1 if found is None else found.leader_id

    def forget(self, names: Iterable[str]) -> None:
        """A broker reported that the metadata of these is stale: it is fetched again before its next use.

        The former metadata stays, to compare epochs with."""
        for name in names:
            if name in self._topics:
                self._topics[name] = (self._topics[name][0], float("-inf"))

    def apply(self, response: MetadataResponse, now_ms: float, *, names_every_topic: bool = False) -> list[TopicInfo]:
        """Apply a response; returns its topics as they are cached now.

        A topic that is missing in a response with every topic may be deleted: its metadata is stale."""
        self.cluster = ClusterInfo(
            response.cluster_id,
            response.controller_id,
            {
                broker.node_id: BrokerInfo(broker.node_id, Address(broker.host, broker.port), broker.rack)
                for broker in response.brokers
            },
        )
        topics = [self._newest(_topic_info(topic)) for topic in response.topics if topic.name is not None]
        if names_every_topic:
            self.forget(self._topics.keys() - {topic.name for topic in topics})
        for topic in topics:
            if topic.name in self._topics:
                self._report_new_leaders(self._topics[topic.name][0], topic)
            self._topics[topic.name] = (topic, now_ms)
        return topics

    def _report_new_leaders(self, before: TopicInfo, topic: TopicInfo) -> None:
        for index, partition in topic.partitions.items():
            known = before.partitions.get(index)
            if known is not None and known.leader_id != partition.leader_id:
                self._on_new_leader(TopicPartition(topic.name, index), partition, known.leader_id)

    def _newest(self, topic: TopicInfo) -> TopicInfo:
        """A broker that lags behind may answer with a leader of an older epoch (KIP-320): the newer one is kept."""
        known = self._topics.get(topic.name)
        # Without ids a recreated topic cannot be distinguished from the old one.
        if known is None or known[0].topic_id != topic.topic_id or topic.topic_id == ZERO_UUID:
            return topic
        before = known[0].partitions
        merged = {
            index: before[index] if index in before and _is_older(partition, before[index]) else partition
            for index, partition in topic.partitions.items()
        }
        return TopicInfo(topic.name, topic.topic_id, topic.is_internal, merged, topic.error_code)


def _is_older(new: PartitionInfo, known: PartitionInfo) -> bool:
    return NO_LEADER_EPOCH < new.leader_epoch < known.leader_epoch


def _topic_info(topic: MetadataResponseTopic) -> TopicInfo:
    assert topic.name is not None
    partitions = {partition.partition_index: _partition_info(partition) for partition in topic.partitions}
    in_order = {index: partitions[index] for index in sorted(partitions)}
    return TopicInfo(topic.name, topic.topic_id, topic.is_internal, in_order, error_code_of(topic.error_code))


def _partition_info(partition: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        error_code_of(partition.error_code),
    )
