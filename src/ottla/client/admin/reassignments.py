"""Moves of partitions to other brokers (KIP-455), as requests and answers carry them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


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
