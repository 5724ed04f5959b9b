"""Which partitions change their broker when the brokers of one machine become more or fewer.  Pure.

The preferred leaders of each topic are spread evenly: two brokers differ by one at most.  So do the brokers' numbers of
all leaders, as far as that is free: a topic of P partitions over N brokers gives each of them P // N, and the remaining
P % N, its *extras*, go where they even out the sum.  Among all plans that do both, one with the fewest moves of leaders
is made: a flow of least cost from topics to brokers, in which an extra is free where the topic has it already.

A partition with several replicas gets as many as there are brokers at most; those that leave are the ones that are
worth least (out of sync before eligible before in sync).  A log that is moved is moved to a broker that has none of its
partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.model.identifiers import NodeId, TopicPartition


class PartitionCopies(NamedTuple):
    """The logs of a partition: `replicas` in their order in the tree; the sets are of those whose log is complete."""

    topic_partition: TopicPartition
    replicas: tuple[NodeId, ...]
    leader: NodeId
    in_sync: frozenset[NodeId]
    eligible: frozenset[NodeId] = frozenset()

    @property
    def home(self) -> NodeId:
        """The broker that leads, or would: its preferred leader if that may, else the present one."""
        able = self.in_sync or self.eligible or frozenset(self.replicas)
        if self.replicas[0] in able:
            return self.replicas[0]
        return self.leader if self.leader in able else next(each for each in self.replicas if each in able)

    def worth(self, node_id: NodeId) -> int:
        """0 for the logs that have every acknowledged record; the greatest for those that are known to lack some."""
        return 0 if node_id in self.in_sync else 1 if node_id in self.eligible else 2


class PlannedPartition(NamedTuple):
    """Where the logs of a partition will be.

    `sources` has for each replica, the preferred leader first, the broker that has its log now; None for one that
    starts without a log and fetches it from the leader.
    """

    topic_partition: TopicPartition
    before: tuple[NodeId, ...]
    sources: Mapping[NodeId, NodeId | None]

    @property
    def replicas(self) -> tuple[NodeId, ...]:
        return tuple(self.sources)

    @property
    def moves(self) -> list[tuple[NodeId, NodeId]]:
        """(from, to) of each log that changes its broker; no broker is in both columns."""
        return [(source, to) for to, source in self.sources.items() if source is not None and source != to]

    @property
    def dropped(self) -> list[NodeId]:
        """Brokers whose log of the partition is not used any more."""
        used = set(self.sources.values())
        return [node_id for node_id in self.before if node_id not in used]

    @property
    def is_lowered(self) -> bool:
        """Whether it gets fewer replicas than it had."""
        return len(self.sources) < len(self.before)


def plan_resize(
    partitions: Sequence[PartitionCopies], current: Collection[NodeId], wanted: Sequence[NodeId]
) -> list[PlannedPartition]:
    """The partitions that change, in order; none while the brokers are the same.

    `wanted` are the brokers from now on, at least one, each once.
    """
    assert wanted
    assert len(set(wanted)) == len(wanted)
    if set(current) == set(wanted):
        return []
    topics: dict[str, list[PartitionCopies]] = defaultdict(list)
    for each in sorted(partitions):
        topics[each.topic_partition.topic].append(each)
    homes = {topic: Counter(each.home for each in found) for topic, found in topics.items()}
    quotas = _Quotas(homes, wanted).settled()
    counts = Counter(
        node_id for each in partitions for node_id in each.replicas if len(each.replicas) > 1 and node_id in wanted
    )
    planned: list[PlannedPartition] = []
    for topic, found in topics.items():
        leaders = _leaders(found, quotas[topic])
        for each in found:
            sources = _sources(each, leaders[each.topic_partition], wanted, counts)
            after = PlannedPartition(each.topic_partition, each.replicas, sources)
            if after.replicas != each.replicas or after.moves:
                planned.append(after)
    return planned


class _Quotas:
    """How many leaders of each topic each broker gets.

    Successive shortest paths: each extra is placed so that the cost of all grows least, moving extras that were placed
    before where that is cheaper.  A broker takes at most `_room` extras.
    """

    def __init__(self, homes: Mapping[str, Mapping[NodeId, int]], wanted: Sequence[NodeId]) -> None:
        self._wanted: Final = wanted
        self._shares: Final = {topic: divmod(sum(count.values()), len(wanted)) for topic, count in homes.items()}
        # Where a topic has more than its share already: an extra that it keeps there is no move.
        self._free: Final = {
            topic: {node_id for node_id in wanted if count.get(node_id, 0) > self._shares[topic][0]}
            for topic, count in homes.items()
        }
        self._placed: Final[dict[str, set[NodeId]]] = {topic: set() for topic in homes}
        # For each pair of brokers the topics whose extra could go from the first to the second, by what it would cost.
        self._movable: Final[dict[tuple[NodeId, NodeId], dict[int, set[str]]]] = defaultdict(
            lambda: {-1: set(), 0: set(), 1: set()}
        )
        # The least of these costs, of the pairs that have such topics.
        self._steps: Final[dict[NodeId, dict[NodeId, int]]] = {node_id: {} for node_id in wanted}
        self._load: Final = Counter[NodeId]()
        self._room: Final = self._rooms()

    def settled(self) -> dict[str, dict[NodeId, int]]:
        for topic, (_, extras_count) in sorted(self._shares.items()):
            for _ in range(extras_count):
                self._place(topic)
        return {
            topic: {node_id: share + (node_id in self._placed[topic]) for node_id in self._wanted}
            for topic, (share, _) in self._shares.items()
        }

    def _rooms(self) -> dict[NodeId, int]:
        """The extras of all topics, divided evenly; the brokers with the most free ones take the remainder."""
        share, remainder = divmod(sum(extras for _, extras in self._shares.values()), len(self._wanted))
        demand = Counter(node_id for topic, free in self._free.items() if self._shares[topic][1] for node_id in free)
        order = sorted(self._wanted, key=lambda node_id: (-demand[node_id], self._wanted.index(node_id)))
        return {node_id: share + (place < remainder) for place, node_id in enumerate(order)}

    def _cost(self, topic: str, node_id: NodeId) -> int:
        return 0 if node_id in self._free[topic] else 1

    def _place(self, topic: str) -> None:
        placed = self._placed[topic]
        # Free and with room: no path is shorter.
        direct = [each for each in self._wanted if each in self._free[topic] - placed and self._has_room(each)]
        path = [min(direct, key=lambda each: self._load[each])] if direct else self._shortest(topic)
        for source, target in reversed(list(pairwise(path))):
            moved = min(next(topics for _, topics in sorted(self._movable[source, target].items()) if topics))
            self._change(moved, remove=source, add=target)
        self._change(topic, add=path[0])
        self._load[path[-1]] += 1

    def _has_room(self, node_id: NodeId) -> bool:
        return self._load[node_id] < self._room[node_id]

    def _shortest(self, topic: str) -> list[NodeId]:
        """From the broker that gets the extra to one with room, over those that pass one on (Bellman-Ford)."""
        costs = {each: self._cost(topic, each) for each in self._wanted if each not in self._placed[topic]}
        before: dict[NodeId, NodeId] = {}
        changed = list(costs)
        for _ in self._wanted:
            if not changed:
                break
            lowered: dict[NodeId, None] = {}
            for source in changed:
                cost = costs[source]
                for target, step in self._steps[source].items():
                    if cost + step < costs.get(target, len(self._wanted) * 2):
                        costs[target], before[target] = cost + step, source
                        lowered[target] = None
            changed = list(lowered)
        ends = [each for each in self._wanted if each in costs and self._has_room(each)]
        path = [min(ends, key=lambda each: costs[each])]
        while path[0] in before:
            path.insert(0, before[path[0]])
            assert len(path) <= len(self._wanted), "a path of least cost passes a broker once"
        return path

    def _change(self, topic: str, *, add: NodeId, remove: NodeId | None = None) -> None:
        self._index(topic, is_there=False)
        if remove is not None:
            self._placed[topic].remove(remove)
        self._placed[topic].add(add)
        self._index(topic, is_there=True)

    def _index(self, topic: str, *, is_there: bool) -> None:
        placed = self._placed[topic]
        for source in placed:
            for target in self._wanted:
                if target not in placed:
                    cost = self._cost(topic, target) - self._cost(topic, source)
                    movable = self._movable[source, target]
                    (movable[cost].add if is_there else movable[cost].discard)(topic)
                    step = next((each for each in (-1, 0, 1) if movable[each]), None)
                    if step is not None:
                        self._steps[source][target] = step
                    else:
                        self._steps[source].pop(target, None)


def _leaders(partitions: Sequence[PartitionCopies], quotas: Mapping[NodeId, int]) -> dict[TopicPartition, NodeId]:
    """The preferred leader of each partition of a topic: as many for each broker as its quota says."""
    lacking = dict(quotas)
    leaders: dict[TopicPartition, NodeId] = {}

    def choose(partition: PartitionCopies, leader: NodeId) -> None:
        leaders[partition.topic_partition] = leader
        lacking[leader] -= 1

    def others_in_sync(partition: PartitionCopies) -> list[NodeId]:
        return [each for each in partition.in_sync if each != partition.home and lacking.get(each, 0) > 0]

    # Those that another in-sync replica may lead are the last to keep their leader: their logs need not move.
    for each in sorted(partitions, key=lambda each: (len(others_in_sync(each)), each.topic_partition)):
        if lacking.get(each.home, 0) > 0:
            choose(each, each.home)
    for each in partitions:
        if each.topic_partition not in leaders:
            able = others_in_sync(each)
            if able:
                choose(each, max(able, key=lambda node_id: (lacking[node_id], -node_id)))
    for each in partitions:
        if each.topic_partition not in leaders:
            # A broker with a log that is out of sync is the last choice: that log would have to give way.
            choose(each, max(lacking, key=lambda to: (lacking[to] > 0, to not in each.replicas, lacking[to], -to)))
    assert all(count == 0 for count in lacking.values())
    return leaders


def _sources(
    partition: PartitionCopies, leader: NodeId, wanted: Sequence[NodeId], counts: Counter[NodeId]
) -> dict[NodeId, NodeId | None]:
    """Where each replica's log comes from; `counts` has the replicas of each broker, and is kept up to date."""
    replicas_count = min(len(partition.replicas), len(wanted))
    order = {node_id: place for place, node_id in enumerate(partition.replicas)}
    kept = sorted(
        partition.replicas,
        key=lambda each: (
            partition.worth(each),
            each != leader,
            each not in wanted,
            each != partition.home,
            order[each],
        ),
    )[:replicas_count]
    best = [each for each in kept if partition.worth(each) == partition.worth(kept[0])]
    leaving = [each for each in best if each not in wanted]
    if leader in best:
        led_from = leader
    elif leaving:
        led_from = leaving[0]
    elif leader in partition.replicas or replicas_count == len(wanted):
        # Its own log is worth less than one that another broker keeps, or every broker keeps one: that one leads.
        leader = led_from = best[0]
    else:
        led_from = partition.home if partition.home in best else best[0]
    sources: dict[NodeId, NodeId | None] = {leader: led_from}
    others = [each for each in kept if each not in (leader, led_from)]
    sources |= {each: each for each in sorted(others, key=order.__getitem__) if each in wanted}
    homeless: list[NodeId | None] = [each for each in others if each not in wanted]
    # Of a leader whose own log gave way to a better one.
    homeless += [None] * (replicas_count - len(sources) - len(homeless))
    for source in homeless:
        free = [each for each in wanted if each not in sources and each not in partition.replicas]
        free = free or [each for each in wanted if each not in sources]
        target = min(free, key=lambda each: (counts[each], wanted.index(each)))
        sources[target] = target if source is None and target in partition.replicas else source
    if len(partition.replicas) > 1:
        counts.subtract(each for each in partition.replicas if each in wanted)
        counts.update(list(sources))
    return sources
