"""Where replicas should be: few moves that spread them evenly over brokers and racks.  Pure.

Replicas leave brokers that are drained; then no two of a partition are in one rack while another rack has none; then
every broker has as many as any other, give or take one, and of each topic as even a share as can be; then every broker
is the preferred leader of as many partitions.  A replica on a broker that is not live stays, unless that is drained: it
may come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.model.counted import counted
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

Replicas = Mapping[TopicPartition, Sequence[int]]


class CannotPlan(OttlaError):
    """The brokers that remain are too few for the replicas."""

    hint = "start more brokers, or lower the number of replicas"


class Move(NamedTuple):
    """A partition's replicas before and after; `size_bytes` is one replica's."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(node for node in self.after if node not in self.before)

    @property
    def removed(self) -> tuple[int, ...]:
        return tuple(node for node in self.before if node not in self.after)

    @property
    def copied_bytes(self) -> int:
        return self.size_bytes * len(self.added)


def planned(
    replicas: Replicas,
    racks: Mapping[int, str | None],
    sizes_bytes: Mapping[TopicPartition, int],
    *,
    drained: Collection[int] = (),
    spreads: bool = True,
) -> list[Move]:
    """The moves, by partition.  `racks` has the live brokers.

    Without `spreads`, only what is on a drained broker moves.  Raises `CannotPlan`.
    """
    plan = _Plan(replicas, {node: rack for node, rack in racks.items() if node not in drained}, sizes_bytes)
    plan.drain(drained)
    if spreads:
        plan.spread_over_racks()
        plan.spread_over_brokers()
        plan.spread_leaders()
    return [
        Move(partition, tuple(replicas[partition]), tuple(after), sizes_bytes.get(partition, 0))
        for partition, after in sorted(plan.replicas.items())
        if after != list(replicas[partition])
    ]


class _Plan:
    """Replicas as they would be, and counts that follow from them."""

    def __init__(
        self, replicas: Replicas, racks: Mapping[int, str | None], sizes_bytes: Mapping[TopicPartition, int]
    ) -> None:
        self.replicas = {partition: list(nodes) for partition, nodes in replicas.items()}
        self._nodes = sorted(racks)
        # Racks count only when every broker has one, as for new topics.
        self._racks = racks if racks and all(rack is not None for rack in racks.values()) else {}
        self._racks_count = len(set(self._racks.values()))
        self._sizes_bytes = sizes_bytes
        self._counts = Counter(dict.fromkeys(racks, 0))
        self._topics: dict[int, dict[str, set[TopicPartition]]] = {node: {} for node in racks}
        for partition, nodes in self.replicas.items():
            for node in nodes:
                self._put(partition, node)

    def drain(self, drained: Collection[int]) -> None:
        """Another broker in the place of each drained one."""
        for partition in self._by_size(self.replicas):
            for node in [node for node in self.replicas[partition] if node in drained]:
                candidates = [other for other in self._nodes if other not in self.replicas[partition]]
                if not candidates:
                    count = len(self.replicas[partition])
                    raise CannotPlan(
                        f"{partition} has {counted(count, 'replica')}, for {counted(len(self._nodes), 'broker')}"
                    )
                self._replace(partition, node, self._best(partition, node, candidates))

    def spread_over_racks(self) -> None:
        for partition in sorted(self.replicas):
            while (node := self._crowded(partition)) is not None:
                others = [
                    other
                    for other in self._nodes
                    if other not in self.replicas[partition] and self._rack_is_free(partition, other)
                ]
                if not others:
                    break
                self._replace(partition, node, self._best(partition, node, others))

    def spread_over_brokers(self) -> None:
        """Move from a fuller broker to an emptier one while the counts differ by two or more.

        Each move lessens the sum of the squares of the counts, so there is an end.
        """
        while self._move_one():
            pass

    def spread_leaders(self) -> None:
        """The preferred leaders, by another order of the replicas, which copies nothing."""
        first: dict[int, set[TopicPartition]] = {node: set() for node in self._nodes}
        for partition, nodes in self.replicas.items():
            if nodes[0] in first:
                first[nodes[0]].add(partition)
        while True:
            found = self._better_leader(first)
            if found is None:
                return
            partition, node = found
            nodes = self.replicas[partition]
            first[nodes[0]].discard(partition)
            first[node].add(partition)
            nodes.remove(node)
            nodes.insert(0, node)

    def _better_leader(self, first: Mapping[int, set[TopicPartition]]) -> tuple[TopicPartition, int] | None:
        fullest = sorted(self._nodes, key=lambda node: (-len(first[node]), node))
        for source in fullest:
            for partition in sorted(first[source]):
                nodes = [node for node in self.replicas[partition] if node in first]
                target = min(nodes, key=lambda node: (len(first[node]), node))
                if len(first[source]) - len(first[target]) >= 2:
                    return partition, target
        return None

    def _move_one(self) -> bool:
        by_count = sorted(self._nodes, key=lambda node: (self._counts[node], node))
        for source in reversed(by_count):
            for target in by_count:
                if self._counts[source] - self._counts[target] < 2:
                    break
                partition = self._movable(source, target)
                if partition is not None:
                    self._replace(partition, source, target)
                    return True
        return False

    def _movable(self, source: int, target: int) -> TopicPartition | None:
        """The partition to move: of the topic with the most uneven share, and there the smallest one."""
        theirs = self._topics[target]
        topics = sorted(
            self._topics[source], key=lambda name: (len(theirs.get(name, ())) - len(self._topics[source][name]), name)
        )
        for name in topics:
            for partition in self._by_size(self._topics[source][name]):
                if target not in self.replicas[partition] and self._keeps_racks(partition, source, target):
                    return partition
        return None

    def _keeps_racks(self, partition: TopicPartition, source: int, target: int) -> bool:
        """Whether the partition is in no fewer racks afterwards."""
        racks = self._racks
        if not racks:
            return True
        others = {racks.get(node) for node in self.replicas[partition] if node != source}
        return racks[target] not in others or racks[source] in others

    def _crowded(self, partition: TopicPartition) -> int | None:
        """A replica that shares its rack while a rack has none, the last in order; None when all is well."""
        nodes = [node for node in self.replicas[partition] if node in self._racks]
        racks = [self._racks[node] for node in nodes]
        if len(set(racks)) in (len(racks), self._racks_count):
            return None
        return next(node for node, rack in zip(reversed(nodes), reversed(racks), strict=True) if racks.count(rack) > 1)

    def _rack_is_free(self, partition: TopicPartition, node: int) -> bool:
        return self._racks[node] not in {self._racks.get(other) for other in self.replicas[partition]}

    def _best(self, partition: TopicPartition, leaving: int, candidates: Sequence[int]) -> int:
        """In a rack without a replica if there is one, then the broker with the fewest replicas."""
        used = {self._racks.get(node) for node in self.replicas[partition] if node != leaving}
        topic = partition.topic

        def cost(node: int) -> tuple[bool, int, int, int]:
            is_shared = bool(self._racks) and self._racks[node] in used
            return is_shared, self._counts[node], len(self._topics[node].get(topic, ())), node

        return min(candidates, key=cost)

    def _replace(self, partition: TopicPartition, node: int, other: int) -> None:
        nodes = self.replicas[partition]
        nodes[nodes.index(node)] = other
        if node in self._topics:
            self._counts[node] -= 1
            self._topics[node][partition.topic].discard(partition)
        self._put(partition, other)

    def _put(self, partition: TopicPartition, node: int) -> None:
        if node in self._topics:
            self._counts[node] += 1
            self._topics[node].setdefault(partition.topic, set()).add(partition)

    def _by_size(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return sorted(partitions, key=lambda each: (self._sizes_bytes.get(each, 0), each))
