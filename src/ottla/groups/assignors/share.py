"""Shares during an assignment: the partitions of each member, and the unassigned ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from uuid import UUID

from ottla.groups.assignors.assignor import Assignment, MemberSpec


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
