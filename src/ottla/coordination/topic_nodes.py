"""The content of a topic's nodes, and the operations that create and delete them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination import layout
from ottla.coordination.node_json import Fields, NodeDamaged, encode
from ottla.coordination.topics_view import Move
from ottla.coordination.tree import CheckNode, CreateNode, DeleteNode, Operation, SetNode
from ottla.model.identifiers import LeaderEpoch, NodeId, uuid_from_text, uuid_to_text
from ottla.model.partition_state import PartitionState, ReplicaIncarnation

Assignment = Sequence[Sequence[NodeId]]
"""For each partition its replicas, the preferred leader first."""


Moves = Mapping[int, Move]
"""By index, the partitions whose replicas are being moved."""

_NO_MOVES: Final[Moves] = MappingProxyType({})


class TopicPointer(NamedTuple):
    """The target of a topic's name."""

    topic_id: UUID
    assignment: tuple[tuple[NodeId, ...], ...]
    moves: Moves = _NO_MOVES


def encode_pointer(pointer: TopicPointer) -> bytes:
    partitions = {str(index): list(replicas) for index, replicas in enumerate(pointer.assignment)}
    content: dict[str, object] = {"version": 1, "topic_id": uuid_to_text(pointer.topic_id), "partitions": partitions}
    if pointer.moves:
        content["adding"] = {str(index): list(move.adding) for index, move in pointer.moves.items()}
        content["removing"] = {str(index): list(move.removing) for index, move in pointer.moves.items()}
    return encode(content)


def decode_pointer(path: str, data: bytes) -> TopicPointer:
    fields = Fields.parse(path, data)
    topic_id = fields.uuid_of(fields.text("topic_id"))
    partitions = fields.nested("partitions")
    assignment = tuple(
        tuple(NodeId(node) for node in partitions.integers(str(index))) for index in range(len(partitions.content))
    )
    return TopicPointer(topic_id, assignment, _moves(fields, assignment) if "adding" in fields.content else _NO_MOVES)


def encode_state(state: PartitionState) -> bytes:
    return encode(
        {
            "version": 1,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": [list(member) for member in state.in_sync],
            "eligible": [list(member) for member in state.eligible],
        }
    )


def decode_state(path: str, data: bytes) -> PartitionState:
    fields = Fields.parse(path, data)
    return PartitionState(
        NodeId(fields.integer("leader")),
        LeaderEpoch(fields.integer("leader_epoch")),
        _members(fields, "isr"),
        _members(fields, "eligible"),
    )


def creation(name: str, pointer: TopicPointer, states: Sequence[PartitionState], config: bytes) -> list[Operation]:
    """All operations that create a topic, in one `multi`: no reader sees half of it."""
    assert len(states) == len(pointer.assignment)
    operations: list[Operation] = [
        CreateNode(layout.topic_path(name), encode_pointer(pointer)),
        CreateNode(layout.topic_config_path(name), config),
        CreateNode(layout.topic_id_path(name, pointer.topic_id)),
        CreateNode(layout.partitions_path(name, pointer.topic_id)),
    ]
    return [*operations, *_flat(partition_creations(name, pointer.topic_id, 0, states))]


def growth(name: str, pointer: TopicPointer, version: int, states: Sequence[PartitionState]) -> list[Operation]:
    """Partitions after the existing ones: `pointer` has all of them, `states` those of the added ones.

    Valid only for the pointer's `version` that it was computed from.
    """
    first_index = len(pointer.assignment) - len(states)
    assert first_index > 0
    pointed = SetNode(layout.topic_path(name), encode_pointer(pointer), version)
    return [pointed, *_flat(partition_creations(name, pointer.topic_id, first_index, states))]


def partition_creations(
    name: str, topic_id: UUID, first_index: int, states: Sequence[PartitionState]
) -> list[list[Operation]]:
    """For each partition the operations that create its nodes."""
    return [
        [
            CreateNode(layout.partition_path(name, topic_id, index)),
            CreateNode(layout.state_path(name, topic_id, index), encode_state(state)),
        ]
        for index, state in enumerate(states, first_index)
    ]


class TopicDeletion(NamedTuple):
    """A topic that was deleted from the tree while its directories may still exist, on `brokers`."""

    name: str
    topic_id: UUID
    partitions_count: int
    brokers: tuple[NodeId, ...] = ()

    @classmethod
    def of(cls, name: str, pointer: TopicPointer) -> TopicDeletion:
        brokers = sorted({node_id for replicas in pointer.assignment for node_id in replicas})
        return cls(name, pointer.topic_id, len(pointer.assignment), tuple(brokers))


def removal(deletion: TopicDeletion, version: int) -> list[Operation]:
    """Delete a topic; its id stays in a note until every broker has removed its directories.

    Valid only for the pointer's `version` that it was computed from.
    """
    name, topic_id = deletion.name, deletion.topic_id
    operations: list[Operation] = [CheckNode(layout.topic_path(name), version), _note_creation(deletion)]
    for index in range(deletion.partitions_count):
        operations.append(DeleteNode(layout.state_path(name, topic_id, index)))
        operations.append(DeleteNode(layout.partition_path(name, topic_id, index)))
    operations.append(DeleteNode(layout.partitions_path(name, topic_id)))
    operations.append(DeleteNode(layout.topic_id_path(name, topic_id)))
    operations.append(DeleteNode(layout.topic_config_path(name)))
    operations.append(DeleteNode(layout.topic_path(name)))
    return operations


def removal_of_pointer(deletion: TopicDeletion, version: int) -> list[Operation]:
    """Delete a topic as `removal` does, but leave the nodes of its id, to which nothing leads then."""
    return [
        SetNode(layout.topic_path(deletion.name), b"", version),
        _note_creation(deletion),
        DeleteNode(layout.topic_config_path(deletion.name)),
    ]


def encode_deletion(deletion: TopicDeletion) -> bytes:
    content = {"version": 1, "topic": deletion.name, "partitions": deletion.partitions_count}
    return encode(content | {"brokers": list(deletion.brokers)})


def decode_deletion(path: str, topic_id: UUID, data: bytes) -> TopicDeletion:
    fields = Fields.parse(path, data)
    # A note of the time when there was one broker names none.
    brokers = tuple(NodeId(node) for node in fields.integers("brokers")) if "brokers" in fields.content else ()
    return TopicDeletion(fields.text("topic"), topic_id, fields.integer("partitions"), brokers)


def id_of_node(path: str) -> UUID:
    """The topic id that is the last part of a path."""
    try:
        return uuid_from_text(path.rpartition("/")[2])
    except ValueError as error:
        raise NodeDamaged(path, str(error)) from error


def first_state(replicas: Sequence[NodeId], broker_epochs: Mapping[NodeId, int]) -> PartitionState | None:
    """A new partition's state: every live replica is in sync, since the log is empty.  None without a live replica."""
    live = tuple(ReplicaIncarnation(node, broker_epochs[node]) for node in replicas if node in broker_epochs)
    return PartitionState(live[0].node_id, LeaderEpoch(0), live) if live else None


def _note_creation(deletion: TopicDeletion) -> Operation:
    return CreateNode(layout.deleted_topic_path(deletion.topic_id), encode_deletion(deletion))


def _flat(groups: Sequence[Sequence[Operation]]) -> list[Operation]:
    return [operation for group in groups for operation in group]


def _moves(fields: Fields, assignment: Assignment) -> Moves:
    adding, removing = fields.nested("adding"), fields.nested("removing")
    moves: dict[int, Move] = {}
    for name in adding.content:
        if not (name.isascii() and name.isdigit() and int(name) < len(assignment)):
            raise NodeDamaged(fields.path, f"moves the partition {name!r}, which it does not have")
        joining = tuple(NodeId(node) for node in adding.integers(name))
        leaving = tuple(NodeId(node) for node in removing.integers(name))
        replicas = assignment[int(name)]
        if {*joining, *leaving}.difference(replicas) or set(joining) & set(leaving) or set(leaving) >= set(replicas):
            raise NodeDamaged(fields.path, f"adds {joining} and removes {leaving} of the replicas {replicas}")
        moves[int(name)] = Move(joining, leaving)
    return MappingProxyType(moves)


def _members(fields: Fields, name: str) -> tuple[ReplicaIncarnation, ...]:
    # [node id, broker epoch] pairs: there are many, and each start reads them all.
    members = fields.content.get(name)
    if not isinstance(members, list):
        raise NodeDamaged(fields.path, f"{name!r} should be an array, not {members!r}")
    for member in members:
        if not isinstance(member, list) or len(member) != 2 or any(type(number) is not int for number in member):
            raise NodeDamaged(fields.path, f"{name!r} should hold [node id, broker epoch] pairs, not {member!r}")
    return tuple(ReplicaIncarnation(NodeId(node_id), epoch) for node_id, epoch in members)
