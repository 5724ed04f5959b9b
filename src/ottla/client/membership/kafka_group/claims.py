"""The partitions that the group has given to this member: from the first offset to the last commit.

Pure.  What is wanted comes from the group's protocol; offsets are read and written by requests of the member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client.membership.membership import CommitRefused, Event
from ottla.consumers.effects import Committed, Lost, Released, Revoke, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import StreamId
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition


class Wanted(NamedTuple):
    """The stream that is to have a partition, of the topic with this id."""

    stream: StreamId
    topic_id: UUID


class Phase(Enum):
    UNREAD = "unread"
    """Ours; the group's offset is not known yet."""

    HELD = "held"
    """Handed out."""

    STOPPING = "stopping"
    """The stream was asked to stop."""

    RELEASING = "releasing"
    """Nothing is handed out; the final offset is being committed."""


# What the group has is not known: a commit is under way, or was, and its outcome did not come.
_UNKNOWN: Final = -2


class CommitRow(NamedTuple):
    """One offset on its way to the group, and what the group had before it, as far as that was known."""

    partition: TopicPartition
    claim: ClaimId
    offset: int
    before: int


class _Claim:
    """One claimed partition.  `wanted` is None when it must be released."""

    __slots__ = (
        "claim",
        "committed",
        "failing_since_ms",
        "is_asked",
        "is_committed_elsewhere",
        "is_refused",
        "offset",
        "partition",
        "phase",
        "wanted",
        "was",
    )

    def __init__(self, partition: TopicPartition, wanted: Wanted) -> None:
        self.partition: Final = partition
        self.wanted: Wanted | None = wanted
        # The stream and the topic of the claim that was started last.
        self.was = wanted
        self.phase = Phase.UNREAD
        self.is_asked = False
        self.claim: ClaimId | None = None
        # What the group has, and what it is to have.
        self.committed = NO_OFFSET
        self.offset = NO_OFFSET
        self.is_refused = False
        # Whether the claim has ended with a position that only the group knows.
        self.is_committed_elsewhere = False
        self.failing_since_ms: int | None = None

    @property
    def is_uncommitted(self) -> bool:
        return self.phase in (Phase.HELD, Phase.RELEASING) and self.offset != self.committed and not self.is_refused

    def set_offset(self, offset: int) -> None:
        """Commit it with the next request."""
        if self.is_refused or self.offset == self.committed:
            self.failing_since_ms = None
        self.offset = offset
        self.is_refused = False


class GroupClaims:
    """`session_id` is this membership's alone: no claim has the id of another."""

    __slots__ = ("_claims", "_claims_count", "_session_id")

    def __init__(self, session_id: int) -> None:
        self._session_id: Final = session_id
        self._claims_count = 0
        self._claims: dict[TopicPartition, _Claim] = {}

    @property
    def is_empty(self) -> bool:
        return not self._claims

    @property
    def is_at_target(self) -> bool:
        """Everything that is wanted is handed out by its stream, and nothing else is here."""
        return all(claim.phase is Phase.HELD and claim.wanted == claim.was for claim in self._claims.values())

    @property
    def is_giving_back(self) -> bool:
        return any(claim.wanted is None for claim in self._claims.values())

    @property
    def owned(self) -> frozenset[tuple[UUID, int]]:
        """What the coordinator must count as this member's, by topic id."""
        return frozenset((claim.was.topic_id, partition.partition) for partition, claim in self._claims.items())

    def streams(self) -> dict[str, dict[int, StreamId]]:
        """The streams of the partitions that are here, by topic and number."""
        found: dict[str, dict[int, StreamId]] = {}
        for (topic, partition), claim in self._claims.items():
            found.setdefault(topic, {})[partition] = claim.was.stream
        return found

    def want(self, wanted: Mapping[TopicPartition, Wanted], until_ms: int) -> list[Event]:
        """These and no others.  `until_ms` is the end of the lease."""
        events: list[Event] = []
        for partition in sorted(self._claims.keys() | wanted.keys()):
            claim = self._claims.get(partition)
            if claim is None:
                self._claims[partition] = _Claim(partition, wanted[partition])
            else:
                claim.wanted = wanted.get(partition)
                events += self._advance(claim, until_ms)
        return events

    def _advance(self, claim: _Claim, until_ms: int) -> list[Event]:
        events: list[Event] = []
        wanted = claim.wanted
        if claim.phase is Phase.UNREAD:
            if wanted is None:
                del self._claims[claim.partition]
            elif wanted.topic_id != claim.was.topic_id:
                self._claims[claim.partition] = _Claim(claim.partition, wanted)
            else:
                claim.was = wanted
            return events
        if wanted is not None and wanted.topic_id != claim.was.topic_id:
            # The topic was recreated: the position is no offset of the new one.
            assert claim.claim is not None
            self._claims[claim.partition] = _Claim(claim.partition, wanted)
            return [Lost(claim.partition, claim.claim)]
        if claim.phase is Phase.HELD and wanted != claim.was:
            assert claim.claim is not None
            claim.phase = Phase.STOPPING
            events.append(Revoke(claim.partition, claim.claim))
        if claim.phase is Phase.RELEASING and claim.offset == claim.committed:
            assert claim.claim is not None
            events.append(Released(claim.partition, claim.claim, claim.offset))
            events += self._follow(claim, until_ms)
        return events

    def _follow(self, claim: _Claim, until_ms: int) -> list[Event]:
        """After the end of a claim: given back, or started by another stream from where it was stopped."""
        if claim.wanted is None or claim.is_committed_elsewhere:
            self._forget(claim)
            return []
        claim.was = claim.wanted
        return self._start(claim, claim.offset, until_ms)

    def _start(self, claim: _Claim, offset: int, until_ms: int) -> list[Event]:
        self._claims_count += 1
        claim.claim = ClaimId(self._session_id, self._claims_count)
        claim.phase = Phase.HELD
        claim.set_offset(offset)
        claim.committed = offset
        return [Start(claim.partition, claim.was.stream, offset, claim.claim, until_ms)]

    def lose(self) -> list[Event]:
        """The member has left the group: others may own its partitions."""
        lost: list[Event] = [
            Lost(partition, claim.claim)
            for partition, claim in sorted(self._claims.items(), key=lambda item: item[0])
            if claim.claim is not None
        ]
        self._claims.clear()
        return lost

    @property
    def has_unread(self) -> bool:
        return any(claim.phase is Phase.UNREAD and not claim.is_asked for claim in self._claims.values())

    def take_unread(self) -> list[TopicPartition]:
        """The partitions whose committed offsets must be requested; they count as requested from now on."""
        taken = [claim for claim in self._claims.values() if claim.phase is Phase.UNREAD and not claim.is_asked]
        for claim in taken:
            claim.is_asked = True
        return sorted(claim.partition for claim in taken)

    def on_offsets(self, offsets: Mapping[TopicPartition, int], until_ms: int) -> list[Event]:
        """The group's offsets (NO_OFFSET: none) of some requested partitions; the others are requested again."""
        events: list[Event] = []
        for claim in self._claims.values():
            if claim.phase is Phase.UNREAD and claim.is_asked:
                claim.is_asked = False
                if claim.partition in offsets:
                    events += self._start(claim, offsets[claim.partition], until_ms)
        return events

    @property
    def has_uncommitted(self) -> bool:
        return any(claim.is_uncommitted for claim in self._claims.values())

    def take_uncommitted(self) -> list[CommitRow]:
        """What the group is to have and has not, as far as is known; it is taken to be under way."""
        rows: list[CommitRow] = []
        for claim in self._claims.values():
            if claim.is_uncommitted:
                assert claim.claim is not None
                rows.append(CommitRow(claim.partition, claim.claim, claim.offset, claim.committed))
                claim.committed = _UNKNOWN
        return rows

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> list[Event]:
        """Ignored for claims that are over or stopping: their last offset comes with the stop."""
        events: list[Event] = []
        for partition, claim_id, offset in offsets:
            claim = self._claims.get(partition)
            if claim is None or claim.claim != claim_id or claim.phase is not Phase.HELD:
                continue
            claim.set_offset(offset)
            if offset == claim.committed:
                events.append(Committed(partition, claim_id, offset))
        return events

    def on_stopped(self, partition: TopicPartition, claim_id: ClaimId, offset: int, until_ms: int) -> list[Event]:
        claim = self._claims.get(partition)
        if claim is None or claim.claim != claim_id or claim.phase is not Phase.STOPPING:
            return []
        claim.phase = Phase.RELEASING
        # A stream that never had a position, or has given it to transactions, has nothing to add: its next owner reads
        # what the group has.
        claim.is_committed_elsewhere = offset == NO_OFFSET
        claim.set_offset(claim.offset if offset == NO_OFFSET else offset)
        return self._advance(claim, until_ms)

    def on_committed(self, row: CommitRow, until_ms: int) -> list[Event]:
        """The group has this offset now."""
        claim = self._sent(row)
        if claim is None:
            return []
        claim.committed = row.offset
        claim.failing_since_ms = None
        if claim.phase is Phase.RELEASING:
            return self._advance(claim, until_ms)
        return [Committed(row.partition, row.claim, row.offset)]

    def on_not_committed(
        self, row: CommitRow, error: OttlaError, retry_ms: int, now_ms: int, until_ms: int, *, is_known: bool = True
    ) -> list[Event]:
        """The group has refused it; or there was no answer, then it is unknown (`is_known`) whether the group has it.

        It is tried again until it has failed for `retry_ms`.
        """
        claim = self._sent(row)
        if claim is None:
            return []
        if is_known:
            claim.committed = row.before
        if claim.failing_since_ms is None:
            claim.failing_since_ms = now_ms
        if now_ms - claim.failing_since_ms < retry_ms:
            # It may be stopping since, at the offset that the group has.
            return self._advance(claim, until_ms)
        if claim.phase is Phase.RELEASING:
            self._forget(claim)
            return [Lost(row.partition, row.claim)]
        claim.is_refused = True
        return [CommitRefused(row.partition, row.claim, claim.offset, error)]

    def _forget(self, claim: _Claim) -> None:
        """Its next owner, here or elsewhere, starts from the committed offset."""
        del self._claims[claim.partition]
        if claim.wanted is not None:
            self._claims[claim.partition] = _Claim(claim.partition, claim.wanted)

    def _sent(self, row: CommitRow) -> _Claim | None:
        claim = self._claims.get(row.partition)
        return claim if claim is not None and claim.claim == row.claim else None
