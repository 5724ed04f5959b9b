"""Writes other replicas of partitions, each together with the state that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination import layout, topic_nodes
from ottla.coordination.changes import Changes, assignments_subject
from ottla.coordination.reassignment import Reassigned
from ottla.coordination.topic_nodes import TopicPointer
from ottla.coordination.topics_view import NO_MOVE, PartitionNode
from ottla.coordination.tree import BadVersion, ConnectionLoss, NoNode, Operation, SetNode, Tree
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError

# Of one request: each but the last lost a race to another writer of the same topic.
ATTEMPTS_MAX: Final = 50
# In one request, besides the pointer, which has the replicas of all of the topic's partitions.
BATCH_PARTITIONS_MAX: Final = 400

Decide = Callable[[PartitionNode], Reassigned | None]
"""The replicas and state to write, None for no change.  May be called again for a newer state; may raise
`RequestError`."""

Results = dict[int, RequestError | None]


class _Topic(NamedTuple):
    pointer: TopicPointer
    version: int


class AssignmentChanges:
    """The writer of partitions' replicas after their creation."""

    def __init__(self, tree: Tree, changes: Changes) -> None:
        self._tree = tree
        self._changes = changes

    async def change(self, name: str, topic_id: UUID | None, indexes: Collection[int], decide: Decide) -> Results:
        """Change these partitions, some or all of them; returns the refusals, None where a partition is as decided.

        `topic_id`: None for the topic that has the name now.  Raises `RequestError` when there is no such topic.
        """
        results: Results = {}
        wanted = list(indexes)
        for first in range(0, len(wanted), BATCH_PARTITIONS_MAX):
            batch = wanted[first : first + BATCH_PARTITIONS_MAX]
            results |= await self._change_together(name, topic_id, batch, decide)
        return results

    async def _change_together(
        self, name: str, topic_id: UUID | None, indexes: Sequence[int], decide: Decide
    ) -> Results:
        """Change as many as fit into one request."""
        # Unknown outcome: the attempt may have changed partitions that need no change (any more).
        is_unsure = False
        for _ in range(ATTEMPTS_MAX):
            topic = await self._topic(name)
            if topic is None or topic_id not in (None, topic.pointer.topic_id):
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            results: Results = {}
            decided: list[tuple[PartitionNode, Reassigned]] = []
            for partition in await self._partitions(name, topic.pointer, indexes, results):
                try:
                    after = decide(partition)
                except RequestError as refusal:
                    is_ours = is_unsure and refusal.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
                    results[partition.partition_index] = None if is_ours else refusal
                    continue
                results[partition.partition_index] = None
                if after is not None:
                    decided.append((partition, after))
            try:
                await self._write(name, topic, decided)
            except ConnectionLoss:
                is_unsure = True
            except (BadVersion, NoNode):
                pass  # another writer was faster
            else:
                return results
            await self._tree.sync()
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"topic {name!r} is being changed by many writers at once")

    async def _topic(self, name: str) -> _Topic | None:
        path = layout.topic_path(name)
        try:
            node = await self._tree.get(path)
        except NoNode:
            return None
        return _Topic(topic_nodes.decode_pointer(path, node.data), node.stat.version) if node.data else None

    async def _partitions(
        self, name: str, pointer: TopicPointer, indexes: Sequence[int], results: Results
    ) -> list[PartitionNode]:
        """These partitions as they are in the tree; those that the topic does not have are refused."""
        known = [index for index in indexes if 0 <= index < len(pointer.assignment)]
        for index in indexes:
            if not 0 <= index < len(pointer.assignment):
                problem = f"topic {name!r} has no partition {index}"
                results[index] = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
        paths = layout.state_paths(name, pointer.topic_id, known)
        partitions: list[PartitionNode] = []
        for index, path, node in zip(known, paths, await self._tree.get_many(paths), strict=True):
            if node is None:  # the topic was deleted since its pointer was read
                problem = f"topic {name!r} is being deleted"
                results[index] = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
                continue
            state = topic_nodes.decode_state(path, node.data)
            move = pointer.moves.get(index, NO_MOVE)
            partitions.append(PartitionNode(index, pointer.assignment[index], state, node.stat.version, move))
        return partitions

    async def _write(self, name: str, topic: _Topic, decided: Sequence[tuple[PartitionNode, Reassigned]]) -> None:
        if not decided:
            return
        assignment, moves = list(topic.pointer.assignment), dict(topic.pointer.moves)
        operations: list[Operation] = []
        for partition, after in decided:
            index = partition.partition_index
            assignment[index] = after.replicas
            moves[index] = after.move
            path = layout.state_path(name, topic.pointer.topic_id, index)
            operations.append(SetNode(path, topic_nodes.encode_state(after.state), partition.state_version))
        pointer = TopicPointer(
            topic.pointer.topic_id,
            tuple(assignment),
            {index: move for index, move in sorted(moves.items()) if move != NO_MOVE},
        )
        pointed = SetNode(layout.topic_path(name), topic_nodes.encode_pointer(pointer), topic.version)
        indexes = [partition.partition_index for partition, _ in decided]
        await self._changes.commit([pointed, *operations], [assignments_subject(name, indexes)])
