"""What a topic's nodes hold, and which operations make and remove them."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination import layout, topic_nodes
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.topic_nodes import TopicDeletion, TopicPointer
from ottla.coordination.tree import CheckNode, CreateNode, DeleteNode, parent_of
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation

TOPIC_ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
nodes = st.integers(0, 2**31 - 1).map(NodeId)
members = st.lists(st.builds(ReplicaIncarnation, nodes, st.integers(0, 2**62)), max_size=4).map(tuple)
states = st.builds(
    PartitionState, st.integers(-1, 99).map(NodeId), st.integers(0, 2**31 - 1).map(LeaderEpoch), members, members
)
assignments = st.lists(st.lists(nodes, min_size=1, max_size=4, unique=True).map(tuple), min_size=1, max_size=12).map(
    tuple
)


@given(states)
def test_state_reads_back_as_written(state: PartitionState) -> None:
    assert topic_nodes.decode_state("/path", topic_nodes.encode_state(state)) == state


@given(st.uuids(), assignments)
def test_pointer_reads_back_as_written(topic_id: UUID, assignment: tuple[tuple[NodeId, ...], ...]) -> None:
    pointer = TopicPointer(topic_id, assignment)
    assert topic_nodes.decode_pointer("/path", topic_nodes.encode_pointer(pointer)) == pointer


def test_nodes_look_as_early_kafka_wrote_them() -> None:
    pointer = TopicPointer(TOPIC_ID, ((NodeId(1), NodeId(2)), (NodeId(2),)))
    assert json.loads(topic_nodes.encode_pointer(pointer)) == {
        "version": 1,
        "topic_id": "ASNFZ4mrze8BI0VniavN7w",
        "partitions": {"0": [1, 2], "1": [2]},
    }
    state = PartitionState(NodeId(1), LeaderEpoch(5), (ReplicaIncarnation(NodeId(1), 77),))
    assert json.loads(topic_nodes.encode_state(state)) == {
        "version": 1,
        "leader": 1,
        "leader_epoch": 5,
        "isr": [[1, 77]],
        "eligible": [],
    }


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"leader":1,"leader_epoch":5,"isr":[[1]],"eligible":[]}',
        b'{"version":1,"leader":1,"leader_epoch":5,"isr":[1],"eligible":[]}',
        b'{"version":1,"leader":1,"leader_epoch":5,"isr":[[1,true]],"eligible":[]}',
        b'{"version":1,"leader":1,"leader_epoch":5,"isr":[]}',
        b'{"version":1,"leader":"1","leader_epoch":5,"isr":[],"eligible":[]}',
    ],
)
def test_state_that_is_not_one_is_damage(data: bytes) -> None:
    with pytest.raises(NodeDamaged):
        topic_nodes.decode_state("/path", data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"topic_id":"short","partitions":{"0":[1]}}',
        b'{"version":1,"topic_id":"ASNFZ4mrze8BI0VniavN7w","partitions":{"1":[1]}}',
        b'{"version":1,"topic_id":"ASNFZ4mrze8BI0VniavN7w","partitions":{"0":["1"]}}',
    ],
)
def test_pointer_that_is_not_one_is_damage(data: bytes) -> None:
    with pytest.raises(NodeDamaged):
        topic_nodes.decode_pointer("/path", data)


def test_removal_takes_away_all_that_creation_made_children_first() -> None:
    state = PartitionState(NodeId(1), LeaderEpoch(0), ())
    made = topic_nodes.creation("orders", TopicPointer(TOPIC_ID, ((NodeId(1),),) * 3), [state] * 3, b"{}")
    removed = topic_nodes.removal(TopicDeletion("orders", TOPIC_ID, 3), 7)
    made_paths = [operation.path for operation in made if isinstance(operation, CreateNode)]
    removed_paths = [operation.path for operation in removed if isinstance(operation, DeleteNode)]
    assert sorted(made_paths) == sorted(removed_paths)
    assert len(made_paths) == len(made)
    for path in made_paths:
        parent = parent_of(path)
        if parent in made_paths:
            assert made_paths.index(parent) < made_paths.index(path)
            assert removed_paths.index(path) < removed_paths.index(parent)
    assert removed[0] == CheckNode(layout.topic_path("orders"), 7)
    assert removed[1].path == layout.deleted_topic_path(TOPIC_ID)


def test_deletion_note_reads_back_with_the_brokers_that_may_hold_directories() -> None:
    replicas = ((NodeId(3), NodeId(1)), (NodeId(1), NodeId(2)))
    deletion = TopicDeletion.of("orders", TopicPointer(TOPIC_ID, replicas))
    assert deletion == TopicDeletion("orders", TOPIC_ID, 2, (NodeId(1), NodeId(2), NodeId(3)))
    assert topic_nodes.decode_deletion("/path", TOPIC_ID, topic_nodes.encode_deletion(deletion)) == deletion


def test_deletion_note_of_the_time_of_one_broker_names_none() -> None:
    note = b'{"version":1,"topic":"orders","partitions":3}'
    assert topic_nodes.decode_deletion("/path", TOPIC_ID, note) == TopicDeletion("orders", TOPIC_ID, 3)
