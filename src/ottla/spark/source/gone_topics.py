"""Whether a topic is gone, or its log shorter: one broker's word is none, it may lag or be cut off from the others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from ottla.client.fetching.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import CallTimedOut, ClientError
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_NAMED_VERSION_MIN = 1
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def is_gone(cluster: Cluster, places: Collection[TopicPartition], topic_id: UUID, deadline: Deadline) -> bool:
    """Whether every broker of the cluster says that there is none of these partitions of one topic, which has this id
    (all zeros: of this name).

    Raises `CallTimedOut` while a broker does not answer: it could know better.
    """
    return _ask_every_broker(
        cluster, next(iter(places)), deadline, lambda topic: any(_has(topic, place, topic_id) for place in places)
    )


def is_latest_leader(cluster: Cluster, place: TopicPartition, leader_epoch: int, deadline: Deadline) -> bool:
    """Whether no broker of the cluster knows of a later leader of the partition than that of this epoch.

    A partitioned leader keeps answering, from a stale log.
    Raises `CallTimedOut` while a broker does not answer: it could know better.
    """

    def knows_later(topic: MetadataResponseTopic) -> bool:
        rows = [] if topic.error_code else topic.partitions
        return any(row.partition_index == place.partition and row.leader_epoch > leader_epoch for row in rows)

    return _ask_every_broker(cluster, place, deadline, knows_later)


def leaders_log(cluster: Cluster, place: TopicPartition, timeout_ms: float | None = None) -> tuple[range, int]:
    """The offsets that the partition has, as its leader says, and that leader's epoch."""
    leader = cluster.leader(place)
    start = list_offsets(cluster, {place: EARLIEST}, timeout_ms=timeout_ms)[place].offset
    end = list_offsets(cluster, {place: LATEST}, timeout_ms=timeout_ms)[place]
    # Older brokers leave the epoch out: it is the one that led to this leader.
    return range(start, end.offset), end.leader_epoch if end.leader_epoch >= 0 else leader.leader_epoch


def _ask_every_broker(
    cluster: Cluster, place: TopicPartition, deadline: Deadline, contradicts: Callable[[MetadataResponseTopic], bool]
) -> bool:
    """Whether all have answered what they know of the place's topic, and none contradicts."""
    backoff = cluster.retrying.backoff()
    while True:
        failure: ClientError | None = None
        try:
            cluster.refresh([place.topic], deadline=deadline)
            brokers = list(cluster.info.brokers)
        except ClientError as error:
            brokers, failure = [], error
        for node_id in brokers:
            try:
                topic = _topic_of(cluster, node_id, place.topic, deadline)
            except ClientError as error:
                failure = error
                continue
            if contradicts(topic):
                return False
            if topic.error_code and topic.error_code not in _MISSING:
                failure = CallTimedOut(f"broker {node_id} does not know")
        if brokers and failure is None:
            return True
        reason = failure or CallTimedOut("the cluster has no brokers now")
        cluster.retrying.pause_or_give_up(f"asking every broker for {place}", backoff, deadline, reason)


def _topic_of(cluster: Cluster, node_id: int, topic: str, deadline: Deadline) -> MetadataResponseTopic:
    connection = cluster.connect_broker(node_id, deadline)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    answer = connection.call(ApiKey.METADATA, request, MetadataResponse, deadline, at_least=_NAMED_VERSION_MIN)
    if len(answer.topics) != 1:
        raise CallTimedOut(f"broker {node_id} left {topic} out of its answer")
    return answer.topics[0]


def _has(topic: MetadataResponseTopic, place: TopicPartition, topic_id: UUID) -> bool:
    is_same = topic_id in (ZERO_UUID, topic.topic_id) or topic.topic_id == ZERO_UUID
    return not topic.error_code and is_same and place.partition in {row.partition_index for row in topic.partitions}
