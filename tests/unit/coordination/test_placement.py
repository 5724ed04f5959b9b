"""Replicas of new partitions are spread over brokers and racks as Apache Kafka spreads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from ottla.coordination.placement import placed, placed_further
from ottla.model.identifiers import NodeId


def brokers(racks: Mapping[int, str | None]) -> dict[NodeId, str | None]:
    return {NodeId(node_id): rack for node_id, rack in racks.items()}


FIVE = brokers(dict.fromkeys(range(5)))
SIX_IN_THREE_RACKS = brokers({0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"})


def from_the_first(_count: int) -> int:
    return 0


def test_leaders_go_round_and_followers_shift_after_each_round() -> None:
    # The expectation of Apache Kafka's AdminTest.testReplicaAssignment.
    assert placed(10, 3, FIVE, from_the_first) == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],
        [4, 0, 1],
        [0, 2, 3],
        [1, 3, 4],
        [2, 4, 0],
        [3, 0, 1],
        [4, 1, 2],
    ]


def test_start_and_shift_are_drawn_below_the_count_of_brokers() -> None:
    asked: list[int] = []

    def drawn(count: int) -> int:
        asked.append(count)
        return 2

    assert placed(2, 2, FIVE, drawn) == [[2, 0], [3, 1]]
    assert asked == [5, 5]


def test_racks_are_taken_in_turn() -> None:
    # The expectation of Apache Kafka's AdminRackAwareTest.
    racks = brokers({0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"})
    assert placed(7, 3, racks, from_the_first) == [
        [0, 3, 1],
        [3, 1, 5],
        [1, 5, 4],
        [5, 4, 2],
        [4, 2, 0],
        [2, 0, 3],
        [0, 4, 2],
    ]


@pytest.mark.parametrize("partitions_count", [6, 12, 30])
@pytest.mark.parametrize("drawn", range(6))
def test_every_rack_has_a_replica_and_every_broker_as_many(partitions_count: int, drawn: int) -> None:
    assignment = placed(partitions_count, 3, SIX_IN_THREE_RACKS, lambda _count: drawn)
    for replicas in assignment:
        assert {SIX_IN_THREE_RACKS[node_id] for node_id in replicas} == {"rack1", "rack2", "rack3"}
        assert len(set(replicas)) == 3
    assert set(Counter(replicas[0] for replicas in assignment).values()) == {partitions_count // 6}
    counts = Counter(node_id for replicas in assignment for node_id in replicas)
    assert set(counts.values()) == {partitions_count // 2}


def test_more_replicas_than_racks_use_every_rack_and_no_broker_twice() -> None:
    for replicas in placed(12, 5, SIX_IN_THREE_RACKS, from_the_first):
        assert len(set(replicas)) == 5
        assert {SIX_IN_THREE_RACKS[node_id] for node_id in replicas} == {"rack1", "rack2", "rack3"}


def test_racks_do_not_count_when_a_broker_has_none() -> None:
    racks = {**SIX_IN_THREE_RACKS, NodeId(6): None}
    assert placed(3, 2, racks, from_the_first) == [[0, 1], [1, 2], [2, 3]]


def test_sole_broker_has_all() -> None:
    assert placed(3, 1, brokers({7: None}), from_the_first) == [[7], [7], [7]]


def test_added_partitions_continue_the_round() -> None:
    # The expectation of Apache Kafka's AddPartitionsTest: five brokers, partition 0 on [0, 1].
    present = [[NodeId(0), NodeId(1)]]
    assert placed_further(present, 2, FIVE) == [[1, 2], [2, 3]]


def test_added_partitions_have_as_many_replicas_as_the_first_also_when_its_leader_is_gone() -> None:
    present = [[NodeId(9), NodeId(1)]]
    assert placed_further(present, 2, FIVE) == [[1, 2], [2, 3]]
