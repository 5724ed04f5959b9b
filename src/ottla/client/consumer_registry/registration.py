"""Registers a consumer in its group, for as long as the session lives."""

from __future__ import annotations

from ottla.client.consumer_registry.group_paths import GroupPaths
from ottla.client.consumer_registry.missing_parents import make_missing
from ottla.client.consumer_registry.node_content import ConsumerNode, encode_consumer
from ottla.coordination.layout import CONSUMERS
from ottla.coordination.tree import (
    ConnectionLoss,
    CreateNode,
    DeleteNode,
    NodeExists,
    NoNode,
    Operation,
    SessionLost,
    Tree,
)
from ottla.model.partition_state import ChangeResult


async def register(tree: Tree, paths: GroupPaths, consumer_id: str, node: ConsumerNode) -> ChangeResult:
    """Create the consumer's node, by the present session; applied also when it is there already.

    Stale when another session has it.  A node of this session that others have overwritten is recreated, so that
    every watch on the consumers fires: no member watches a consumer's content.
    """
    path, data = paths.consumer(consumer_id), encode_consumer(node)
    operations: list[Operation] = [CreateNode(path, data, ephemeral=True)]
    try:
        await make_missing(tree, [CONSUMERS, paths.root, paths.ids])
        try:
            await tree.multi(operations)
        except NodeExists:
            found = await tree.get(path)
            if found.stat.ephemeral_owner != tree.session_id:
                return ChangeResult.STALE
            if found.data != data:
                await tree.multi([DeleteNode(path, found.stat.version), *operations])
    except (ConnectionLoss, SessionLost, NoNode, NodeExists):
        # The latter two: another client deletes or creates the same nodes meanwhile.
        return ChangeResult.UNKNOWN
    return ChangeResult.APPLIED
