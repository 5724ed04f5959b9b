"""Changes of partition states: many in few requests, each with its own outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination import layout, topic_nodes
from ottla.coordination.changes import Changes, states_subject
from ottla.coordination.topics_view import PartitionNode, Topic
from ottla.coordination.tree import (
    BadVersion,
    ConnectionLoss,
    Node,
    NoNode,
    Operation,
    SessionLost,
    SetNode,
    Stat,
    Tree,
    batches,
)
from ottla.model.identifiers import TopicPartition, indexes_by_topic
from ottla.model.partition_state import NO_STATE_VERSION, ChangeOutcome, ChangeResult, PartitionState

# So many subjects of topics with one partition each still fit into an item of the ring of changes.
BATCH_STATES_MAX: Final = 400

_STALE: Final = ChangeOutcome(ChangeResult.STALE, NO_STATE_VERSION)
_UNKNOWN: Final = ChangeOutcome(ChangeResult.UNKNOWN, NO_STATE_VERSION)


class StateChange(NamedTuple):
    """A partition's next state, valid only for the version that it was computed from."""

    topic_partition: TopicPartition
    topic_id: UUID
    expected_version: int
    state: PartitionState

    @classmethod
    def of(cls, topic: Topic, partition: PartitionNode, state: PartitionState) -> StateChange:
        """Of a partition as a view of the tree has it."""
        name = TopicPartition(topic.name, partition.partition_index)
        return cls(name, topic.topic_id, partition.state_version, state)

    @property
    def path(self) -> str:
        return layout.state_path(self.topic_partition.topic, self.topic_id, self.topic_partition.partition)


class StateChanges:
    """The writer of partition states."""

    def __init__(self, tree: Tree, changes: Changes) -> None:
        self._tree = tree
        self._changes = changes

    async def write(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]:
        """Write each state over the version that it was computed from; stale ones do not hinder the others.

        The changes are independent: some may be applied and others not.  When the connection or the session breaks,
        this request and those after it have an unknown outcome.
        """
        outcomes = [_UNKNOWN] * len(changes)
        operations = [
            SetNode(change.path, topic_nodes.encode_state(change.state), change.expected_version) for change in changes
        ]
        first = 0
        for batch in batches(([operation] for operation in operations), groups_max=BATCH_STATES_MAX):
            indexes = list(range(first, first + len(batch)))
            first += len(batch)
            try:
                await self._write_batch(changes, operations, indexes, outcomes)
            except (ConnectionLoss, SessionLost):
                break
        return outcomes

    async def resolve(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]:
        """What became of changes with an unknown outcome: still unknown while a node has the expected version."""
        await self._tree.sync()
        nodes = await self._tree.get_many([change.path for change in changes])
        return [_resolved(change, node) for change, node in zip(changes, nodes, strict=True)]

    async def _write_batch(
        self,
        changes: Sequence[StateChange],
        operations: Sequence[SetNode],
        indexes: list[int],
        outcomes: list[ChangeOutcome],
    ) -> None:
        while indexes:
            request: list[Operation] = [operations[index] for index in indexes]
            subjects = _subjects([changes[index] for index in indexes])
            try:
                stats = await self._changes.commit(request, subjects)
            except (BadVersion, NoNode) as error:
                if error.operation_index is None:
                    raise  # not one of the states: the tree lacks its root nodes
                # Where one is stale others often are, when another broker wrote the same: find them in one read.
                outcomes[indexes.pop(error.operation_index)] = _STALE
                indexes = await self._fresh(changes, indexes, outcomes)
                continue
            for index, stat in zip(indexes, stats, strict=True):
                assert isinstance(stat, Stat)
                outcomes[index] = ChangeOutcome(ChangeResult.APPLIED, stat.version)
            return

    async def _fresh(
        self, changes: Sequence[StateChange], indexes: Sequence[int], outcomes: list[ChangeOutcome]
    ) -> list[int]:
        """The changes that are not seen to be stale."""
        fresh: list[int] = []
        for index, node in zip(
            indexes, await self._tree.get_many([changes[index].path for index in indexes]), strict=True
        ):
            if node is None or node.stat.version > changes[index].expected_version:
                outcomes[index] = _STALE
            else:
                fresh.append(index)
        return fresh


def _resolved(change: StateChange, node: Node | None) -> ChangeOutcome:
    if node is None:
        return _STALE
    if node.stat.version <= change.expected_version:
        return _UNKNOWN
    is_ours = node.stat.version == change.expected_version + 1 and node.data == topic_nodes.encode_state(change.state)
    return ChangeOutcome(ChangeResult.APPLIED, node.stat.version) if is_ours else _STALE


def _subjects(changes: Sequence[StateChange]) -> list[str]:
    return [states_subject(*of_topic) for of_topic in indexes_by_topic(change.topic_partition for change in changes)]
