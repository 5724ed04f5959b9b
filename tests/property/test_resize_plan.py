"""Any brokers after any others: each topic's leaders are even, no log is lost, and no more move than that takes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from ottla.maintenance.resize_plan import PartitionCopies, PlannedPartition, plan_resize
from ottla.model.identifiers import NodeId, TopicPartition

from .property_settings import example_settings

BROKERS_MAX = 6
NODES = [NodeId(number) for number in range(1, BROKERS_MAX + 1)]
seeds = st.integers(0, 2**32)


def follow(partitions: Sequence[PartitionCopies], planned: Sequence[PlannedPartition]) -> list[PartitionCopies]:
    changed = {each.topic_partition: each for each in planned}
    found: list[PartitionCopies] = []
    for each in partitions:
        plan = changed.get(each.topic_partition)
        if plan is not None:
            in_sync = [target for target, source in plan.sources.items() if source in each.in_sync]
            each = PartitionCopies(each.topic_partition, plan.replicas, plan.replicas[0], frozenset(in_sync))
        found.append(each)
    return found


def topics(rng: random.Random, nodes: Sequence[NodeId], replicas_max: int) -> list[PartitionCopies]:
    found: list[PartitionCopies] = []
    for number in range(rng.randrange(9)):
        factor = rng.randint(1, min(replicas_max, len(nodes)))
        for index in range(rng.randint(1, 9)):
            replicas = tuple(rng.sample(nodes, factor))
            in_sync = frozenset(each for each in replicas if rng.random() < 0.7)
            eligible = frozenset(replicas) if not in_sync and rng.random() < 0.5 else frozenset[NodeId]()
            name = TopicPartition(f"topic{number}", index)
            found.append(PartitionCopies(name, replicas, rng.choice(replicas), in_sync, eligible))
    return found


def brokers(rng: random.Random) -> list[NodeId]:
    """The first one never goes."""
    return [NodeId(0), *rng.sample(NODES, rng.randrange(len(NODES)))]


@given(seeds)
@example_settings(600)
def test_any_sequence_of_brokers_leaves_each_topic_even_with_few_moves(seed: int) -> None:
    rng = random.Random(seed)
    current = brokers(rng)
    partitions = topics(rng, current, 1)
    for _ in range(5):
        wanted = brokers(rng)
        planned = plan_resize(partitions, current, wanted)
        check_plan(partitions, planned, wanted)
        former, partitions = partitions, follow(partitions, planned)
        if set(current) == set(wanted):
            assert not planned
            continue
        check_even(partitions, wanted)
        moves_count = sum(len(each.moves) for each in planned)
        assert moves_count <= moves_count_max(former, wanted), planned
        current = wanted


def check_even(partitions: Sequence[PartitionCopies], wanted: Sequence[NodeId]) -> None:
    counts: dict[str, Counter[NodeId]] = defaultdict(Counter)
    for each in partitions:
        counts[each.topic_partition.topic][each.replicas[0]] += 1
    for topic, found in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        of_each = [found[node_id] for node_id in wanted]
        assert max(of_each) - min(of_each) <= 1, f"{topic}: {found}"
        assert sum(of_each) == found.total()


def moves_count_max(partitions: Sequence[PartitionCopies], wanted: Sequence[NodeId]) -> int:
    """The logs of brokers that go, and those above an even share, rounded down."""
    bound = 0
    homes: dict[str, Counter[NodeId]] = defaultdict(Counter)
    for each in partitions:
        homes[each.topic_partition.topic][each.home] += 1
    for counts in homes.values():
        share = counts.total() // len(wanted)
        bound += counts.total() - sum(min(counts[node_id], share) for node_id in wanted)
    return bound


@given(seeds)
@example_settings(600)
def test_replicated_partitions_keep_their_best_logs_at_distinct_brokers(seed: int) -> None:
    rng = random.Random(seed)
    current = brokers(rng)
    partitions = topics(rng, current, 4)
    wanted = brokers(rng)
    check_plan(partitions, plan_resize(partitions, current, wanted), wanted)


def check_plan(
    partitions: Sequence[PartitionCopies], planned: Sequence[PlannedPartition], wanted: Sequence[NodeId]
) -> None:
    by_name = {each.topic_partition: each for each in partitions}
    for plan in planned:
        before = by_name[plan.topic_partition]
        used = [source for source in plan.sources.values() if source is not None]
        assert len(set(used)) == len(used), plan
        assert set(used) <= set(before.replicas)
        assert set(plan.replicas) <= set(wanted)
        assert len(plan.replicas) == min(len(before.replicas), len(wanted)), plan
        # The leader's log is one of the best, and no better one is given up for one that is kept.
        led_from = plan.sources[plan.replicas[0]]
        assert led_from is not None
        assert before.worth(led_from) == min(map(before.worth, before.replicas)), plan
        dropped = set(before.replicas) - set(used)
        assert not dropped or max(map(before.worth, used)) <= min(map(before.worth, dropped)), plan
        # What moves goes where no log of the partition stays, and from where none comes.
        sources, targets = {source for source, _ in plan.moves}, {target for _, target in plan.moves}
        assert not sources & targets, plan
        assert not targets & {source for target, source in plan.sources.items() if source == target}, plan
    if planned:
        assert all(set(each.replicas) <= set(wanted) for each in follow(partitions, planned))


@given(seeds)
@example_settings(300)
def test_no_plan_that_is_as_even_moves_fewer_logs(seed: int) -> None:
    """Against all plans, of three brokers and few topics."""
    rng = random.Random(seed)
    current, wanted = [NodeId(1), NodeId(2)], [NodeId(1), NodeId(2), NodeId(3)]
    if rng.random() < 0.5:
        current, wanted = wanted, current
    partitions = [
        PartitionCopies(TopicPartition(f"topic{number}", index), (home,), home, frozenset({home}))
        for number in range(rng.randint(1, 5))
        for index in range(rng.randint(1, 4))
        for home in [rng.choice(current)]
    ]
    moves_count = sum(len(each.moves) for each in plan_resize(partitions, current, wanted))
    assert moves_count == min(even_plans(partitions, wanted))


def even_plans(partitions: Sequence[PartitionCopies], wanted: Sequence[NodeId]) -> Iterator[int]:
    """The moves of every plan in which each topic and the sum of all are even."""
    homes: dict[str, Counter[NodeId]] = defaultdict(Counter)
    for each in partitions:
        homes[each.topic_partition.topic][each.replicas[0]] += 1
    shares = {topic: divmod(counts.total(), len(wanted)) for topic, counts in homes.items()}
    for chosen in product(*(combinations(wanted, extras) for _, extras in shares.values())):
        totals = Counter(dict.fromkeys(wanted, 0))
        moves_count = 0
        for (topic, (share, _)), extras in zip(shares.items(), chosen, strict=True):
            quota = {node_id: share + (node_id in extras) for node_id in wanted}
            totals.update(quota)
            moves_count += homes[topic].total() - sum(min(homes[topic][each], quota[each]) for each in wanted)
        if max(totals.values()) - min(totals.values()) <= 1:
            yield moves_count
