"""Everything that the tree has of a group, for people and operators: read once, not followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.client.consumer_registry.group_paths import GroupPaths
from ottla.client.consumer_registry.node_content import (
    ConsumerNode,
    OffsetContent,
    decode_consumer,
    decode_offset,
    decode_owner,
)
from ottla.consumers.stream_id import StreamId
from ottla.coordination.layout import CONSUMERS
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.tree import Node, NoNode, Tree
from ottla.model.identifiers import TopicPartition

Key = TypeVar("Key")


class FoundOffset(NamedTuple):
    """An offset node, and the version that a change of it must expect."""

    content: OffsetContent
    version: int


class GroupContents(NamedTuple):
    """What was found; nodes in another format are listed in `damaged`, each with its path."""

    consumers: Mapping[str, ConsumerNode]
    owners: Mapping[TopicPartition, StreamId]
    offsets: Mapping[TopicPartition, FoundOffset]
    damaged: Sequence[NodeDamaged]


async def group_names(tree: Tree) -> list[str]:
    """The groups that have a node, sorted; also those without a consumer."""
    return await _children(tree, CONSUMERS)


async def group_exists(tree: Tree, paths: GroupPaths) -> bool:
    return await tree.exists(paths.root) is not None


async def read_group(tree: Tree, paths: GroupPaths) -> GroupContents:
    """All nodes of a group; empty when there is none of this name.  Not of one moment."""
    damaged: list[NodeDamaged] = []
    consumers: dict[str, ConsumerNode] = {}
    names = await _children(tree, paths.ids)
    for name, path, node in await _nodes(tree, [(name, paths.consumer(name)) for name in names]):
        try:
            consumers[name] = decode_consumer(path, node.data)
        except NodeDamaged as error:
            damaged.append(error)
    owners: dict[TopicPartition, StreamId] = {}
    owned = [(partition, paths.owner(partition)) for partition in await _partitions(tree, paths.owners, damaged)]
    for partition, path, node in await _nodes(tree, owned):
        try:
            owners[partition] = decode_owner(path, node.data)
        except NodeDamaged as error:
            damaged.append(error)
    offsets: dict[TopicPartition, FoundOffset] = {}
    kept = [(partition, paths.offset(partition)) for partition in await _partitions(tree, paths.offsets, damaged)]
    for partition, path, node in await _nodes(tree, kept):
        try:
            offsets[partition] = FoundOffset(decode_offset(path, node.data), node.stat.version)
        except NodeDamaged as error:
            damaged.append(error)
    return GroupContents(consumers, owners, offsets, damaged)


async def _children(tree: Tree, path: str) -> list[str]:
    try:
        return await tree.children(path)
    except NoNode:
        return []


async def _partitions(tree: Tree, parent: str, damaged: list[NodeDamaged]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for topic in await _children(tree, parent):
        for name in await _children(tree, f"{parent}/{topic}"):
            if name.isascii() and name.isdigit():
                found.append(TopicPartition(topic, int(name)))
            else:
                damaged.append(NodeDamaged(f"{parent}/{topic}/{name}", "is not named by a partition's number"))
    return sorted(found)


async def _nodes(tree: Tree, keyed: Sequence[tuple[Key, str]]) -> list[tuple[Key, str, Node]]:
    """Those that are still there."""
    nodes = await tree.get_many([path for _, path in keyed])
    return [(key, path, node) for (key, path), node in zip(keyed, nodes, strict=True) if node is not None]
