"""Groups and topics in a tree, as tests of groups without a master create them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from ottla.client.consumer_registry.group_nodes import ConsumerNode, GroupPaths
from ottla.client.groups.subscription import Subscription
from ottla.coordination import layout
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.tree import Tree
from ottla.model.identifiers import NodeId
from tests.contract.tree_backends import RunningHome, TreeBackend

ONE: Final = NodeId(1)
PATHS: Final = GroupPaths.of("jobs")
NOW_MS: Final = 1_700_000_000_000


def node_of(subscription: Subscription) -> ConsumerNode:
    return ConsumerNode(subscription, "host-1", 42, "reader", NOW_MS)


def reading(**streams: int) -> Subscription:
    return Subscription(streams)


@asynccontextmanager
async def laid_out(home: TreeBackend) -> AsyncIterator[RunningHome]:
    async with home.running() as running:
        await layout.lay_out(await running.connect())
        yield running


async def make_topic(tree: Tree, name: str, partitions_count: int) -> UUID:
    return (await TopicRegistry(tree).create(name, [(ONE,)] * partitions_count, {ONE: 1})).topic_id


async def delete_topic(tree: Tree, name: str) -> None:
    await TopicRegistry(tree).delete(name)


async def add_partitions(tree: Tree, name: str, count: int) -> None:
    registry = TopicRegistry(tree)
    topic = (await registry.refresh()).by_name[name]
    await registry.add_partitions(topic, [(ONE,)] * count, {ONE: 1})
