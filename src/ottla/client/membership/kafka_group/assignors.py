"""The assignors of a classic group, Kafka's `range` and `roundrobin`: its leader gives each member its partitions.

A new assignor is a function here, and an entry of `ASSIGNORS`.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import cycle
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias


class Subscriber(NamedTuple):
    """A member of the group and the topics that it reads.  A static member has an instance id."""

    member_id: str
    instance_id: str | None
    topics: Collection[str]


# Member id -> topic -> partitions; every member has an entry.
Shares: TypeAlias = dict[str, dict[str, list[int]]]
Assign: TypeAlias = Callable[[Sequence[Subscriber], Mapping[str, int]], Shares]


def assign_range(members: Sequence[Subscriber], partitions_counts: Mapping[str, int]) -> Shares:
    """Of each topic a run of partitions for each of its members; the first ones get one more."""
    shares: Shares = {member.member_id: {} for member in members}
    ordered = _in_order(members)
    for topic in _topics(members, partitions_counts):
        takers = [member.member_id for member in ordered if topic in member.topics]
        smaller, larger_count = divmod(partitions_counts[topic], len(takers))
        first = 0
        for position, member_id in enumerate(takers):
            end = first + smaller + (position < larger_count)
            if end > first:
                shares[member_id][topic] = list(range(first, end))
            first = end
    return shares


def assign_round_robin(members: Sequence[Subscriber], partitions_counts: Mapping[str, int]) -> Shares:
    """All partitions in their order, one after the other to the next member that reads the topic."""
    shares: Shares = {member.member_id: {} for member in members}
    turns = cycle(_in_order(members))
    for topic in _topics(members, partitions_counts):
        for partition in range(partitions_counts[topic]):
            member = next(each for each in turns if topic in each.topics)
            shares[member.member_id].setdefault(topic, []).append(partition)
    return shares


def _in_order(members: Sequence[Subscriber]) -> list[Subscriber]:
    """A static member that returns under a new id keeps its place."""
    return sorted(members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id))


def _topics(members: Sequence[Subscriber], partitions_counts: Mapping[str, int]) -> list[str]:
    """The existing topics that at least one member reads."""
    return sorted({topic for member in members for topic in member.topics} & partitions_counts.keys())


# In the order in which they are preferred.
ASSIGNORS: Final[Mapping[str, Assign]] = MappingProxyType({"range": assign_range, "roundrobin": assign_round_robin})
