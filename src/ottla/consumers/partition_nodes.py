"""The two nodes of a partition in a group: its owner (ephemeral) and its offset (persistent).

Every change of either is a compare-and-set on the offset node's version, and raises it.  So all of them are in one
order, and a writer with an older version is refused: it is *fenced*.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.consumers.share import StreamId

# The version that the offset node is expected to have before it is created.
NO_NODE: Final = -1


class ClaimId(NamedTuple):
    """One claim of one partition.  A session's id is never used again, so neither is this."""

    session_id: int
    number: int

    def __str__(self) -> str:
        return f"{self.session_id:x}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> ClaimId:
        """Raises `ValueError` for what is not the id of a claim."""
        # A session's id may be negative.
        session_id, _, number = text.rpartition("-")
        return cls(int(session_id, 16), int(number))


class OwnerNode(NamedTuple):
    """Who owns the partition; `is_own` when the reading session created the node."""

    stream: StreamId
    is_own: bool


class OffsetNode(NamedTuple):
    """The next offset to be read (-1 before any was committed), and by whose claim it was written.

    No claim: by a release, or by an operator.
    """

    offset: int
    claim: ClaimId | None
    version: int


class PartitionNodes(NamedTuple):
    """Both as they were read, one after the other: nothing relies on their being of one moment."""

    owner: OwnerNode | None
    offset: OffsetNode | None
    # Why no consumer can claim it, as a sentence: its nodes cannot be parsed.
    problem: str | None = None
