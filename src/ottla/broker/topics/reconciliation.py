"""The changes that this broker must make to serve what the tree says.  Pure.

A topic's changes follow from the topic as the tree has it and from what the broker holds of it, never from the request
that changed the tree.  So the next pass finds a change that could not be made, and a start, a request and a view from
another broker all use this one function.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.broker.partitions.partition_table import Refusal
from ottla.coordination.configs import ConfigsView
from ottla.coordination.topic_nodes import TopicDeletion
from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_LEADER_EPOCH, NodeId, TopicPartition


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
    # The tree's node by which it is served, None when it is not.
    served_by: PartitionNode | None = None
    # The error that requests get instead.
    refusal: Refusal | None = None
    # The greatest leader epoch that the log knows.
    leader_epoch: int = NO_LEADER_EPOCH


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
    # Logs of deleted topics, and of partitions that other brokers hold now.
    drop: list[TopicPartition]
    # Damaged or lost logs of partitions that other brokers have whole: kept under other names, and recreated.
    set_aside: list[TopicPartition]
    # Logs whose topic the cluster does not know: kept under other names.
    stray: list[TopicPartition]
    # Logs whose topic the tree neither has nor notes as deleted: they are kept.
    keep: list[TopicPartition]
    refuse: list[tuple[TopicPartition, Refusal]]
    # Logs that are open, and that will be served as their node says.
    serve: list[PartitionNode]
    # Partitions that are served by another node of theirs: role, leader, epoch or replicas changed.
    update: list[PartitionNode]
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


def changed_partitions(before: Topic | None, after: Topic | None) -> list[int] | None:
    """The partitions whose nodes are not the same objects in two views of a topic; None when the topic itself is
    another one, or has another count.
    """
    if before is None or after is None or _extent(before) != _extent(after):
        return None
    pairs = zip(before.partitions, after.partitions, strict=True)
    return [index for index, (former, node) in enumerate(pairs) if former is not node]


def other_extents(old: TopicsView, new: TopicsView, names: Collection[str]) -> bool:
    """Whether a topic of one of these names was created, recreated, grown or deleted between the views."""
    return any(_extent(old.by_name.get(name)) != _extent(new.by_name.get(name)) for name in names)


def _extent(topic: Topic | None) -> tuple[UUID, int] | None:
    return None if topic is None else (topic.topic_id, len(topic.partitions))


def reconcile(
    name: str,
    old: TreeViews,
    new: TreeViews,
    node_id: NodeId,
    held: Mapping[int, HeldPartition],
    deletions: Collection[TopicDeletion],
    *,
    only: Collection[int] | None = None,
    is_settled: bool = True,
    is_complete: bool = False,
) -> TopicChanges:
    """What to change for the topic of this name.

    `held`: by index, what the broker holds of the name; indexes without an entry are `NOTHING_HELD`.  `deletions`:
    deleted topics of which something may remain.  `only`: the partitions that may have changed, None for all.
    `is_settled`: whether the changes for `old` were all made.  `is_complete`: whether the whole tree was read after
    this broker had registered there: a topic id that it does not have is of no topic of the cluster any more.
    """
    topic = new.topics.by_name.get(name)
    settings = new.configs.topic(name)
    applies_config = topic is not None and (not is_settled or old.configs.topic(name) != settings)
    changes = TopicChanges(name, topic, [], [], [], [], [], [], [], [], [], applies_config and bool(held))
    if topic is not None and not held and only is None:
        # For example a new topic with thousands of partitions: there is nothing to compare.
        changes.make.extend(node for node in topic.partitions if node_id in node.replicas)
        return changes
    wanted: Sequence[PartitionNode] = () if topic is None else topic.partitions
    deleted_ids = {deletion.topic_id for deletion in deletions}
    for index in sorted({*range(len(wanted)), *held} if only is None else only):
        here = held.get(index, NOTHING_HELD)
        node = wanted[index] if index < len(wanted) else None
        if node is not None and node_id in node.replicas:
            assert topic is not None
            _reconcile_wanted(changes, topic.topic_id, node, node_id, here, deleted_ids, is_complete=is_complete)
            continue
        topic_partition = TopicPartition(name, index)
        if here.served_by is not None or here.refusal is not None:
            changes.stop.append(topic_partition)
        if not here.is_on_disk and here.topic_id is None:
            continue
        if node is not None and topic is not None and here.topic_id == topic.topic_id:
            if _is_held_by_others(node, node_id, here):
                changes.drop.append(topic_partition)
            continue
        is_deleted = here.topic_id in deleted_ids or (
            # Unreadable: it belonged to the deleted topic of this name, unless there is a new one.
            here.topic_id is None
            and topic is None
            and any(deletion.name == name and index < deletion.partitions_count for deletion in deletions)
        )
        is_stray = is_complete and here.topic_id is not None and (topic is None or here.topic_id != topic.topic_id)
        (changes.drop if is_deleted else changes.stray if is_stray else changes.keep).append(topic_partition)
    return changes


def _is_held_by_others(node: PartitionNode, node_id: NodeId, here: HeldPartition) -> bool:
    """Whether this broker's former replica may be deleted: no election can need it any more.

    An in-sync replica of the new assignment has every acknowledged record.  A log with a leader epoch above the tree's
    has lived longer than this tree, which was restored from a copy: then its assignment proves nothing.
    """
    return _is_whole_elsewhere(node, node_id) and here.leader_epoch <= node.state.leader_epoch


def _is_whole_elsewhere(node: PartitionNode, node_id: NodeId) -> bool:
    """Whether an assigned replica is in sync, and no election can come to need the one of this broker."""
    state = node.state
    in_sync = {member.node_id for member in state.in_sync}
    is_needed = node_id in in_sync or any(member.node_id == node_id for member in state.eligible)
    return not is_needed and not in_sync.isdisjoint(node.replicas)


def _reconcile_wanted(
    changes: TopicChanges,
    topic_id: UUID,
    node: PartitionNode,
    node_id: NodeId,
    here: HeldPartition,
    deleted_ids: Collection[UUID],
    *,
    is_complete: bool,
) -> None:
    """One partition that the tree assigns to this broker."""
    error_code: ErrorCode | None = None
    topic_partition = TopicPartition(changes.name, node.partition_index)
    if here.is_on_disk and here.topic_id is not None and here.topic_id != topic_id:
        if here.served_by is not None:
            changes.stop.append(topic_partition)
        if here.topic_id in deleted_ids:
            changes.drop.append(topic_partition)
            changes.make.append(node)
            return
        if is_complete and _is_whole_elsewhere(node, node_id):
            changes.stray.append(topic_partition)
            changes.make.append(node)
            return
        # Another topic's records: neither serve nor change them.
        error_code = ErrorCode.INCONSISTENT_TOPIC_ID
    elif here.failure is not None:
        if _is_whole_elsewhere(node, node_id):
            changes.set_aside.append(topic_partition)
            changes.make.append(node)
            return
        error_code = here.failure
    elif not here.is_open:
        if here.is_on_disk:
            # It is being deleted, and that is not durable.
            changes.drop.append(topic_partition)
        changes.make.append(node)
    elif here.served_by is None:
        changes.serve.append(node)
    elif here.served_by != node:
        changes.update.append(node)
    if error_code is not None and here.refusal != (topic_id, error_code):
        changes.refuse.append((topic_partition, Refusal(topic_id, error_code)))
