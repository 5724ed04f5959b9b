"""How a topic's nodes are created, grown and deleted: in one request where they fit, else in several.

A topic exists while the node of its name (the *pointer*) has its id; a name's node without data is no topic.  So that
no reader sees half of a topic, the pointer is written in the last request of a creation and of a growth, and emptied in
the first one of a deletion.  A writer that dies in between leaves nodes to which no pointer leads; they are swept.

Two writers of one topic's nodes exclude each other by versions: each request of a growth checks those of the pointer
and of the id's node, which a growth sets first; a sweep sets the id's node too, and only while the pointer does not
lead there; a creation's last request checks that none did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ottla.coordination import layout, topic_nodes
from ottla.coordination.changes import Changes
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.topic_nodes import TopicDeletion, TopicPointer
from ottla.coordination.tree import (
    BATCH_BYTES_MAX,
    BadVersion,
    CheckNode,
    ConnectionLoss,
    CreateNode,
    DeleteNode,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    RequestTooLarge,
    SetNode,
    Tree,
    batches,
    request_bytes,
)
from ottla.model.identifiers import uuid_to_text
from ottla.model.partition_state import PartitionState

ATTEMPTS_MAX: Final = 20  # each but the last lost a race to another writer of the same topic

DELETED_SUBJECT: Final = "deleted/"

_RACE_LOST: Final = (BadVersion, NoNode, NodeExists, NotEmpty)


class TopicWrites:
    """The writer of topics' nodes."""

    def __init__(self, tree: Tree, changes: Changes) -> None:
        self._tree = tree
        self._changes = changes

    async def create(self, name: str, pointer: TopicPointer, states: Sequence[PartitionState], config: bytes) -> None:
        """Create a topic, or nothing that a reader sees.

        Raises `NodeExists` when there is a topic of this name, and `RequestTooLarge` when it has too many replicas.
        """
        operations = topic_nodes.creation(name, pointer, states, config)
        if request_bytes(operations) <= BATCH_BYTES_MAX:
            try:
                await self._changes.commit(operations, subjects_of(name))
            except NodeExists:
                # Another topic, or a name's node that a deletion or a creation in several requests left.
                if await self._vacant_version(name) is None:
                    raise
            else:
                return
        await self._create_below(name, pointer, states, config)

    async def grow(self, name: str, pointer: TopicPointer, version: int, states: Sequence[PartitionState]) -> None:
        """Add partitions: `pointer` has all of them, `states` those of the added ones; `version` is the pointer's.

        Raises `BadVersion`, `NoNode` or `NodeExists` when the topic is not as it was, or another one adds partitions,
        and `RequestTooLarge` when it would have too many replicas.
        """
        operations = topic_nodes.growth(name, pointer, version, states)
        if request_bytes(operations) <= BATCH_BYTES_MAX:
            try:
                await self._changes.commit(operations, [topic_subject(name)])
            except NodeExists:
                pass  # what a growth left that was cut off, or one that is under way
            else:
                return
        _require_room(name, pointer)
        id_path = layout.topic_id_path(name, pointer.topic_id)
        id_version = (await self._tree.get(id_path)).stat.version + 1
        unchanged = CheckNode(layout.topic_path(name), version)
        await self._tree.multi([unchanged, SetNode(id_path, b"", id_version - 1)])
        checks = [unchanged, CheckNode(id_path, id_version)]
        first_index = len(pointer.assignment) - len(states)
        removals = await self._partition_removals(name, pointer.topic_id, first_index)
        creations = topic_nodes.partition_creations(name, pointer.topic_id, first_index, states)
        for batch in (*batches(removals), *batches(creations)):
            await self._tree.multi([*checks, *batch])
        pointed = SetNode(layout.topic_path(name), topic_nodes.encode_pointer(pointer), version)
        await self._changes.commit([checks[1], pointed], [topic_subject(name)])

    async def delete(self, deletion: TopicDeletion, version: int) -> None:
        """Delete a topic and leave its note; `version` is the pointer's.

        Raises `BadVersion` or `NoNode` when the topic is not as it was.
        """
        subjects = [*subjects_of(deletion.name), deletion_subject(deletion.topic_id)]
        operations = topic_nodes.removal(deletion, version)
        if request_bytes(operations) <= BATCH_BYTES_MAX:
            try:
                await self._changes.commit(operations, subjects)
            except (NotEmpty, NoNode):
                pass  # a growth that was cut off left nodes, or the topic is not as it was
            else:
                return
        await self._changes.commit(topic_nodes.removal_of_pointer(deletion, version), subjects)
        await self.sweep(deletion.name, deletion.topic_id)

    async def sweep(self, name: str, topic_id: UUID) -> None:
        """Remove the nodes of an id to which the name's pointer does not lead."""
        id_path = layout.topic_id_path(name, topic_id)
        for _ in range(ATTEMPTS_MAX):
            try:
                node = await self._tree.get(layout.topic_path(name))
                if node.data and topic_nodes.decode_pointer(layout.topic_path(name), node.data).topic_id == topic_id:
                    return
                await self._tree.multi([CheckNode(layout.topic_path(name), node.stat.version), SetNode(id_path, b"")])
                for batch in batches(await self._partition_removals(name, topic_id, 0)):
                    await self._tree.multi(batch)
                await self._tree.multi([DeleteNode(layout.partitions_path(name, topic_id)), DeleteNode(id_path)])
            except _RACE_LOST:
                if await self._tree.exists(id_path) is not None:
                    continue
            await self._drop_empty_name(name)
            return
        raise NodeDamaged(id_path, "has nodes that cannot be deleted")

    async def has_leftovers(self, name: str) -> bool:
        node = await self._name_node(name)
        return node is not None and has_leftovers(node)

    async def leftovers(self, name: str) -> list[UUID]:
        """The ids below a name to which its pointer does not lead."""
        path = layout.topic_path(name)
        try:
            node, children = await self._tree.get(path), await self._tree.children(path)
        except NoNode:
            return []
        current = topic_nodes.decode_pointer(path, node.data).topic_id if node.data else None
        found = [topic_nodes.id_of_node(f"{path}/{child}") for child in children]
        return [topic_id for topic_id in found if topic_id != current]

    async def _create_below(
        self, name: str, pointer: TopicPointer, states: Sequence[PartitionState], config: bytes
    ) -> None:
        """Create the topic's own nodes first, and then let the name's node lead to them."""
        _require_room(name, pointer)
        name_path, id_path = layout.topic_path(name), layout.topic_id_path(name, pointer.topic_id)
        roots = [CreateNode(id_path), CreateNode(layout.partitions_path(name, pointer.topic_id))]
        groups: list[Sequence[Operation]] = [roots]
        groups += topic_nodes.partition_creations(name, pointer.topic_id, 0, states)
        for _ in range(ATTEMPTS_MAX):
            try:
                if await self._vacant_version(name) is None:
                    await self._tree.create(name_path)
                for batch in batches(groups):
                    await self._tree.multi(batch)
                await self._point(name, pointer, config)
                break
            except _RACE_LOST:
                await self.sweep(name, pointer.topic_id)
                if await self._has_topic(name):
                    raise NodeExists(name_path) from None
        else:
            raise ConnectionLoss(name_path)
        for topic_id in await self.leftovers(name):
            await self.sweep(name, topic_id)

    async def _point(self, name: str, pointer: TopicPointer, config: bytes) -> None:
        """Let the name's node lead to a topic whose nodes are complete."""
        version = await self._vacant_version(name)
        if version is None:
            raise NodeExists(layout.topic_path(name))
        operations: list[Operation] = [
            CheckNode(layout.topic_id_path(name, pointer.topic_id), 0),  # no sweep of it has started
            SetNode(layout.topic_path(name), topic_nodes.encode_pointer(pointer), version),
            CreateNode(layout.topic_config_path(name), config),
        ]
        await self._changes.commit(operations, subjects_of(name))

    async def _vacant_version(self, name: str) -> int | None:
        """The version of the name's node when it leads to no topic; None when it does, or is not there."""
        node = await self._name_node(name)
        return node.stat.version if node is not None and not node.data else None

    async def _has_topic(self, name: str) -> bool:
        node = await self._name_node(name)
        return node is not None and bool(node.data)

    async def _name_node(self, name: str) -> Node | None:
        try:
            return await self._tree.get(layout.topic_path(name))
        except NoNode:
            return None

    async def _partition_removals(self, name: str, topic_id: UUID, first_index: int) -> list[list[Operation]]:
        """For each partition from `first_index` on, the deletion of its nodes."""
        parent = layout.partitions_path(name, topic_id)
        names = await self._tree.children(parent)
        paths = [f"{parent}/{child}" for child in names if not child.isdigit() or int(child) >= first_index]
        states = await self._tree.get_many([f"{path}/state" for path in paths])
        return [
            [DeleteNode(path)] if state is None else [DeleteNode(f"{path}/state"), DeleteNode(path)]
            for path, state in zip(paths, states, strict=True)
        ]

    async def _drop_empty_name(self, name: str) -> None:
        """Delete the name's node if it leads nowhere and nothing is below it."""
        version = await self._vacant_version(name)
        if version is not None:
            with contextlib.suppress(*_RACE_LOST):
                await self._tree.delete(layout.topic_path(name), version)


def _require_room(name: str, pointer: TopicPointer) -> None:
    """Raise `RequestTooLarge` for a pointer that no request can hold, before nodes are made that it is to lead to.

    Its request has `/changes`, too, and that of a move the states of many partitions: half of one is for the pointer.
    """
    pointed = SetNode(layout.topic_path(name), topic_nodes.encode_pointer(pointer))
    if request_bytes([pointed]) > BATCH_BYTES_MAX:
        raise RequestTooLarge(pointed.path)


def has_leftovers(name_node: Node) -> bool:
    """Whether a name's node has others below it than that of the topic to which it leads, or leads to none."""
    return not name_node.data or name_node.stat.children_count > 1


def topic_subject(name: str) -> str:
    """The subject of a topic's pointer and of all its states."""
    return f"topics/{name}"


def subjects_of(name: str) -> list[str]:
    """The subjects of a change of the whole topic: its nodes and its configuration."""
    return [topic_subject(name), f"config/topics/{name}"]


def deletion_subject(topic_id: UUID) -> str:
    """The subject of a new deletion note."""
    return f"{DELETED_SUBJECT}{uuid_to_text(topic_id)}"
