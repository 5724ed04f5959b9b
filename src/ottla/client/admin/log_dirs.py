"""What each broker stores, and how far its replicas are behind (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class StoredReplica(NamedTuple):
    """`lag` counts the records below the leader's high watermark that the replica does not have, as far as it knows."""

    size_bytes: int
    lag: int


def describe_replicas(
    cluster: Cluster,
    node_id: int,
    timeout_ms: float | None = None,
    *,
    partitions: Iterable[TopicPartition] | None = None,
) -> Mapping[TopicPartition, StoredReplica]:
    """The replicas on one broker, all or those of these partitions.

    Raises `BrokerRefused` when its disk is offline, and `ClientError`.
    """
    topics = (
        None
        if partitions is None
        else [
            DescribableLogDirTopic(topic, [each.partition for each in group])
            for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
        ]
    )
    deadline = cluster.retrying.deadline(timeout_ms)
    response = cluster.connect_broker(node_id, deadline).call(
        ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse, deadline
    )
    found: dict[TopicPartition, StoredReplica] = {}
    for directory in response.results:
        if directory.error_code:
            raise BrokerRefused(error_code_of(directory.error_code), f"the log directory of broker {node_id}")
        for topic in directory.topics:
            for row in topic.partitions:
                if not row.is_future_key:
                    found[TopicPartition(topic.name, row.partition_index)] = StoredReplica(
                        row.partition_size, row.offset_lag
                    )
    return found
