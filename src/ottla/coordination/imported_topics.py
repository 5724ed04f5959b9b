"""Topics imported from another cluster, with their ids and existing logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.coordination.topic_nodes import TopicPointer
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.tree import Tree
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import NO_BROKER_EPOCH, PartitionState, ReplicaIncarnation


class ImportedTopic(NamedTuple):
    """`leader_epochs` has the next epoch of each partition: above those of its batches."""

    name: str
    topic_id: UUID
    leader_epochs: Sequence[int]
    config: Mapping[str, str]


async def check_importable(tree: Tree, node_id: NodeId, topics: Sequence[ImportedTopic]) -> None:
    """Raises the `RequestError` of the first topic whose name exists or collides; changes nothing."""
    registry = TopicRegistry(tree)
    for topic in topics:
        await registry.check_new(topic.name, [[node_id] for _ in topic.leader_epochs])


async def register(tree: Tree, node_id: NodeId, topic: ImportedTopic) -> None:
    """Create the topic like `TopicRegistry.create`, but with its former id and epochs.

    No broker runs meanwhile; the next one that starts becomes the leader of the partitions.
    """
    states = [
        PartitionState(node_id, LeaderEpoch(epoch), (ReplicaIncarnation(node_id, NO_BROKER_EPOCH),))
        for epoch in topic.leader_epochs
    ]
    pointer = TopicPointer(topic.topic_id, tuple((node_id,) for _ in states))
    await TopicRegistry(tree).install(topic.name, pointer, states, topic.config)
