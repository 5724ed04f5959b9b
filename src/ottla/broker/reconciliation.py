"""The changes that this broker must make to serve what the tree says.  Pure.

A topic's changes follow from the topic as the tree has it and from what the broker holds of it, never from the request
that changed the tree.  So the next pass finds a change that could not be made, and a start, a request and a view from
another broker all use this one function.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.broker.partition_table import Refusal
from ottla.coordination.configs import ConfigsView
from ottla.coordination.topic_nodes import TopicDeletion
from ottla.coordination.topics_view import Partition as PartitionNode
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId, TopicPartition


class TreeViews(NamedTuple):
    """What the tree says of topics and of their settings."""

    topics: TopicsView
    configs: ConfigsView


class HeldPartition(NamedTuple):
    """What this broker holds of one partition."""

    # Whether the data directory has it, and whether its log is open.
    is_on_disk: bool = False
    is_open: bool = False
    # Of which topic its files are, also those that a failed creation left; None where there are none, or unreadable.
    topic_id: UUID | None = None
    # Why its log cannot be used: it was not opened, or it held flushed records and is gone.
    failure: ErrorCode | None = None
    # The leader epoch in which it is served, None when it is not.
    served_epoch: int | None = None
    # The error that requests get instead.
    refusal: Refusal | None = None


NOTHING_HELD: Final = HeldPartition()


class TopicChanges(NamedTuple):
    """The changes for one topic name, to be made in the order of the fields.

    What follows `drop` depends on it: while an old log cannot be dropped, a new one cannot be made in its place.
    """

    name: str
    # The topic in the tree, None when there is none.
    topic: Topic | None
    # Partitions that are served, or refused, and are no longer this broker's.
    stop: list[TopicPartition]
    # Logs of deleted topics.
    drop: list[TopicPartition]
    # Logs whose topic the tree neither has nor notes as deleted: they are kept.
    keep: list[TopicPartition]
    refuse: list[tuple[TopicPartition, Refusal]]
    # Logs that are open, and are to be served in the leader epoch of their node.
    serve: list[PartitionNode]
    # Partitions that are served in another leader epoch than their node's.
    lead_anew: list[PartitionNode]
    # Partitions without a log.
    make: list[PartitionNode]
    applies_config: bool


def changed_topics(old: TreeViews, new: TreeViews) -> list[str]:
    """The names whose topic or settings are not the same objects in both views, which share what did not change."""
    changed: dict[str, None] = {}
    before, after = old.topics.by_name, new.topics.by_name
    if before is not after:
        changed.update((name, None) for name, topic in after.items() if before.get(name) is not topic)
        changed.update((name, None) for name in before if name not in after)
    if old.configs is not new.configs:
        changed.update((name, None) for name in after if old.configs.topic(name) is not new.configs.topic(name))
    return list(changed)


def vanished_topics(old: TopicsView, new: TopicsView, names: Collection[str]) -> bool:
    """Whether a topic of one of these names was deleted between the views; a recreated topic is another one."""
    return any(
        (before := old.by_name.get(name)) is not None and before.topic_id not in new.by_id for name in names
    )  # fmt: skip


def reconcile(
    name: str,
    old: TreeViews,
    new: TreeViews,
    node_id: NodeId,
    held: Mapping[int, HeldPartition],
    deletions: Collection[TopicDeletion],
    *,
    is_settled: bool = True,
) -> TopicChanges:
    """What to change for the topic of this name.

    `held`: by index, what the broker holds of the name; indexes without an entry are `NOTHING_HELD`.  `deletions`:
    deleted topics of which something may remain.  `is_settled`: whether the changes for `old` were all made.
    """
    topic = new.topics.by_name.get(name)
    settings = new.configs.topic(name)
    applies_config = topic is not None and (not is_settled or old.configs.topic(name) != settings)
    changes = TopicChanges(name, topic, [], [], [], [], [], [], [], applies_config and bool(held))
    if topic is not None and not held:
        # For example a new topic with thousands of partitions: there is nothing to compare.
        changes.make.extend(node for node in topic.partitions if node_id in node.replicas)
        return changes
    wanted = {} if topic is None else {node.partition_index: node for node in topic.partitions}
    deleted_ids = {deletion.topic_id for deletion in deletions}
    for index in sorted(wanted.keys() | held.keys()):
        here = held.get(index, NOTHING_HELD)
        node = wanted.get(index)
        if node is not None and node_id in node.replicas:
            assert topic is not None
            _reconcile_wanted(changes, topic.topic_id, node, here, deleted_ids)
            continue
        topic_partition = TopicPartition(name, index)
        if here.served_epoch is not None or here.refusal is not None:
            changes.stop.append(topic_partition)
        if node is None and (here.is_on_disk or here.topic_id is not None):
            is_deleted = here.topic_id in deleted_ids or (
                # Unreadable: it belonged to the deleted topic of this name, unless there is a new one.
                here.topic_id is None
                and topic is None
                and any(deletion.name == name and index < deletion.partitions_count for deletion in deletions)
            )
            (changes.drop if is_deleted else changes.keep).append(topic_partition)
    return changes


def _reconcile_wanted(
    changes: TopicChanges, topic_id: UUID, node: PartitionNode, here: HeldPartition, deleted_ids: Collection[UUID]
) -> None:
    """One partition that the tree assigns to this broker."""
    error_code: ErrorCode | None = None
    topic_partition = TopicPartition(changes.name, node.partition_index)
    if here.is_on_disk and here.topic_id is not None and here.topic_id != topic_id:
        if here.served_epoch is not None:
            changes.stop.append(topic_partition)
        if here.topic_id in deleted_ids:
            changes.drop.append(topic_partition)
            changes.make.append(node)
            return
        # Another topic's records: neither serve nor change them.
        error_code = ErrorCode.INCONSISTENT_TOPIC_ID
    elif here.failure is not None:
        error_code = here.failure
    elif not here.is_open:
        if here.is_on_disk:
            # It is being deleted, and that is not durable.
            changes.drop.append(topic_partition)
        changes.make.append(node)
    elif here.served_epoch is None:
        changes.serve.append(node)
    elif here.served_epoch != node.state.leader_epoch:
        changes.lead_anew.append(node)
    if error_code is not None and here.refusal != (topic_id, error_code):
        changes.refuse.append((topic_partition, Refusal(topic_id, error_code)))
