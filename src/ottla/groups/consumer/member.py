"""A member of a consumer group, in two parts: its own metadata, and its assignment by the broker."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from ottla.groups.assignors import Assignment
from ottla.groups.commands import TopicIdPartitions
from ottla.groups.shared_bytes import BARE_MEMBER_BYTES, bytes_of_texts

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves for a while: it keeps its partitions until it returns or its session ends."""


class MemberMetadata(NamedTuple):
    """The member's own metadata (record key 5).  `topic_names` are sorted, each once."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_pattern: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None


class MemberState(IntEnum):
    """A member's progress towards its target; the numbers are those of the record."""

    STABLE = 0
    """It has its whole target of its member epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions and stays at its old epoch until it reports that it has."""
    UNRELEASED_PARTITIONS = 2
    """It is at the target's epoch, and waits for partitions that others have not revoked yet."""
    UNKNOWN = 127
    """Written by a broker that knows more states than this one."""


class CurrentAssignment(NamedTuple):
    """A member's current assignment (record key 8).

    It may read `assigned`.  It also holds `pending_revocation` until it reports otherwise: no other member gets those.
    `previous_member_epoch` is accepted from a member that missed the answer which raised its epoch.
    """

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: Assignment
    pending_revocation: Assignment

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


NO_METADATA: Final = MemberMetadata()
NOTHING_ASSIGNED: Final = CurrentAssignment(JOIN_EPOCH, -1, MemberState.STABLE, {}, {})


def held_bytes(metadata: MemberMetadata | None) -> int:
    """A member's memory, by its metadata; 0 for None."""
    if metadata is None:
        return 0
    texts = (
        metadata.instance_id,
        metadata.rack_id,
        metadata.client_id,
        metadata.client_host,
        metadata.topic_pattern,
        metadata.server_assignor,
    )
    return BARE_MEMBER_BYTES + bytes_of_texts(texts) + bytes_of_texts(metadata.topic_names)


def from_partitions(topics: Iterable[TopicIdPartitions]) -> Assignment:
    """A peer may name a topic twice: its partitions are merged."""
    assignment: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in topics:
        if partitions:
            assignment[topic_id] = assignment.get(topic_id, frozenset()) | frozenset(partitions)
    return assignment


def to_partitions(assignment: Assignment) -> tuple[TopicIdPartitions, ...]:
    return tuple(TopicIdPartitions(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items())


def common(left: Assignment, right: Assignment) -> Assignment:
    found = {}
    for topic_id, partitions in left.items():
        shared = partitions & right.get(topic_id, frozenset())
        if shared:
            found[topic_id] = shared
    return found


def without(left: Assignment, right: Assignment) -> Assignment:
    found = {}
    for topic_id, partitions in left.items():
        rest = partitions - right.get(topic_id, frozenset())
        if rest:
            found[topic_id] = rest
    return found


def joined(left: Assignment, right: Assignment) -> Assignment:
    found = dict(left)
    for topic_id, partitions in right.items():
        found[topic_id] = found.get(topic_id, frozenset()) | partitions
    return found


def is_within(part: Assignment, whole: Assignment) -> bool:
    return all(partitions <= whole.get(topic_id, frozenset()) for topic_id, partitions in part.items())
