"""The invariants after each step: G1 to G6 of docs/consumers.md."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ottla.consumers.effects import Write, WriteKind
from ottla.consumers.partition_nodes import ClaimId, OffsetNode
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from tests.seeds.search import Violation

if TYPE_CHECKING:
    from tests.consumers_simulation.consumer import SimulatedConsumer
    from tests.consumers_simulation.simulation import Simulation
    from tests.consumers_simulation.tree import Owner


class Checks:
    """The observed deliveries and commits of a run."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        # Exclusive: everything below was handed out and processed by some consumer.
        self.asked_end: defaultdict[TopicPartition, int] = defaultdict(int)
        self._started: set[ClaimId] = set()
        self._stopped_at: dict[ClaimId, int] = {}
        self.handed_out_count = self.claims_count = 0

    def on_start(self, consumer: SimulatedConsumer, partition: TopicPartition, offset: int, claim: ClaimId) -> None:
        self._started.add(claim)
        # A process that was paused may start a claim when its lease is over: then it hands out nothing.
        for other in self._simulation.consumers if consumer.has_lease and self._is_bound(consumer) else ():
            if other is not consumer and other.may_hand_out(partition) and self._is_bound(other):
                raise Violation(f"G1: {consumer.consumer_id} and {other.consumer_id} both hand out {partition}")
        if max(offset, 0) > self.asked_end[partition]:
            raise Violation(f"G4: {partition} starts at {offset}, only {self.asked_end[partition]} were asked past")

    def on_hand_out(self, consumer: SimulatedConsumer, partition: TopicPartition, offset: int) -> None:
        self.handed_out_count += 1
        if not self._is_bound(consumer):
            return
        owner = self._simulation.tree.owners.get(partition)
        if owner is None or owner.session_id != consumer.link.session_id:
            raise Violation(f"G1: {consumer.consumer_id} hands out {partition} at {offset}, it is owned by {owner}")

    def _is_bound(self, consumer: SimulatedConsumer) -> bool:
        """Whether the lease can protect: no operator has closed the session before its time."""
        session = self._simulation.tree.sessions.get(consumer.link.session_id)
        return session is None or not session.was_closed_early

    def on_asked(self, partition: TopicPartition, asked_end: int) -> None:
        self.asked_end[partition] = max(self.asked_end[partition], asked_end)

    def on_stopped(self, claim: ClaimId, offset: int) -> None:
        self._stopped_at[claim] = offset

    def on_written(self, write: Write, before: OffsetNode | None, after: OffsetNode, owner: Owner | None) -> None:
        """A write was applied."""
        former = NO_OFFSET if before is None else before.offset
        partition = write.partition
        if after.offset < former:
            raise Violation(f"G3: the offset of {partition} goes back from {former} to {after.offset} by {write}")
        if after.offset > self.asked_end[partition]:
            asked_end = self.asked_end[partition]
            raise Violation(f"G4: {after.offset} of {partition} is committed, {asked_end} were asked past")
        holder = None if before is None else before.claim
        if write.kind is WriteKind.COMMIT and write.claim != holder:
            raise Violation(f"G2: {write} counts, although the claim of {partition} is {holder}")
        is_by_right = owner is not None and owner.claim == holder
        if write.kind is WriteKind.RELEASE and not is_by_right and after.offset != former:
            raise Violation(f"G2: {write} sets the offset of {partition}, although the claim of it is {holder}")
        if write.kind is WriteKind.CLAIM:
            self.claims_count += 1
        if write.kind is WriteKind.RELEASE and holder in self._started:
            stopped_at = self._stopped_at.get(holder)
            if after.offset != stopped_at:
                raise Violation(f"G5: {partition} is released at {after.offset}, its stream stopped at {stopped_at}")
        if write.kind is WriteKind.RELEASE and owner is not None:
            for consumer in self._simulation.consumers:
                is_owner = consumer.link.session_id == owner.session_id
                if is_owner and consumer.may_hand_out(partition):
                    raise Violation(f"G1: {partition} is released, {consumer.consumer_id} hands it out still")
