"""Which brokers get the replicas of new partitions: Kafka's own algorithm.  Pure.

Leaders go round the brokers from a start; the further replicas follow at a shift that grows by one after each round, so
that the load of a broker that dies spreads over all others.  With racks the brokers are taken in an order that changes
the rack at every step, and a partition gets a second replica in a rack only when every rack has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ottla.model.identifiers import NodeId

Racks = Mapping[NodeId, str | None]
"""The live brokers, and the rack of each."""


def placed(
    partitions_count: int,
    replication_factor: int,
    racks: Racks,
    random_below: Callable[[int], int],
) -> list[list[NodeId]]:
    """The replicas of a new topic's partitions; the first of each is its preferred leader."""
    assert 0 < replication_factor <= len(racks)
    start, shift = random_below(len(racks)), random_below(len(racks))
    return _placed(range(partitions_count), replication_factor, racks, start, shift)


def placed_further(present: Sequence[Sequence[NodeId]], added_count: int, racks: Racks) -> list[list[NodeId]]:
    """The replicas of partitions that are added to a topic which has `present`: they continue its round."""
    first = present[0]
    assert 0 < len(first) <= len(racks)
    node_ids = sorted(racks)
    start = next((place for place, node_id in enumerate(node_ids) if node_id >= first[0]), 0)
    indexes = range(len(present), len(present) + added_count)
    return _placed(indexes, len(first), racks, start, start)


def _placed(indexes: range, replication_factor: int, racks: Racks, start: int, shift: int) -> list[list[NodeId]]:
    # Racks count only when every broker has one: otherwise those without would get too little, or too much.
    known = {node_id: rack for node_id, rack in racks.items() if rack is not None}
    is_by_rack = len(known) == len(racks)
    order = _by_turns(known) if is_by_rack else sorted(racks)
    racks_count = len(set(known.values())) if is_by_rack else 1
    found: list[list[NodeId]] = []
    for index in indexes:
        if index > 0 and index % len(order) == 0:
            shift += 1
        first = (index + start) % len(order)
        replicas = [order[first]]
        step = 0
        while len(replicas) < replication_factor:
            candidate = order[_place(first, shift * racks_count, step, len(order))]
            step += 1
            used = {racks[node_id] for node_id in replicas}
            if candidate not in replicas and (
                not is_by_rack or len(used) == racks_count or racks[candidate] not in used
            ):
                replicas.append(candidate)
        found.append(replicas)
    return found


def _place(first: int, shift: int, step: int, brokers_count: int) -> int:
    """The place of a further replica: never that of the first one, and each other place once in a round of steps."""
    return (first + 1 + (shift + step) % (brokers_count - 1)) % brokers_count


def _by_turns(racks: Mapping[NodeId, str]) -> list[NodeId]:
    """The brokers in an order that takes one of each rack in turn."""
    waiting: dict[str, list[NodeId]] = {}
    for node_id in sorted(racks):
        waiting.setdefault(racks[node_id], []).append(node_id)
    order: list[NodeId] = []
    for turn in range(max(len(members) for members in waiting.values())):
        order += [waiting[rack][turn] for rack in sorted(waiting) if turn < len(waiting[rack])]
    return order
