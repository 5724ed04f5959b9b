"""Topics created in the tree for logs that exist: imported ones, or those of a directory that lost its tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.coordination.layout import lay_out
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


async def fill(
    tree: Tree,
    node_id: NodeId,
    own_cluster_id: UUID | None,
    topics: Sequence[ImportedTopic],
    settings: Mapping[ConfigEntity, Mapping[str, str]],
) -> None:
    """Fill a tree that is empty.  `own_cluster_id` is the directory's, None when it has none yet: the first broker that
    starts makes one.  `settings` are those of brokers and groups.
    """
    await lay_out(tree)
    if own_cluster_id is not None:
        found = own_cluster_id
        await cluster_id(tree, new_id=lambda: found)
    for topic in topics:
        await register(tree, node_id, topic)
    configs = ConfigRegistry(tree)
    for entity, texts in settings.items():
        await configs.update(entity, partial(_replaced, dict(texts)))


def _replaced(wanted: Mapping[str, str], _: Mapping[str, str]) -> Mapping[str, str]:
    return wanted
