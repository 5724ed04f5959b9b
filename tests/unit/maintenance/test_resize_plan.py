"""Which partitions change their broker with the number of brokers: evenly, and with as few moves as that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.maintenance.resize_plan import PartitionCopies, PlannedPartition, plan_resize
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.partition_state import NO_LEADER

ONE, TWO, THREE, FOUR = (NodeId(number) for number in (1, 2, 3, 4))


def copies(
    topic: str,
    *replicas: Sequence[NodeId],
    in_sync: Mapping[int, Sequence[NodeId]] | None = None,
    eligible: Mapping[int, Sequence[NodeId]] | None = None,
) -> list[PartitionCopies]:
    """Partitions led by their first replica; all in sync unless given."""
    return [
        PartitionCopies(
            TopicPartition(topic, index),
            tuple(each),
            each[0],
            frozenset((in_sync or {}).get(index, each)),
            frozenset((eligible or {}).get(index, ())),
        )
        for index, each in enumerate(replicas)
    ]


def after(partitions: Sequence[PartitionCopies], planned: Sequence[PlannedPartition]) -> list[PartitionCopies]:
    """The partitions as they are when the plan was followed."""
    changed = {each.topic_partition: each for each in planned}
    found = []
    for each in partitions:
        plan = changed.get(each.topic_partition)
        if plan is None:
            found.append(each)
            continue
        in_sync = frozenset(target for target, source in plan.sources.items() if source in each.in_sync)
        found.append(PartitionCopies(each.topic_partition, plan.replicas, plan.replicas[0], in_sync))
    return found


def leaders(partitions: Sequence[PartitionCopies], planned: Sequence[PlannedPartition]) -> dict[str, Counter[NodeId]]:
    counts: dict[str, Counter[NodeId]] = {}
    for each in after(partitions, planned):
        counts.setdefault(each.topic_partition.topic, Counter())[each.replicas[0]] += 1
    return counts


def moves_count(planned: Sequence[PlannedPartition]) -> int:
    return sum(len(each.moves) for each in planned)


def test_one_broker_gives_two_others_their_thirds() -> None:
    partitions = copies("orders", *[[ONE]] * 6)
    planned = plan_resize(partitions, [ONE], [ONE, TWO, THREE])
    assert leaders(partitions, planned) == {"orders": Counter({ONE: 2, TWO: 2, THREE: 2})}
    assert moves_count(planned) == 4


def test_nothing_moves_while_the_brokers_are_the_same() -> None:
    assert plan_resize(copies("orders", *[[ONE]] * 6), [TWO, ONE], [ONE, TWO]) == []


def test_a_broker_that_goes_loses_everything_and_the_others_keep_theirs() -> None:
    partitions = copies("orders", [ONE], [TWO], [THREE], [ONE], [TWO], [THREE])
    planned = plan_resize(partitions, [ONE, TWO, THREE], [ONE, TWO])
    assert [(each.topic_partition.partition, each.moves[0][0]) for each in planned] == [(2, THREE), (5, THREE)]
    assert leaders(partitions, planned) == {"orders": Counter({ONE: 3, TWO: 3})}


def test_topics_of_one_partition_are_spread_over_the_brokers_too() -> None:
    partitions = [each for name in "abcdef" for each in copies(name, [ONE])]
    planned = plan_resize(partitions, [ONE], [ONE, TWO, THREE])
    counts = sum(leaders(partitions, planned).values(), Counter[NodeId]())
    assert counts == Counter({ONE: 2, TWO: 2, THREE: 2})
    assert moves_count(planned) == 4


def test_a_leadership_goes_to_another_replica_in_sync_without_a_move_of_its_log() -> None:
    partitions = copies("orders", [ONE, TWO], [ONE, TWO])
    # A third broker goes, so the leaders are looked at.
    planned = plan_resize(partitions, [ONE, TWO, THREE], [ONE, TWO])
    assert leaders(partitions, planned) == {"orders": Counter({ONE: 1, TWO: 1})}
    assert moves_count(planned) == 0
    assert not any(each.is_lowered for each in planned)


def test_a_partition_has_no_more_replicas_than_there_are_brokers() -> None:
    partitions = copies("orders", [TWO, THREE, ONE])
    (planned,) = plan_resize(partitions, [ONE, TWO, THREE], [ONE, TWO])
    assert planned.is_lowered
    assert set(planned.replicas) == {ONE, TWO}
    assert planned.dropped == [THREE]
    assert not planned.moves


def test_the_log_that_has_all_records_is_kept_where_a_broker_has_one_that_lacks_some() -> None:
    partitions = copies("orders", [TWO, ONE], in_sync={0: [TWO]})
    (planned,) = plan_resize(partitions, [ONE, TWO], [ONE])
    assert planned.sources == {ONE: TWO}
    assert planned.dropped == [ONE]
    assert planned.is_lowered


def test_an_eligible_log_is_worth_more_than_one_out_of_sync() -> None:
    partitions = copies("orders", [TWO, ONE, THREE], in_sync={0: []}, eligible={0: [THREE]})
    (planned,) = plan_resize(partitions, [ONE, TWO, THREE], [ONE])
    assert planned.sources == {ONE: THREE}


def test_a_replica_of_a_broker_that_goes_moves_to_one_that_has_none() -> None:
    partitions = copies("orders", [ONE, FOUR], in_sync={0: [ONE]})
    (planned,) = plan_resize(partitions, [ONE, TWO, FOUR], [ONE, TWO])
    assert planned.sources == {ONE: ONE, TWO: FOUR}


def test_a_log_without_a_leader_is_moved_like_any_other() -> None:
    partition = PartitionCopies(TopicPartition("orders", 0), (TWO,), NO_LEADER, frozenset())
    (planned,) = plan_resize([partition], [ONE, TWO], [ONE])
    assert planned.moves == [(TWO, ONE)]


def test_a_leader_with_a_better_log_of_a_broker_that_goes_gives_its_own_up() -> None:
    partitions = copies("orders", [FOUR, ONE, TWO], in_sync={0: [FOUR]})
    (planned,) = plan_resize(partitions, [ONE, TWO, FOUR], [ONE, TWO])
    assert planned.sources[planned.replicas[0]] == FOUR
    assert set(planned.replicas) == {ONE, TWO}


def test_followers_of_a_broker_that_goes_are_divided_among_the_others() -> None:
    partitions = copies("orders", *[[ONE, FOUR]] * 4, *[[TWO, ONE]] * 4, *[[THREE, TWO]] * 4)
    planned = plan_resize(partitions, [ONE, TWO, THREE, FOUR], [ONE, TWO, THREE])
    counts = Counter(node_id for each in after(partitions, planned) for node_id in each.replicas)
    assert counts == Counter({ONE: 8, TWO: 8, THREE: 8})
    assert [each.moves[0][1] for each in planned] == [THREE] * 4


def test_new_follower_starts_without_a_log_where_a_leader_gave_a_worse_one_up() -> None:
    partitions = copies("orders", [TWO, THREE], in_sync={0: [THREE]})
    (planned,) = plan_resize(partitions, [ONE, TWO, THREE], [ONE, TWO])
    assert sorted(planned.replicas) == [ONE, TWO]
    assert planned.sources[planned.replicas[0]] == THREE
