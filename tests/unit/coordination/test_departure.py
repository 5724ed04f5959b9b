"""A broker that stops in good order hands its partitions over first."""

from __future__ import annotations

import pytest

from ottla.coordination.elections import departed
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import Members, PartitionState, ReplicaIncarnation

OWN = NodeId(1)
REPLICAS = (OWN, NodeId(2), NodeId(3))
LIVE = {OWN: 11, NodeId(2): 12, NodeId(3): 13}


def members(*node_ids: int) -> Members:
    return tuple(ReplicaIncarnation(NodeId(node_id), node_id + 10) for node_id in node_ids)


def state(leader: int, *in_sync: int, eligible: tuple[int, ...] = (), epoch: int = 5) -> PartitionState:
    return PartitionState(NodeId(leader), LeaderEpoch(epoch), members(*in_sync), members(*eligible))


@pytest.mark.parametrize(
    ("before", "min_in_sync", "after"),
    [
        # The next in assignment order leads, in another epoch.
        (state(1, 1, 2, 3), 2, state(2, 2, 3, epoch=6)),
        (state(1, 1, 3), 1, state(3, 3, epoch=6)),
        # A follower leaves, and the leader stays in its epoch.
        (state(2, 1, 2, 3), 2, state(2, 2, 3)),
        # What keeps every committed record stays eligible while the others are too few.
        (state(1, 1, 2), 2, state(2, 2, eligible=(1,), epoch=6)),
        (state(2, 1, 2), 2, state(2, 2, eligible=(1,))),
        (state(1, 1, 2, eligible=(3,)), 3, state(2, 2, eligible=(1, 3), epoch=6)),
    ],
)
def test_others_continue_without_it(before: PartitionState, min_in_sync: int, after: PartitionState) -> None:
    assert departed(REPLICAS, before, OWN, LIVE, min_in_sync) == after


@pytest.mark.parametrize(
    "before",
    [
        state(1, 1),
        state(1, 1, eligible=(2, 3)),
        state(2, 2, 3),
        state(2, 2, eligible=(1,)),
        state(-1),
    ],
)
def test_nothing_changes_where_it_is_alone_or_not_in_sync(before: PartitionState) -> None:
    assert departed(REPLICAS, before, OWN, LIVE, 2) is None


def test_members_that_are_dead_or_in_another_life_do_not_lead() -> None:
    live = {OWN: 11, NodeId(2): 99, NodeId(3): 13}
    assert departed(REPLICAS, state(1, 1, 2, 3), OWN, live, 1) == state(3, 3, epoch=6)
    assert departed(REPLICAS, state(1, 1, 2), OWN, live, 1) is None
