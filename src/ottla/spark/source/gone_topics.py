"""Whether a topic is gone: one broker's word is none, since it may lag behind or be cut off from the others."""

from __future__ import annotations

from uuid import UUID

from ottla.client.cluster import Cluster
from ottla.client.deadline import Deadline
from ottla.client.errors import CallTimedOut, ClientError
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


def is_gone(cluster: Cluster, place: TopicPartition, topic_id: UUID, deadline: Deadline) -> bool:
    """Whether every broker of the cluster says that there is no such partition of the topic with this id (all zeros:
    of this name).

    Raises `CallTimedOut` while a broker does not answer: it could know better.
    """
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
            if _has(topic, place, topic_id):
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
