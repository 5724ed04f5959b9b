"""Assignments as sets of partitions by topic."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from ottla.groups.assignors import Assignment
from ottla.groups.commands import TopicIdPartitions


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
