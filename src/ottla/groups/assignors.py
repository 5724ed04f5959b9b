"""Which member of a consumer group gets which partition: the assignors that run in the broker (KIP-848)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from uuid import UUID

# Topic id -> partitions.  A topic without partitions is left out, so that two equal assignments compare equal.
Assignment = Mapping[UUID, frozenset[int]]


class MemberSpec(NamedTuple):
    """One member, as far as an assignor needs to know it."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    """The subscribed topics that exist."""
    current: Assignment
    """Its target until now: a sticky assignor keeps as much of that as it can."""


class Assignor(Protocol):
    """A pure function from a group to its assignment, under a name that clients may request."""

    @property
    def name(self) -> str: ...

    def assign(self, members: Sequence[MemberSpec], partitions_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
        """Member id -> its new target.  Every member has an entry; every subscribed partition is in exactly one of
        them.

        `partitions_counts` holds every topic that a member subscribes to, in the order in which topics are assigned.
        The same arguments give the same result in every process.
        """
        ...


class Shares:
    """Starts from the partitions that members may keep: subscribed, existing, and held by no earlier member."""

    def __init__(self, members: Sequence[MemberSpec], partitions_counts: Mapping[UUID, int]) -> None:
        self._partitions_counts = partitions_counts
        self._holders: dict[UUID, dict[int, str]] = {topic_id: {} for topic_id in partitions_counts}
        self._shares: dict[str, dict[UUID, set[int]]] = {}
        self._sizes: dict[str, int] = {}
        for member in members:
            self._shares[member.member_id] = {}
            self._sizes[member.member_id] = 0
            self._keep(member)

    def _keep(self, member: MemberSpec) -> None:
        for topic_id, partitions in member.current.items():
            if topic_id not in member.topic_ids or topic_id not in self._partitions_counts:
                continue
            holders, count = self._holders[topic_id], self._partitions_counts[topic_id]
            for partition in partitions:
                if partition < count and partition not in holders:
                    self.give(member.member_id, topic_id, partition)

    def size(self, member_id: str) -> int:
        return self._sizes[member_id]

    def holders_of(self, topic_id: UUID) -> Mapping[int, str]:
        return self._holders[topic_id]

    def give(self, member_id: str, topic_id: UUID, partition: int) -> None:
        assert partition not in self._holders[topic_id], "a partition has one holder"
        self._holders[topic_id][partition] = member_id
        self._shares[member_id].setdefault(topic_id, set()).add(partition)
        self._sizes[member_id] += 1

    def take(self, topic_id: UUID, partition: int) -> str:
        member_id = self._holders[topic_id].pop(partition)
        self._shares[member_id][topic_id].remove(partition)
        self._sizes[member_id] -= 1
        return member_id

    def trim(self, member_id: str, quota: int) -> None:
        """Removes the partitions above the quota: the highest numbers of the topics of which the member has most."""
        topics = self._shares[member_id]
        largest_first = [(-len(partitions), -topic_id.int, topic_id) for topic_id, partitions in topics.items()]
        heapify(largest_first)
        by_number: dict[UUID, list[int]] = {}
        for _ in range(self._sizes[member_id] - quota):
            size, order, topic_id = largest_first[0]
            if topic_id not in by_number:
                by_number[topic_id] = sorted(topics[topic_id])
            self.take(topic_id, by_number[topic_id].pop())
            heapreplace(largest_first, (size + 1, order, topic_id))

    def free_partitions(self) -> list[tuple[UUID, int]]:
        """All unassigned partitions, by topic in the given order, then by number."""
        return list(self._free())

    def _free(self) -> Iterator[tuple[UUID, int]]:
        for topic_id, count in self._partitions_counts.items():
            holders = self._holders[topic_id]
            if len(holders) < count:
                for partition in range(count):
                    if partition not in holders:
                        yield topic_id, partition

    def as_assignments(self) -> dict[str, Assignment]:
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items() if partitions}
            for member_id, topics in self._shares.items()
        }


# Shares of members with different subscriptions: balanced as far as single moves can.
#
# Afterwards no single move of a partition to another subscriber of its topic makes the two shares more equal.  (Chains
# of moves through a third member, which could sometimes do better, are not searched: they would move partitions of
# members whose own share does not change.)

# Every move lowers the sum of the squared shares, so the rounds terminate, mostly after two.  Unusual subscriptions of
# thousands of members may need many; they are cut off here, slightly unbalanced, since other groups wait meanwhile.
ROUNDS_MAX: Final = 32


def balance(members: Sequence[MemberSpec], partitions_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    subscribers: dict[UUID, list[str]] = {topic_id: [] for topic_id in partitions_counts}
    for member in members:
        for topic_id in member.topic_ids:
            subscribers[topic_id].append(member.member_id)
    topic_ids = _fewest_takers_first(partitions_counts, subscribers)
    shares = Shares(members, partitions_counts)
    _give_free(shares, topic_ids, subscribers)
    for _ in range(ROUNDS_MAX):
        moves_count = sum(_level(shares, topic_id, subscribers[topic_id]) for topic_id in topic_ids)
        if moves_count == 0:
            break
    return shares.as_assignments()


def _fewest_takers_first(partitions_counts: Mapping[UUID, int], subscribers: Mapping[UUID, list[str]]) -> list[UUID]:
    """Topics with the most partitions per subscriber first: those with many subscribers are left to fill the gaps."""
    wanted = [topic_id for topic_id in partitions_counts if subscribers[topic_id]]
    wanted.sort(key=lambda topic_id: -partitions_counts[topic_id] / len(subscribers[topic_id]))
    return wanted


def _give_free(shares: Shares, topic_ids: Sequence[UUID], subscribers: Mapping[UUID, list[str]]) -> None:
    free: dict[UUID, list[int]] = {}
    for topic_id, partition in shares.free_partitions():
        free.setdefault(topic_id, []).append(partition)
    for topic_id in topic_ids:
        if topic_id in free:
            smallest_first = [(shares.size(member_id), member_id) for member_id in subscribers[topic_id]]
            heapify(smallest_first)
            for partition in free[topic_id]:
                size, member_id = smallest_first[0]
                shares.give(member_id, topic_id, partition)
                heapreplace(smallest_first, (size + 1, member_id))


def _level(shares: Shares, topic_id: UUID, subscribers: Sequence[str]) -> int:
    """Moves this topic's partitions from large shares to small ones while that helps; returns the count of moves."""
    smallest_first = [(shares.size(member_id), member_id) for member_id in subscribers]
    heapify(smallest_first)
    held: dict[str, list[int]] = {}
    for partition, member_id in sorted(shares.holders_of(topic_id).items()):
        held.setdefault(member_id, []).append(partition)
    largest_first = [(-shares.size(member_id), member_id) for member_id in held]
    heapify(largest_first)
    moves_count = 0
    while largest_first:
        size, giver = -largest_first[0][0], largest_first[0][1]
        smallest_size, taker = _smallest(shares, smallest_first)
        if size - smallest_size < 2:
            break
        partition = held[giver].pop()
        shares.take(topic_id, partition)
        shares.give(taker, topic_id, partition)
        moves_count += 1
        # A member without partitions of this topic sorts below all members that hold some.
        heapreplace(largest_first, (1 - size if held[giver] else 0, giver))
        heapreplace(smallest_first, (smallest_size + 1, taker))
    return moves_count


def _smallest(shares: Shares, smallest_first: list[tuple[int, str]]) -> tuple[int, str]:
    """The smallest share.

    After its first move a giver's entry is out of date, and is dropped here.  It needs no other: it was the largest
    share when it gave, so no other share ever exceeds it by two, and it receives nothing.
    """
    while True:
        size, member_id = smallest_first[0]
        if shares.size(member_id) == size:
            return size, member_id
        heappop(smallest_first)


class UniformAssignor:
    """The default: equal shares first, as few moves as possible second (KIP-848).

    Partitions are counted over all topics.  Where all members subscribe to the same topics the shares differ by at most
    one partition, and no assignment with such shares moves fewer.  Where they do not, see `balance`.
    """

    name = "uniform"

    def assign(self, members: Sequence[MemberSpec], partitions_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
        if not members:
            return {}
        # By id, since the order in which members were stored differs between a live broker and a restarted one.
        ordered = sorted(members, key=lambda member: member.member_id)
        first_topic_ids = ordered[0].topic_ids
        if all(member.topic_ids == first_topic_ids for member in ordered):
            return _assign_equally(ordered, {t: n for t, n in partitions_counts.items() if t in first_topic_ids})
        return balance(ordered, partitions_counts)


def _assign_equally(members: Sequence[MemberSpec], partitions_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    shares = Shares(members, partitions_counts)
    smaller, larger_count = divmod(sum(partitions_counts.values()), len(members))
    quotas = _quotas(shares, [member.member_id for member in members], smaller, larger_count)
    for member_id, quota in quotas.items():
        shares.trim(member_id, quota)
    hungry = deque(member_id for member_id, quota in quotas.items() if shares.size(member_id) < quota)
    for topic_id, partition in shares.free_partitions():
        # One partition for each in turn, so that the partitions of a busy topic are spread.
        member_id = hungry.popleft()
        shares.give(member_id, topic_id, partition)
        if shares.size(member_id) < quotas[member_id]:
            hungry.append(member_id)
    assert not hungry, "the quotas add up to all partitions"
    return shares.as_assignments()


def _quotas(shares: Shares, member_ids: Sequence[str], smaller: int, larger_count: int) -> dict[str, int]:
    """The members with the larger quota: first those that already hold that many.

    A member keeps min(what it has, its quota) partitions.  A larger quota saves a move only where a member has more
    than the smaller one, so giving the larger quotas to such members keeps as many partitions in place as possible.
    """
    by_surplus = sorted(member_ids, key=lambda member_id: shares.size(member_id) <= smaller)
    return {member_id: smaller + (index < larger_count) for index, member_id in enumerate(by_surplus)}


class RangeAssignor:
    """Contiguous partitions of each topic, one run for each member (KIP-848).

    A member's place in the order gives it the same partition numbers of every topic with equal partition count and
    subscribers, so equal keys of two such topics reach one member: joins need that.  Members with an instance id come
    first, by that id, so a restarted one keeps its place; the others follow by member id.
    """

    name = "range"

    def assign(self, members: Sequence[MemberSpec], partitions_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
        ordered = sorted(members, key=_place)
        shares: dict[str, dict[UUID, frozenset[int]]] = {member.member_id: {} for member in ordered}
        for topic_id, count in partitions_counts.items():
            subscribers = [member.member_id for member in ordered if topic_id in member.topic_ids]
            if subscribers:
                for member_id, partitions in _deal_ranges(subscribers, count):
                    shares[member_id][topic_id] = partitions
        return dict(shares)


def _place(member: MemberSpec) -> tuple[bool, str]:
    return (member.instance_id is None, member.instance_id or member.member_id)


def _deal_ranges(subscribers: Sequence[str], partitions_count: int) -> list[tuple[str, frozenset[int]]]:
    """The first `partitions_count % len(subscribers)` members get one more than the others."""
    smaller, larger_count = divmod(partitions_count, len(subscribers))
    dealt = []
    start = 0
    for index, member_id in enumerate(subscribers):
        end = start + smaller + (index < larger_count)
        if end > start:
            dealt.append((member_id, frozenset(range(start, end))))
        start = end
    assert start == partitions_count, "a partition was left over"
    return dealt


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {UniformAssignor.name: UniformAssignor(), RangeAssignor.name: RangeAssignor()}
)
