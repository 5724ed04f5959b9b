"""The assignor "range": contiguous partitions of each topic, one run for each member (KIP-848).

A member's place in the order gives it the same partition numbers of every topic with equal partition count and
subscribers, so equal keys of two such topics reach one member: joins need that.  Members with an instance id come
first, by that id, so a restarted one keeps its place; the others follow by member id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla.groups.assignors.assignor import Assignment, MemberSpec


class RangeAssignor:
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
