"""One mirror of a source at a time: the one to which a group on the target gives the progress topic's partition.

The group's coordinator decides, so a mirror that was killed or cannot reach the target is replaced after its session,
and others stand by until then.  A mirror that was stopped longer than its session has lost the fence before it knows:
its batches in flight may then be stored beside the other's.  Both see the offset that they did not expect, and count.

A mirror copies within one term: one claim of the partition, with a lease that never lapsed.  The coordinator may renew
the lease after a lapse, when the target had stalled for a while; then copying starts again in the next term, from the
stored progress.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple

from ottla.client.groups.groups import GroupAdmin, UnknownGroup
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.membership import kafka_group_membership
from ottla.client.membership.kafka_group.options import CLASSIC, KafkaGroupOptions
from ottla.client.membership.membership import Event, Failed
from ottla.client.wire.cluster import Cluster
from ottla.consumers.effects import Left, Lost, Released, Revoke, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.mirror.progress_topic import PROGRESS_PARTITION
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET
from ottla.model.own_names import MIRROR_PROGRESS_TOPIC

# So one that is late or lost does not end the lease, which is two thirds of the session.
_HEARTBEATS_PER_SESSION: Final = 6
_LEAVE_S: Final = 5.0
# After a lapse the next answer to a heartbeat renews the lease, or ends the claim: nothing else announces it.
_RENEWAL_LOOK_MS: Final = 50


class Term(NamedTuple):
    """One uninterrupted hold of the fence."""

    claim: ClaimId | None
    lease_term: int


class Fence:
    """Held while `is_held`; closing it gives it back.

    It does not join while the group has a member: that would make the group share out the partition once more, and
    take it from a mirror that works.  Its member has a thread of its own.  `target` belongs to the caller's thread;
    the member connects with the same options.
    """

    def __init__(
        self,
        target: Cluster,
        bootstrap: str | Sequence[str],
        group_id: str,
        session_timeout_ms: int,
    ) -> None:
        self._target = target
        self._groups = GroupAdmin(target)
        self._group_id = group_id
        options = KafkaGroupOptions(
            protocol=CLASSIC,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=max(1, session_timeout_ms // _HEARTBEATS_PER_SESSION),
        )
        self._membership = kafka_group_membership(bootstrap, group_id, options, target.options)
        self._changed = threading.Condition()
        self._has_joined = False
        self._claim: ClaimId | None = None
        self._is_wanted_back = False
        self._has_left = False
        self._error: OttlaError | None = None

    def __enter__(self) -> Fence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_held(self) -> bool:
        """Raises the error that ended the membership."""
        if self._error is not None:
            raise self._error
        with self._changed:
            is_ours = self._claim is not None and not self._is_wanted_back
        return is_ours and self._target.clock.boottime_ms() < self._membership.hand_out_until_ms

    @property
    def term(self) -> Term:
        """The argument of `is_held_since`: take it before the first read of the progress of others."""
        with self._changed:
            return Term(self._claim, self._membership.lease_term)

    def is_held_since(self, term: Term) -> bool:
        """Whether it is held, and was without a lapse.  Raises the error that ended the membership."""
        # In this order: the term rises before the lease is longer.
        return self.is_held and self.term == term

    def wait_held(self, timeout_s: float) -> bool:
        """Raises ClientError."""
        if not self._has_joined:
            if self._has_members():
                self._target.retrying.sleep_ms(timeout_s * 1000)
                return False
            self._has_joined = True
            self._membership.join(Subscription.by_name({MIRROR_PROGRESS_TOPIC: 1}), self._on_events)
        with self._changed:
            self._changed.wait_for(lambda: self._claim is not None or self._error is not None, timeout_s)
            has_claim = self._claim is not None
        if has_claim and not self.is_held:
            self._target.retrying.sleep_ms(_RENEWAL_LOOK_MS)
        return self.is_held

    def _has_members(self) -> bool:
        try:
            return self._groups.describe(self._group_id).is_live
        except UnknownGroup:
            return False

    def give_way(self) -> None:
        """After a request for it: nothing is in flight any more, and another may have it."""
        with self._changed:
            claim, is_wanted_back = self._claim, self._is_wanted_back
        if claim is not None and is_wanted_back:
            self._membership.on_stopped(PROGRESS_PARTITION, claim, NO_OFFSET)

    def close(self) -> None:
        if not self._has_joined:
            self._membership.close()
            return
        self._membership.leave()
        with self._changed:
            self._changed.wait_for(lambda: self._has_left or self._is_wanted_back or self._claim is None, _LEAVE_S)
        self.give_way()
        with self._changed:
            self._changed.wait_for(lambda: self._has_left or self._error is not None, _LEAVE_S)
        self._membership.close()

    def _on_events(self, events: Sequence[Event]) -> None:
        with self._changed:
            for event in events:
                self._on_event(event)
            self._changed.notify_all()

    def _on_event(self, event: Event) -> None:
        match event:
            case Start(claim=claim):
                self._claim, self._is_wanted_back = claim, False
            case Revoke(claim=claim) if claim == self._claim:
                self._is_wanted_back = True
            case Released(claim=claim) | Lost(claim=claim) if claim == self._claim:
                self._claim, self._is_wanted_back = None, False
            case Left():
                self._has_left = True
            case Failed(error=error):
                self._error, self._claim = error, None
            case _:
                pass
