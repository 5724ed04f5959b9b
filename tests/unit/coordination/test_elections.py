"""Who leads after a start, as a rule without a tree."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.coordination.elections import after_start
from ottla.coordination.topics_view import Partition, Topic, TopicsView
from ottla.model.identifiers import LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import NO_LEADER, PartitionState, ReplicaIncarnation

SELF, OTHER = NodeId(1), NodeId(2)
NEW_EPOCH = 900


def led_by(leader: NodeId, leader_epoch: int, *, replicas: tuple[NodeId, ...] = (SELF,), index: int = 0) -> Partition:
    in_sync = tuple(ReplicaIncarnation(node, 17) for node in replicas)
    return Partition(index, replicas, PartitionState(leader, LeaderEpoch(leader_epoch), in_sync), 4)


def view_of(*partitions: Partition) -> TopicsView:
    return TopicsView.of(1, {"orders": Topic("orders", UUID(int=2**100), partitions)})


def test_every_partition_gets_a_new_epoch_after_a_crash() -> None:
    view = view_of(led_by(SELF, 0), led_by(SELF, 41, index=1))
    changes = after_start(view, SELF, NEW_EPOCH, {}, was_clean=False)
    assert [change.partition.partition_index for change in changes] == [0, 1]
    assert [change.state.leader_epoch for change in changes] == [1, 42]
    assert {change.state.leader for change in changes} == {SELF}
    assert {change.state.in_sync for change in changes} == {(ReplicaIncarnation(SELF, NEW_EPOCH),)}
    assert all(change.partition.state_version == 4 for change in changes)


def test_nothing_changes_after_a_clean_stop() -> None:
    assert after_start(view_of(led_by(SELF, 0), led_by(SELF, 41, index=1)), SELF, NEW_EPOCH, {}, was_clean=True) == []


def test_partition_without_leader_is_led_again_even_after_a_clean_stop() -> None:
    (change,) = after_start(view_of(led_by(NO_LEADER, 3)), SELF, NEW_EPOCH, {}, was_clean=True)
    assert change.state == PartitionState(SELF, LeaderEpoch(4), (ReplicaIncarnation(SELF, NEW_EPOCH),))


def test_partitions_that_others_hold_too_are_left_alone() -> None:
    view = view_of(
        led_by(SELF, 1, replicas=(SELF, OTHER)), led_by(OTHER, 1, replicas=(OTHER,), index=1), led_by(SELF, 1, index=2)
    )
    changes = after_start(view, SELF, NEW_EPOCH, {}, was_clean=False)
    assert [change.partition.partition_index for change in changes] == [2]


def test_eligible_set_is_emptied_with_the_new_epoch() -> None:
    partition = led_by(SELF, 1)
    stale = partition.state._replace(in_sync=(), eligible=(ReplicaIncarnation(SELF, 17),))
    (change,) = after_start(view_of(partition._replace(state=stale)), SELF, NEW_EPOCH, {}, was_clean=False)
    assert change.state.eligible == ()
    assert change.state.in_sync == (ReplicaIncarnation(SELF, NEW_EPOCH),)


@pytest.mark.parametrize("was_clean", [True, False])
def test_next_epoch_is_above_the_logs_when_the_tree_is_older(was_clean: bool) -> None:
    view = view_of(led_by(SELF, 3), led_by(SELF, 3, index=1))
    log_epochs = {TopicPartition("orders", 0): 7}
    changes = after_start(view, SELF, NEW_EPOCH, log_epochs, was_clean=was_clean)
    assert [change.state.leader_epoch for change in changes] == ([8] if was_clean else [8, 4])
