"""One step of a member towards its target: what it must revoke first, what it is assigned, which epoch it is at.

A partition is never assigned while another member holds it, and an epoch is never raised while the member still holds
what it must revoke.  So at any time at most one member may read a partition, whatever is lost or late (KIP-848,
"Reconciliation").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.groups.assignors import Assignment
from ottla.groups.consumer.assignment import common, joined, without
from ottla.groups.consumer.member import CurrentAssignment, MemberState


class Reconciliation(NamedTuple):
    """`owned` is what the member reports to hold; None when this heartbeat leaves it out.

    `is_taken` tells whether a member other than this one holds a partition.
    """

    target_epoch: int
    target: Assignment
    owned: Assignment | None
    is_taken: Callable[[UUID, int], bool]

    def step(self, current: CurrentAssignment) -> CurrentAssignment | None:
        """The member's assignment after this heartbeat; unchanged when nothing can move.

        None: its state is unknown to this broker, and it must join anew.
        """
        if current.is_reconciled_to(self.target_epoch):
            return current
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            if self._still_holds(current.pending_revocation):
                return current
            # Everything is revoked: it leaves its old epoch.
            return self._next(current, current.member_epoch + 1)
        if current.state is MemberState.UNKNOWN:
            if self.owned is None or self.owned:
                return None
            return self._next(current, self.target_epoch)
        return self._next(current, current.member_epoch)

    def _still_holds(self, partitions: Assignment) -> bool:
        # Silence does not prove that a partition was revoked.
        return self.owned is None or bool(common(partitions, self.owned))

    def _next(self, current: CurrentAssignment, epoch_until_revoked: int) -> CurrentAssignment:
        kept = common(current.assigned, self.target)
        to_revoke = without(current.assigned, kept)
        if to_revoke and self._still_holds(to_revoke):
            return _moved(current, epoch_until_revoked, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
        wanted = without(self.target, kept)
        free = self._free(wanted)
        state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
        return _moved(current, self.target_epoch, state, joined(kept, free), {})

    def _free(self, wanted: Assignment) -> Assignment:
        free = {}
        for topic_id, partitions in wanted.items():
            untaken = frozenset(partition for partition in partitions if not self.is_taken(topic_id, partition))
            if untaken:
                free[topic_id] = untaken
        return free


def _moved(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Assignment, pending: Assignment
) -> CurrentAssignment:
    # The epoch before this step, even when it stays: for a member that must revoke something, a heartbeat of an older
    # epoch proves nothing, since the partitions it lacks may have been assigned afterwards.
    moved = CurrentAssignment(epoch, current.member_epoch, state, assigned, pending)
    unchanged = moved._replace(previous_member_epoch=current.previous_member_epoch) == current
    return current if unchanged else moved
