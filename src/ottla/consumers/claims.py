"""The partitions that a consumer holds or wants, in one session, and what is to be done about which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.consumers.effects import Effect, Write
from ottla.consumers.partition_claim import Need, PartitionClaim
from ottla.consumers.partition_nodes import ClaimId, PartitionNodes
from ottla.consumers.stream_id import StreamId
from ottla.model.identifiers import TopicPartition
from ottla.model.partition_state import ChangeResult


class Claims:
    """A claim for each partition; an event of one partition costs the same however many there are."""

    __slots__ = ("_blocked", "_claims", "_next_claim", "_next_id", "_open", "_unread")

    def __init__(self, next_claim: Callable[[], ClaimId], next_id: Callable[[], int]) -> None:
        self._next_claim: Final = next_claim
        self._next_id: Final = next_id
        self._claims: dict[TopicPartition, PartitionClaim] = {}
        # Those of them that are not as they are wanted; whose nodes have to be read; to be read later.
        self._open: set[TopicPartition] = set()
        self._unread: set[TopicPartition] = set()
        self._blocked: set[TopicPartition] = set()

    @property
    def is_empty(self) -> bool:
        return not self._claims

    @property
    def is_at_target(self) -> bool:
        """Everything that is wanted is held, and nothing else."""
        return not self._open

    @property
    def is_blocked(self) -> bool:
        """Something has to be read again, later."""
        return bool(self._blocked)

    @property
    def holders(self) -> dict[TopicPartition, StreamId]:
        """Who else holds what is wanted here."""
        found = ((partition, self._claims[partition].holder) for partition in sorted(self._open))
        return {partition: holder for partition, holder in found if holder is not None}

    @property
    def problems(self) -> dict[TopicPartition, str]:
        """What else keeps us from what is wanted here."""
        found = ((partition, self._claims[partition].problem) for partition in sorted(self._open))
        return {partition: problem for partition, problem in found if problem is not None}

    def want(self, wanted: Mapping[TopicPartition, StreamId]) -> list[Effect]:
        """These and no others, each for its stream."""
        for partition, stream in wanted.items():
            claim = self._claims.get(partition)
            if claim is None:
                self._claims[partition] = PartitionClaim(partition, stream)
            else:
                claim.target = stream
        for partition, claim in self._claims.items():
            if partition not in wanted:
                claim.target = None
        # Whoever holds one of them may have seen the change, too.
        self.retry()
        return [effect for partition in sorted(self._claims) for effect in self._advance(partition)]

    def _advance(self, partition: TopicPartition) -> list[Effect]:
        claim = self._claims[partition]
        effects = claim.advance(self._next_claim, self._next_id)
        if claim.is_over:
            del self._claims[partition]
        _keep(self._unread, partition, not claim.is_over and claim.need is Need.LOOK)
        _keep(self._blocked, partition, not claim.is_over and claim.need is Need.RETRY)
        _keep(self._open, partition, not claim.is_over and not claim.is_at_target)
        return effects

    def lost(self) -> list[Effect]:
        """What the streams have to be told when the session is over."""
        return [lost for claim in self._claims.values() for lost in claim.lost()]

    # --- the streams ------------------------------------------------------------------------------------------

    def commit(self, partition: TopicPartition, claim_id: ClaimId, offset: int) -> list[Effect]:
        claim = self._claims.get(partition)
        return [] if claim is None else claim.commit(claim_id, offset) + self._advance(partition)

    def on_stopped(self, partition: TopicPartition, claim_id: ClaimId, offset: int) -> list[Effect]:
        claim = self._claims.get(partition)
        if claim is None:
            return []
        claim.on_stopped(claim_id, offset)
        return self._advance(partition)

    # --- the tree ---------------------------------------------------------------------------------------------

    def on_written(self, write: Write, outcome: ChangeResult, until_ms: int) -> list[Effect]:
        claim = self._claims.get(write.partition)
        return [] if claim is None else claim.on_written(write, outcome, until_ms) + self._advance(write.partition)

    def take_unread(self) -> tuple[TopicPartition, ...]:
        """The partitions whose nodes are to be read now; they are taken to be asked for."""
        partitions = tuple(sorted(self._unread))
        for partition in partitions:
            self._claims[partition].on_asked()
        self._unread.clear()
        return partitions

    def on_nodes(self, nodes: Mapping[TopicPartition, PartitionNodes], until_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for partition, found in nodes.items():
            claim = self._claims.get(partition)
            if claim is not None:
                effects += claim.on_nodes(found, until_ms)
                effects += self._advance(partition)
        return effects

    def doubt(self) -> list[Effect]:
        """Of everything that is held the nodes are to be read."""
        for claim in self._claims.values():
            claim.doubt()
        return [effect for partition in sorted(self._claims) for effect in self._advance(partition)]

    def on_not_read(self) -> None:
        """What was asked for did not come."""
        for partition, claim in self._claims.items():
            claim.on_not_read()
            _keep(self._blocked, partition, claim.need is Need.RETRY)

    def retry(self) -> None:
        for partition in self._blocked:
            self._claims[partition].retry()
        self._unread |= self._blocked
        self._blocked.clear()

    def check_invariants(self) -> None:
        """What must hold between calls; for tests."""
        for partition, claim in self._claims.items():
            claim.check_invariants()
            assert claim.partition == partition
            assert not claim.is_over
            assert claim.is_at_target == (partition not in self._open)
            assert (claim.need is Need.LOOK) == (partition in self._unread)
            assert (claim.need is Need.RETRY) == (partition in self._blocked)
        assert self._open | self._unread | self._blocked <= self._claims.keys()


def _keep(partitions: set[TopicPartition], partition: TopicPartition, is_in: bool) -> None:
    if is_in:
        partitions.add(partition)
    else:
        partitions.discard(partition)
