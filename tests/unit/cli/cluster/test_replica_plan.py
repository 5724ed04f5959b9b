"""Plans of moves: even, with few of them, and over racks."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ottla.cli.cluster.replica_plan import CannotPlan, Move, planned
from ottla.model.identifiers import TopicPartition

Table = dict[TopicPartition, list[int]]


def table(*replicas: str, topic: str = "t") -> Table:
    """`12`: the replicas of a partition, brokers 1 and 2."""
    return {TopicPartition(topic, index): [int(digit) for digit in nodes] for index, nodes in enumerate(replicas)}


def after(before: Table, moves: list[Move]) -> Table:
    return {**before, **{move.partition: list(move.after) for move in moves}}


def counts(replicas: Table) -> Counter[int]:
    return Counter(node for nodes in replicas.values() for node in nodes)


def without_racks(count: int) -> dict[int, str | None]:
    return dict.fromkeys(range(1, count + 1))


@pytest.mark.parametrize(
    "before",
    [
        table("123", "231", "312"),
        table("12", "23", "31"),
        table("1", "2", "3"),
        table("12"),
        {},
    ],
)
def test_what_is_even_stays(before: Table) -> None:
    assert planned(before, without_racks(3), {}) == []


def test_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    before = table(*["12", "23", "31"] * 4)
    moves = planned(before, without_racks(4), {})
    assert counts(after(before, moves)) == {1: 6, 2: 6, 3: 6, 4: 6}
    copied = [node for move in moves for node in move.added]
    assert copied == [4] * 6


def test_smallest_partitions_move() -> None:
    before = table("1", "1", "1", "1")
    sizes = {TopicPartition("t", index): size for index, size in enumerate((400, 100, 300, 200))}
    moves = planned(before, without_racks(2), sizes)
    assert [(move.partition.partition, move.copied_bytes) for move in moves] == [(1, 100), (3, 200)]


def test_every_topic_is_spread() -> None:
    before = {**table(*["1"] * 4, topic="a"), **table(*["1"] * 4, topic="b")}
    spread = after(before, planned(before, without_racks(2), {}))
    for topic in ("a", "b"):
        assert counts({key: nodes for key, nodes in spread.items() if key.topic == topic}) == {1: 2, 2: 2}


def test_leaders_are_spread_by_another_order_alone() -> None:
    before = table("123", "123", "123")
    moves = planned(before, without_racks(3), {})
    assert sorted(nodes[0] for nodes in after(before, moves).values()) == [1, 2, 3]
    assert all(not move.added and not move.removed for move in moves)


def test_drained_broker_has_nothing_left() -> None:
    before = table("12", "23", "31", "12")
    moves = planned(before, without_racks(4), {}, drained=[2], spreads=False)
    assert 2 not in counts(after(before, moves))
    assert {move.partition.partition for move in moves} == {0, 1, 3}
    assert all(len(set(move.after)) == 2 for move in moves)


def test_dead_broker_is_drained_too_and_keeps_its_replicas_otherwise() -> None:
    live: dict[int, str | None] = {1: None, 2: None, 4: None}
    before = table("13", "23", "41")
    kept = after(before, planned(before, live, {}))
    assert [3 in nodes for nodes in kept.values()] == [True, True, False]
    assert 3 not in counts(after(before, planned(before, live, {}, drained=[3])))


def test_too_few_brokers_for_the_replicas_are_told() -> None:
    with pytest.raises(CannotPlan, match="t-0 has 2 replicas, for 1 broker"):
        planned(table("12"), without_racks(2), {}, drained=[1])


def test_replicas_are_put_into_racks_without_one() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    before = table("12", "34", "13", "24")
    spread = after(before, planned(before, racks, {}))
    assert all({racks[node] for node in nodes} == {"a", "b"} for nodes in spread.values())
    assert set(counts(spread).values()) == {2}


def test_broker_without_a_rack_makes_racks_count_for_nothing() -> None:
    before = table("12", "34")
    assert planned(before, {1: "a", 2: "a", 3: "b", 4: None}, {}) == []


def test_drained_replica_goes_to_a_rack_of_its_own() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "a", 4: "b"}
    moves = planned(table("12"), racks, {}, drained=[2], spreads=False)
    assert [move.after for move in moves] == [(1, 4)]


@pytest.mark.parametrize("seed", range(30))
def test_plan_of_any_cluster_is_even_keeps_counts_and_is_the_last(seed: int) -> None:
    chance = random.Random(seed)
    brokers = range(1, chance.randint(2, 9))
    racks_count = chance.randint(0, 3)
    racks: dict[int, str | None] = {node: f"r{node % racks_count}" if racks_count else None for node in brokers}
    before: Table = {}
    for number in range(chance.randint(1, 5)):
        factor = chance.randint(1, len(brokers))
        for index in range(chance.randint(1, 20)):
            before[TopicPartition(f"t{number}", index)] = chance.sample(list(brokers), factor)
    sizes = {key: chance.randint(0, 1_000) for key in before}
    moves = planned(before, racks, sizes)
    spread = after(before, moves)
    for key, nodes in spread.items():
        assert len(set(nodes)) == len(nodes) == len(before[key])
        if racks_count:
            all_racks = len(set(racks.values()))
            assert len({racks[node] for node in nodes}) == min(len(nodes), all_racks)
    if racks_count < 2:
        found = counts(spread)
        assert max(found[node] for node in brokers) - min(found[node] for node in brokers) <= 1
    assert planned(spread, racks, sizes) == []


def test_large_cluster_is_planned_within_seconds() -> None:
    before = {
        TopicPartition(f"topic-{number % 100}", number // 100): [1 + (number + shift) % 6 for shift in range(3)]
        for number in range(1_600)
    }
    moves = planned(before, without_racks(8), {})
    assert set(counts(after(before, moves)).values()) == {600}
