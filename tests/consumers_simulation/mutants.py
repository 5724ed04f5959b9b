"""Known bugs, planted one at a time: each must break a guarantee within a bounded number of seeds.

The product has no switches for them: they are patched in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ottla.consumers.claims import Need, PartitionClaim, Phase
from ottla.consumers.consumer import Consumer
from ottla.consumers.effects import Effect, Revoke, Write, WriteKind
from ottla.consumers.partition_nodes import NO_NODE, ClaimId, OffsetNode, PartitionNodes
from ottla.consumers.share import GroupView
from ottla.model.identifiers import TopicPartition
from ottla.model.partition_state import ChangeResult
from tests.consumers_simulation.consumer import HandOut, SimulatedConsumer
from tests.consumers_simulation.link import Link
from tests.consumers_simulation.plan import CLOCK_DRIFT_MAX, Plan
from tests.consumers_simulation.scale import SESSION_MS
from tests.consumers_simulation.tree import SimulatedTree
from tests.seeds.planted import Mutant

_claim_on_written: Final = PartitionClaim.on_written
_claim_on_nodes: Final = PartitionClaim.on_nodes
_claim_on_stopped: Final = PartitionClaim.on_stopped
_advance: Final = PartitionClaim.advance
_tree_write: Final = SimulatedTree.write
_on_view: Final = Consumer.on_view
_on_change: Final = Consumer.on_change
_on_session_lost: Final = Consumer.on_session_lost
_is_ours: Final = PartitionClaim._is_ours
_stopped: Final = SimulatedConsumer._stopped


def claim_without_fence(self: SimulatedTree, session_id: int, write: Write) -> bool:
    """The offset node's version does not change: a commit over it counts from any sender."""
    before = self.offsets.get(write.partition)
    if not _tree_write(self, session_id, write):
        return False
    if write.kind is WriteKind.CLAIM and before is not None:
        self.offsets[write.partition] = OffsetNode(write.offset, write.claim, before.version)
    return True


def commit_of_any_version(self: SimulatedTree, session_id: int, write: Write) -> bool:
    if write.kind is WriteKind.COMMIT:
        found = self.offsets.get(write.partition)
        write = write._replace(expected_version=NO_NODE if found is None else found.version)
    return _tree_write(self, session_id, write)


def release_of_any_version(self: SimulatedTree, session_id: int, write: Write) -> bool:
    """The processed offset overwrites any offset node."""
    if write.kind is WriteKind.RELEASE:
        found = self.offsets.get(write.partition)
        write = write._replace(expected_version=NO_NODE if found is None else found.version)
    return _tree_write(self, session_id, write)


def claim_of_a_held_partition(self: SimulatedTree, session_id: int, write: Write) -> bool:
    if write.kind is WriteKind.CLAIM:
        self.owners.pop(write.partition, None)
    return _tree_write(self, session_id, write)


def hold_before_the_outcome(
    self: PartitionClaim, next_claim: Callable[[], ClaimId], next_id: Callable[[], int]
) -> list[Effect]:
    """Messages are handed out as soon as the claim is sent."""
    was_absent = self.phase is Phase.ABSENT
    effects = _advance(self, next_claim, next_id)
    if was_absent and self.phase is Phase.CLAIMING:
        effects += self._hold(self._offset, 0)
    return effects


def unknown_is_done(self: PartitionClaim, write: Write, outcome: ChangeResult, until_ms: int) -> list[Effect]:
    known = ChangeResult.APPLIED if outcome is ChangeResult.UNKNOWN else outcome
    return _claim_on_written(self, write, known, until_ms)


def unknown_claim_has_failed(self: PartitionClaim, write: Write, outcome: ChangeResult, until_ms: int) -> list[Effect]:
    effects = _claim_on_written(self, write, outcome, until_ms)
    if outcome is ChangeResult.UNKNOWN and self.phase is Phase.CLAIMING:
        self._give_up()
    return effects


def unknown_release_has_worked(
    self: PartitionClaim, write: Write, outcome: ChangeResult, until_ms: int
) -> list[Effect]:
    effects = _claim_on_written(self, write, outcome, until_ms)
    if outcome is ChangeResult.UNKNOWN and self.phase is Phase.RELEASING:
        self._give_up()
    return effects


def own_owner_node_is_anothers(self: PartitionClaim, nodes: PartitionNodes, until_ms: int) -> list[Effect]:
    """Unless it is of the present claim: the former writer is ignored."""
    if nodes.owner is not None and nodes.owner.is_own and not _is_ours(self, nodes):
        nodes = nodes._replace(owner=nodes.owner._replace(is_own=False))
    return _claim_on_nodes(self, nodes, until_ms)


def nodes_read_without_claim_ids(self: PartitionClaim, nodes: PartitionNodes) -> bool:
    """The writer of the offset node does not matter, as long as this claim has the owner node."""
    return nodes.owner is not None and nodes.owner.is_own and nodes.offset is not None and self._claim is not None


def stopped_without_commit(self: PartitionClaim, claim: ClaimId, offset: int) -> None:
    """The owner node is deleted first; the commit that follows is refused, or too late."""
    _claim_on_stopped(self, claim, self._committed)


def commit_of_what_was_handed_out(self: SimulatedConsumer, hand_out: HandOut) -> int:
    return hand_out.next_offset


def any_time(self: SimulatedConsumer, partition: TopicPartition) -> bool:
    hand_out = self.hand_outs.get(partition)
    return hand_out is not None and not hand_out.is_stopped and self.is_up


def lease_of_the_whole_session(self: Link, sent_ms: float) -> int:
    """Without a margin: the clock of the process may be slower than the tree's."""
    return int(sent_ms) + SESSION_MS


def lost_but_kept(self: Consumer) -> list[Effect]:
    """The partitions of the former session are still handed out, under the lease of the next one."""
    _on_session_lost(self)
    return []


def stopped_in_word_only(self: SimulatedConsumer, revoke: Revoke) -> None:
    hand_out = self.hand_outs.get(revoke.partition)
    _stopped(self, revoke)
    if hand_out is not None and hand_out.claim == revoke.claim:
        hand_out.is_stopped = False
        self.hand_outs.setdefault(revoke.partition, hand_out)


def release_without_waiting(
    self: PartitionClaim, next_claim: Callable[[], ClaimId], next_id: Callable[[], int]
) -> list[Effect]:
    """The owner node is deleted while the stream is still being stopped."""
    effects = _advance(self, next_claim, next_id)
    if self.phase is Phase.STOPPING:
        self.phase = Phase.RELEASING
        effects += _advance(self, next_claim, next_id)
    return effects


def change_missed_while_it_works(self: Consumer, now_ms: int) -> list[Effect]:
    """A watch that is called during a rebalance is ignored."""
    return _on_change(self, now_ms) if self._is_settled else []


def nothing_after_a_reconnection(self: Consumer, now_ms: int) -> list[Effect]:
    return []


def view_of_the_first_look(self: Consumer, request_id: int, view: GroupView, now_ms: int) -> list[Effect]:
    """The share is computed from the list that was read first in this session."""
    return _on_view(self, request_id, view if self._view is None else self._view, now_ms)


def set_offsets_ignored(self: Consumer, now_ms: int) -> list[Effect]:
    """An owner without a commit never notices that an operator has set its offset."""
    return []


def give_up_what_is_held(self: PartitionClaim, nodes: PartitionNodes, until_ms: int) -> list[Effect]:
    """A partition that another owner still holds is not checked again."""
    effects = _claim_on_nodes(self, nodes, until_ms)
    if self.need is Need.RETRY:
        self.need = Need.NOTHING
        self.phase = Phase.ABSENT
        self.target = None
    return effects


def usual(plan: Plan) -> Plan:
    return plan


def with_lost_answers(plan: Plan) -> Plan:
    return replace(plan, lost_answers=0.15)


def with_long_pauses(plan: Plan) -> Plan:
    return replace(plan, fault_kinds=(*plan.fault_kinds, "long_pause", "cut_link"))


def with_long_pauses_and_drift(plan: Plan) -> Plan:
    return replace(with_long_pauses(plan), clock_drift=CLOCK_DRIFT_MAX)


def with_resets(plan: Plan) -> Plan:
    return replace(plan, fault_kinds=("reset_offset",), fault_interval_ms=20)


def mutant(bug: str, *patches: tuple[Any, str, Any], plan: Callable[[Plan], Plan] = usual) -> Mutant[Plan]:
    return Mutant(bug, patches, plan)


_ALL: Final = (
    mutant("a claim without a fence", (SimulatedTree, "write", claim_without_fence)),
    mutant("a commit of any version", (SimulatedTree, "write", commit_of_any_version)),
    mutant("a release of any version", (SimulatedTree, "write", release_of_any_version)),
    mutant("a held partition is claimed", (SimulatedTree, "write", claim_of_a_held_partition)),
    mutant("the claim of the offset node is not checked", (PartitionClaim, "_is_ours", nodes_read_without_claim_ids)),
    mutant("handed out before the claim is applied", (PartitionClaim, "advance", hold_before_the_outcome)),
    mutant("an unknown outcome counts as done", (PartitionClaim, "on_written", unknown_is_done)),
    mutant(
        "an unknown claim counts as failed",
        (PartitionClaim, "on_written", unknown_claim_has_failed),
        (PartitionClaim, "on_nodes", own_owner_node_is_anothers),
    ),
    mutant(
        "an unknown release counts as done",
        (PartitionClaim, "on_written", unknown_release_has_worked),
        plan=with_lost_answers,
    ),
    mutant("release before commit", (PartitionClaim, "on_stopped", stopped_without_commit)),
    mutant("handed-out messages are committed", (SimulatedConsumer, "committable", commit_of_what_was_handed_out)),
    mutant("the lease is ignored", (SimulatedConsumer, "may_hand_out", any_time), plan=with_long_pauses),
    mutant(
        "the lease is the whole session",
        (Link, "lease_until_ms", lease_of_the_whole_session),
        plan=with_long_pauses_and_drift,
    ),
    mutant("a lost session stops nothing", (Consumer, "on_session_lost", lost_but_kept)),
    mutant("a release does not wait for the stream", (PartitionClaim, "advance", release_without_waiting)),
    mutant("a released partition is still handed out", (SimulatedConsumer, "_stopped", stopped_in_word_only)),
    mutant("a change during a rebalance is missed", (Consumer, "on_change", change_missed_while_it_works)),
    mutant("a watch is lost with the connection", (Consumer, "on_reconnected", nothing_after_a_reconnection)),
    mutant("the share is computed from a stale list", (Consumer, "on_view", view_of_the_first_look)),
    mutant(
        "the offset that an operator sets is ignored",
        (Consumer, "on_offsets_set", set_offsets_ignored),
        plan=with_resets,
    ),
    mutant("a held partition is given up", (PartitionClaim, "on_nodes", give_up_what_is_held)),
)
MUTANTS: Final = {each.bug: each for each in _ALL}
