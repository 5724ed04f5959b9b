"""The partitions that a consumer holds or wants, in one session, and the next step for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from ottla.consumers.effects import Committed, Effect, Lost, Released, Revoke, Start, Write, WriteKind
from ottla.consumers.partition_nodes import NO_NODE, ClaimId, OffsetNode, OwnerNode, PartitionNodes
from ottla.consumers.share import StreamId
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.model.partition_state import ChangeResult

# One partition as one consumer of the group holds it, or wants to.
#
# At most one request about it is under way.  An outcome that is not "applied" decides nothing: both nodes are read
# after a sync, and the id of the claim that is found there shows which consumer has the partition.


class Phase(Enum):
    ABSENT = "absent"
    """Not claimed."""

    CLAIMING = "claiming"
    """A claim was written; its outcome is not known."""

    HELD = "held"
    """Claimed, and delivered to a stream."""

    STOPPING = "stopping"
    """Claimed; the stream received `Revoke`."""

    RELEASING = "releasing"
    """The owner node exists, nothing is delivered: the node will be deleted."""


class Need(Enum):
    """What has to come before the next step."""

    NOTHING = "nothing"
    OUTCOME = "outcome"
    """That of the write under way."""

    LOOK = "look"
    """The nodes have to be read."""

    NODES = "nodes"
    """They are being read."""

    RETRY = "retry"
    """They have to be read again, later."""


# A stream that received `Start` waits for the end of the claim.
_STARTED: Final = (Phase.HELD, Phase.STOPPING, Phase.RELEASING)


class PartitionClaim:
    """The steps from what is wanted (`target`) to what the tree has."""

    __slots__ = (
        "_claim",
        "_committed",
        "_is_awaited",
        "_is_doubted",
        "_offset",
        "_stream",
        "_version",
        "_write_id",
        "holder",
        "need",
        "partition",
        "phase",
        "problem",
        "target",
    )

    def __init__(self, partition: TopicPartition, target: StreamId) -> None:
        self.partition: Final = partition
        # The stream that should have it; None: no stream of this consumer.
        self.target: StreamId | None = target
        self.phase = Phase.ABSENT
        self.need = Need.LOOK
        # Who else holds it, as far as that keeps us from it.
        self.holder: StreamId | None = None
        # What else keeps us from it.
        self.problem: str | None = None
        self._stream = target
        # That which is on its way, or was started; None in a release of what was not.
        self._claim: ClaimId | None = None
        self._version = NO_NODE
        # What the offset node has, and what it is to have.
        self._committed = NO_OFFSET
        self._offset = NO_OFFSET
        # A caller waits for the commit of the offset.
        self._is_awaited = False
        # An operator may have set the offset: the nodes are read, once nothing else is under way.
        self._is_doubted = False
        self._write_id = 0

    @property
    def is_over(self) -> bool:
        """Neither wanted nor held: it can be forgotten."""
        return self.phase is Phase.ABSENT and self.target is None

    @property
    def is_at_target(self) -> bool:
        return self.phase is Phase.HELD and self.target == self._stream

    def advance(self, next_claim: Callable[[], ClaimId], next_id: Callable[[], int]) -> list[Effect]:
        """The next step, as far as nothing has to come before it."""
        effects: list[Effect] = []
        if self.phase is Phase.HELD and self.target != self._stream:
            self.phase = Phase.STOPPING
            assert self._claim is not None
            effects.append(Revoke(self.partition, self._claim))
        if self._is_doubted and self.phase is Phase.HELD and self.need is Need.NOTHING:
            self._is_doubted = False
            self.need = Need.LOOK
        if self.need is not Need.NOTHING:
            return effects
        if self.phase is Phase.ABSENT and self.target is not None:
            self._stream = self.target
            self._claim = next_claim()
            self.phase = Phase.CLAIMING
            effects.append(self._write(WriteKind.CLAIM, self._claim, next_id()))
        elif self.phase is Phase.HELD and self._offset != self._committed:
            effects.append(self._write(WriteKind.COMMIT, self._claim, next_id()))
        elif self.phase is Phase.RELEASING:
            effects.append(self._write(WriteKind.RELEASE, None, next_id()))
        return effects

    def _write(self, kind: WriteKind, claim: ClaimId | None, write_id: int) -> Write:
        self.need = Need.OUTCOME
        self._write_id = write_id
        return Write(write_id, kind, self.partition, self._version, self._offset, claim, self._stream)

    def commit(self, claim: ClaimId, offset: int) -> list[Effect]:
        """Everything below `offset` was delivered, and the stream moved past it.  Ignored for a claim that is over."""
        if claim != self._claim or self.phase is not Phase.HELD:
            return []
        self._offset = offset
        if self.need is Need.NOTHING and offset == self._committed:
            return [Committed(self.partition, claim, offset)]
        self._is_awaited = True
        return []

    def on_stopped(self, claim: ClaimId, offset: int) -> None:
        if claim == self._claim and self.phase is Phase.STOPPING:
            if offset != NO_OFFSET:
                self._offset = offset
            self.phase = Phase.RELEASING

    def on_written(self, write: Write, outcome: ChangeResult, until_ms: int) -> list[Effect]:
        if self.need is not Need.OUTCOME or write.write_id != self._write_id:
            return []
        if outcome is not ChangeResult.APPLIED:
            self.need = Need.LOOK
            return []
        self.need = Need.NOTHING
        self._version = write.expected_version + 1
        if write.kind is WriteKind.CLAIM:
            return self._hold(write.offset, until_ms)
        if write.kind is WriteKind.RELEASE:
            claim = self._claim
            self._give_up()
            return [] if claim is None else [Released(self.partition, claim, write.offset)]
        return self._on_committed(write.offset)

    def on_nodes(self, nodes: PartitionNodes, until_ms: int) -> list[Effect]:
        """Both nodes, as they are after everything that was written before."""
        if self.need is not Need.NODES:
            return []
        self.need = Need.NOTHING
        owner, found, self.problem = nodes
        if self.problem is not None:
            return self._stand_off(owner)
        if self._is_ours(nodes):
            assert found is not None
            self._version = found.version
            if self.phase is Phase.CLAIMING:
                return self._hold(found.offset, until_ms)
            return self._on_committed(found.offset)
        lost = self._lose()
        self._take_over(found)
        if owner is not None and owner.is_own:
            # Made by a claim of this session that does not count any more: no consumer can claim it while it is there.
            self.phase = Phase.RELEASING
        elif owner is not None:
            self.holder = owner.stream
            self.need = Need.RETRY
        return lost

    def _is_ours(self, nodes: PartitionNodes) -> bool:
        owner, found, _ = nodes
        return (
            owner is not None
            and owner.is_own
            and found is not None
            and found.claim is not None
            and found.claim == self._claim
        )

    def _stand_off(self, owner: OwnerNode | None) -> list[Effect]:
        """The nodes cannot be parsed, until an operator repairs them."""
        lost = self._lose()
        self._take_over(None)
        if owner is not None and owner.is_own:
            self.phase = Phase.RELEASING
        self.need = Need.RETRY
        return lost

    def _take_over(self, found: OffsetNode | None) -> None:
        """Continue from what is in the tree."""
        self._version = NO_NODE if found is None else found.version
        self._offset = self._committed = NO_OFFSET if found is None else found.offset

    def _hold(self, offset: int, until_ms: int) -> list[Effect]:
        assert self._claim is not None
        self.holder = None
        self._offset = self._committed = offset
        if self.target != self._stream:
            self.phase = Phase.RELEASING
            self._claim = None
            return []
        self.phase = Phase.HELD
        return [Start(self.partition, self._stream, offset, self._claim, until_ms)]

    def _on_committed(self, offset: int) -> list[Effect]:
        assert self._claim is not None
        is_awaited = self._is_awaited and offset == self._offset
        if offset == self._committed and not is_awaited:
            return []
        self._committed = offset
        self._is_awaited = self._is_awaited and not is_awaited
        return [Committed(self.partition, self._claim, offset)]

    def _lose(self) -> list[Effect]:
        """Another claim is in the tree, or none."""
        lost = self.lost()
        self._give_up()
        self.need = Need.NOTHING
        return lost

    def lost(self) -> list[Effect]:
        """The effect for the stream when the session is over."""
        if self.phase in _STARTED and self._claim is not None:
            return [Lost(self.partition, self._claim)]
        return []

    def _give_up(self) -> None:
        self._is_awaited = self._is_doubted = False
        self.phase = Phase.ABSENT
        self.holder = None
        self._claim = None
        # A later claim reads first: others may have had the partition meanwhile.
        self.need = Need.LOOK

    def on_asked(self) -> None:
        assert self.need is Need.LOOK
        self.need = Need.NODES

    def on_not_read(self) -> None:
        if self.need is Need.NODES:
            self.need = Need.RETRY

    def doubt(self) -> None:
        if self.phase is Phase.HELD:
            self._is_doubted = True

    def retry(self) -> None:
        if self.need is Need.RETRY:
            self.need = Need.LOOK

    def check_invariants(self) -> None:
        """What must hold between calls; for tests."""
        assert (self._claim is None) <= (self.phase in (Phase.ABSENT, Phase.RELEASING))
        assert self.phase is not Phase.CLAIMING or self.need is not Need.NOTHING
        assert self.holder is None or (self.phase is Phase.ABSENT and self.need is not Need.OUTCOME)


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
        # The holder of one of them may have seen the change, too.
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
        """The effects for the streams when the session is over."""
        return [lost for claim in self._claims.values() for lost in claim.lost()]

    def commit(self, partition: TopicPartition, claim_id: ClaimId, offset: int) -> list[Effect]:
        claim = self._claims.get(partition)
        return [] if claim is None else claim.commit(claim_id, offset) + self._advance(partition)

    def on_stopped(self, partition: TopicPartition, claim_id: ClaimId, offset: int) -> list[Effect]:
        claim = self._claims.get(partition)
        if claim is None:
            return []
        claim.on_stopped(claim_id, offset)
        return self._advance(partition)

    def on_written(self, write: Write, outcome: ChangeResult, until_ms: int) -> list[Effect]:
        claim = self._claims.get(write.partition)
        return [] if claim is None else claim.on_written(write, outcome, until_ms) + self._advance(write.partition)

    def take_unread(self) -> tuple[TopicPartition, ...]:
        """The partitions whose nodes must be read now; their reads count as sent."""
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
        """The nodes of all held partitions must be read."""
        for claim in self._claims.values():
            claim.doubt()
        return [effect for partition in sorted(self._claims) for effect in self._advance(partition)]

    def on_not_read(self) -> None:
        """A read got no answer."""
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
