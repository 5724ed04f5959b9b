"""Shares of members with different subscriptions: balanced as far as single moves can.

Afterwards no single move of a partition to another subscriber of its topic makes the two shares more equal.  (Chains of
moves through a third member, which could sometimes do better, are not searched: they would move partitions of
members whose own share does not change.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final
from uuid import UUID

from ottla.groups.assignors.assignor import Assignment, MemberSpec
from ottla.groups.assignors.share import Shares

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
