"""What a consumer writes of its group in one session: its registration, and partitions' owner and offset nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final
from uuid import UUID

from ottla.client.consumer_registry.group_nodes import (
    ConsumerNode,
    GroupPaths,
    OffsetContent,
    decode_offset,
    decode_owner,
    encode_consumer,
    encode_offset,
    encode_owner,
)
from ottla.consumers.effects import Write, WriteKind
from ottla.consumers.partition_nodes import NO_NODE, OffsetNode, OwnerNode, PartitionNodes
from ottla.consumers.share import StreamId
from ottla.coordination.layout import CONSUMERS
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.tree import (
    BadVersion,
    ConnectionLoss,
    CreateNode,
    DeleteNode,
    Node,
    NodeExists,
    NoNode,
    Operation,
    SessionLost,
    SetNode,
    Tree,
)
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.model.partition_state import ChangeResult


async def make_missing(tree: Tree, paths: Sequence[str]) -> None:
    """Create those of `paths` that do not exist; parents come before their children.

    Raises `NoNode` where a parent that is not among them is missing.
    """
    while True:
        nodes = await tree.get_many(paths)
        missing = [path for path, node in zip(paths, nodes, strict=True) if node is None]
        if not missing:
            return
        try:
            await tree.multi([CreateNode(path) for path in missing])
        except NodeExists:
            # Another consumer was faster: a read after a write of this session sees what that one saw.
            continue
        return


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


# One request: a write takes 3 KiB at most (two operations with paths of 0.8 KiB, one with 0.5 KiB of data), so these
# are less than a third of what a request may have.
WRITES_PER_REQUEST: Final = 100

_REFUSED: Final = (BadVersion, NodeExists, NoNode)
_UNANSWERED: Final = (ConnectionLoss, SessionLost)
_UNREADABLE: Final = StreamId("?", 0)


class PartitionRegistry:
    """All its writes belong to the session that `tree` has at construction, and to no later one."""

    def __init__(
        self,
        tree: Tree,
        paths: GroupPaths,
        topic_id: Callable[[str], UUID | None],
        now_ms: Callable[[], int],
    ) -> None:
        """`topic_id`: the id of a topic by its name, as the consumer sees it now."""
        self._tree: Final = tree
        self._paths: Final = paths
        self._session_id: Final = tree.session_id
        self._topic_id: Final = topic_id
        self._now_ms: Final = now_ms
        # Of the topic that each partition's offset is of, as it was read last.
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        self._topics_with_parents: set[str] = set()

    async def read(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionNodes]:
        """Both nodes of each, as they are after all writes that were started before.

        Raises `ConnectionLoss`, `SessionLost`, `AccessDenied`.
        """
        await self._make_parents({partition.topic for partition in partitions})
        await self._tree.sync()
        paths = [
            *(self._paths.owner(partition) for partition in partitions),
            *(self._paths.offset(partition) for partition in partitions),
        ]
        nodes = await self._tree.get_many(paths)
        pairs = zip(nodes[: len(partitions)], nodes[len(partitions) :], strict=True)
        return {partition: self._nodes_of(partition, *pair) for partition, pair in zip(partitions, pairs, strict=True)}

    async def _make_parents(self, topics: set[str]) -> None:
        new = sorted(topics - self._topics_with_parents)
        if not new:
            return
        paths = self._paths
        standing = [CONSUMERS, paths.root, paths.owners, paths.offsets]
        try:
            await make_missing(
                self._tree,
                [*standing, *(path for topic in new for path in (paths.owners_of(topic), paths.offsets_of(topic)))],
            )
        except NoNode:
            # An admin deletes the group meanwhile: a claim is refused, and the next read makes them.
            return
        self._topics_with_parents.update(new)

    def _nodes_of(self, partition: TopicPartition, owner: Node | None, offset: Node | None) -> PartitionNodes:
        found: OwnerNode | None = None
        try:
            if owner is not None:
                found = self._owner(partition, owner)
            return PartitionNodes(found, self._offset(partition, offset, found))
        except NodeDamaged as error:
            return PartitionNodes(found, None, str(error))

    def _owner(self, partition: TopicPartition, node: Node) -> OwnerNode:
        is_own = node.stat.ephemeral_owner == self._session_id
        try:
            return OwnerNode(decode_owner(self._paths.owner(partition), node.data), is_own)
        except NodeDamaged:
            if not is_own:
                raise
            # Regardless of its content, only this session can have created it, and can release it.
            return OwnerNode(_UNREADABLE, is_own)

    def _offset(self, partition: TopicPartition, node: Node | None, owner: OwnerNode | None) -> OffsetNode | None:
        topic_id = self._topic_id(partition.topic)
        if node is None:
            self._topic_ids[partition] = topic_id
            return None
        content = decode_offset(self._paths.offset(partition), node.data)
        is_own = owner is not None and owner.is_own
        is_held = is_own and content.claim is not None and content.claim.session_id == self._session_id
        if is_held or topic_id is None or content.topic_id in (None, topic_id):
            self._topic_ids[partition] = content.topic_id or topic_id
            return OffsetNode(content.offset, content.claim, node.stat.version)
        # Of a topic that was deleted: in the one that has its name now the group has read nothing.
        self._topic_ids[partition] = topic_id
        return OffsetNode(NO_OFFSET, content.claim, node.stat.version)

    async def write(self, writes: Sequence[Write]) -> list[ChangeResult]:
        """What became of each, of at most `WRITES_PER_REQUEST`; they are independent.

        They are started when this is first awaited.  Raises `AccessDenied` and what else no repetition would mend.
        """
        assert len(writes) <= WRITES_PER_REQUEST
        if self._tree.session_id != self._session_id:
            return [ChangeResult.UNKNOWN] * len(writes)
        groups = [self._operations(write) for write in writes]
        try:
            await self._tree.multi(list(chain.from_iterable(groups)))
        except _UNANSWERED:
            return [ChangeResult.UNKNOWN] * len(writes)
        except _REFUSED as error:
            self._note_refusal(error)
            if len(writes) == 1:
                return [ChangeResult.STALE]
        else:
            return [ChangeResult.APPLIED] * len(writes)
        # One was refused, and with it all: write each separately.
        return list(await asyncio.gather(*(self._write_alone(group) for group in groups)))

    async def _write_alone(self, operations: Sequence[Operation]) -> ChangeResult:
        try:
            await self._tree.multi(operations)
        except _UNANSWERED:
            return ChangeResult.UNKNOWN
        except _REFUSED as error:
            self._note_refusal(error)
            return ChangeResult.STALE
        return ChangeResult.APPLIED

    def _note_refusal(self, error: Exception) -> None:
        if isinstance(error, NoNode):
            # Perhaps a parent: the next read looks.
            self._topics_with_parents.clear()

    def _operations(self, write: Write) -> list[Operation]:
        owner, offset = self._paths.owner(write.partition), self._paths.offset(write.partition)
        topic_id = self._topic_ids.get(write.partition)
        data = encode_offset(OffsetContent(write.offset, write.claim, topic_id, str(write.stream), self._now_ms()))
        changed = (
            CreateNode(offset, data)
            if write.expected_version == NO_NODE
            else SetNode(offset, data, write.expected_version)
        )
        match write.kind:
            case WriteKind.CLAIM:
                return [CreateNode(owner, encode_owner(write.stream), ephemeral=True), changed]
            case WriteKind.COMMIT:
                return [changed]
            case WriteKind.RELEASE:
                return [changed, DeleteNode(owner)]


def in_requests(writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    """As many at a time as one request takes, in their order."""
    return (writes[first : first + WRITES_PER_REQUEST] for first in range(0, len(writes), WRITES_PER_REQUEST))
