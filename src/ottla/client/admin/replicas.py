"""Replicas: what each broker stores of them and how far they lag (KIP-113), and their moves to others (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.schemas.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
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


class OngoingMove(NamedTuple):
    """`replicas` are those of before and after; `adding` and `removing` are among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


Targets = Mapping[TopicPartition, Sequence[int] | None]
"""The replicas to move to, the preferred leader first; None ends a move."""


def alter_request(targets: Targets, timeout_ms: int) -> AlterPartitionReassignmentsRequest:
    topics: list[ReassignableTopic] = []
    for topic, partitions in groupby(sorted(targets), key=lambda each: each.topic):
        wanted = [(each.partition, targets[each]) for each in partitions]
        rows = [ReassignablePartition(index, None if nodes is None else list(nodes)) for index, nodes in wanted]
        topics.append(ReassignableTopic(topic, rows))
    return AlterPartitionReassignmentsRequest(timeout_ms, topics=topics)


def refusals(response: AlterPartitionReassignmentsResponse) -> dict[TopicPartition, BrokerRefused | None]:
    """What became of each partition's move; None when it has started.  Raises `BrokerRefused` for the whole request."""
    if response.error_code:
        raise BrokerRefused(error_code_of(response.error_code), "the reassignment", response.error_message)
    results: dict[TopicPartition, BrokerRefused | None] = {}
    for topic in response.responses:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            refusal = None
            if row.error_code:
                refusal = BrokerRefused(error_code_of(row.error_code), str(partition), row.error_message)
            results[partition] = refusal
    return results


def list_request(partitions: Iterable[TopicPartition] | None, timeout_ms: int) -> ListPartitionReassignmentsRequest:
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(topic, [each.partition for each in of_topic])
            for topic, of_topic in groupby(sorted(partitions), key=lambda each: each.topic)
        ]
    return ListPartitionReassignmentsRequest(timeout_ms, topics)


def ongoing_moves(response: ListPartitionReassignmentsResponse) -> dict[TopicPartition, OngoingMove]:
    """Raises `BrokerRefused`."""
    if response.error_code:
        raise BrokerRefused(error_code_of(response.error_code), "the reassignments", response.error_message)
    return {
        TopicPartition(topic.name, row.partition_index): OngoingMove(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in response.topics
        for row in topic.partitions
    }
