"""The assignor "uniform", the default: equal shares first, as few moves as possible second (KIP-848).

Partitions are counted over all topics.  Where all members subscribe to the same topics the shares
differ by at most one partition, and no assignment with such shares moves fewer.  Where they do not, see
`balancing`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla.groups.assignors.assignor import Assignment, MemberSpec
from ottla.groups.assignors.balancing import balance
from ottla.groups.assignors.share import Shares


class UniformAssignor:
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
