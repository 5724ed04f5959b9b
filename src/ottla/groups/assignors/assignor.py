"""The input and the output of an assignor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
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
