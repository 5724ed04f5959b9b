"""What an assignor is given, and what it answers."""

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
    """What it subscribes to; only topics that exist."""
    current: Assignment
    """What it was to have until now (its target): a sticky assignor leaves it as much of that as it can."""


class Assignor(Protocol):
    """A pure function from a group to its assignment, under a name that clients may ask for."""

    @property
    def name(self) -> str: ...

    def assign(self, members: Sequence[MemberSpec], partitions_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
        """Member id -> what it shall have.  Every member has an entry; every partition that anybody subscribes to is
        in exactly one of them.

        `partitions_counts` holds every topic that a member subscribes to, in the order in which topics are dealt out.
        The same arguments give the same answer, whatever process computes it.
        """
        ...
