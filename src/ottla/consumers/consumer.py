"""One consumer of a group: follows the group, computes its share, claims and releases, commits.

Events are its methods.  Each returns effects, to be carried out in their order; `due_ms` is when the caller must call
`on_time`.  Times are those of a clock that continues while the machine is suspended, like the lease's.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.consumers.claims import Claims
from ottla.consumers.effects import (
    Blocked,
    Effect,
    Left,
    ReadGroup,
    ReadPartitions,
    Register,
    Settled,
    Write,
)
from ottla.consumers.partition_nodes import ClaimId, PartitionNodes
from ottla.consumers.rebalance_pace import BurstWindow, RebalancePace, Retries
from ottla.consumers.share import GroupView, StreamId, share_of
from ottla.model.identifiers import TopicPartition
from ottla.model.partition_state import ChangeResult

# The maximum of partitions that the reason of a blocked rebalance names.
_NAMED_MAX: Final = 5
_NO_REQUEST: Final = 0


class Consumer:
    """The state of one consumer over successive sessions of the tree."""

    __slots__ = (
        "_claims",
        "_group_read",
        "_has_left",
        "_ids_count",
        "_is_leaving",
        "_is_registered",
        "_is_settled",
        "_pace",
        "_partitions_read",
        "_registering",
        "_retries",
        "_session_id",
        "_view",
        "_window",
        "consumer_id",
        "hand_out_until_ms",
    )

    def __init__(self, consumer_id: str, pace: RebalancePace, chance: random.Random) -> None:
        """`consumer_id` is unique to this process.  `chance` spreads the consumers of a group in time."""
        self.consumer_id: Final = consumer_id
        # Before this moment no other consumer can own what is delivered here; 0 without a session.
        self.hand_out_until_ms = 0
        self._window: Final = BurstWindow(pace, chance)
        self._retries: Final = Retries(pace, chance)
        self._pace: Final = pace
        self._ids_count = 0
        self._is_leaving = False
        self._has_left = False
        self._forget(None)

    def _forget(self, session_id: int | None) -> None:
        """Discard what the former session knew and had requested."""
        self._session_id = session_id
        self._is_registered = False
        self._is_settled = False
        self._view: GroupView | None = None
        self._claims = Claims(self._next_claim, self._next_id)
        self._registering = self._group_read = self._partitions_read = _NO_REQUEST
        self._window.close()
        self._retries.reset()

    @property
    def due_ms(self) -> int:
        if self._group_read != _NO_REQUEST:
            # Changes within the window wait for the answer.
            return self._retries.due_ms
        return min(self._window.due_ms, self._retries.due_ms)

    @property
    def is_settled(self) -> bool:
        """Whether the consumer owns its whole share, as far as it knows."""
        return self._is_settled

    @property
    def blocked_by(self) -> dict[TopicPartition, StreamId]:
        """The holders of partitions that belong to this consumer's share."""
        return self._claims.holders

    def on_session(self, session_id: int, lease_until_ms: int, now_ms: int) -> list[Effect]:
        """A session has started.  Nothing of the former one is assumed."""
        assert self._session_id is None, "the former session is lost first"
        self._forget(session_id)
        self.hand_out_until_ms = lease_until_ms
        return self._conclude(now_ms, [])

    def on_lease(self, until_ms: int) -> None:
        """The session is alive until then, at least."""
        if self._session_id is not None and until_ms > self.hand_out_until_ms:
            self.hand_out_until_ms = until_ms

    def on_session_lost(self) -> list[Effect]:
        """Owner nodes are gone, and others may own these partitions: nothing is committed for this session any more."""
        self.hand_out_until_ms = 0
        effects = self._claims.lost()
        self._forget(None)
        if self._is_leaving:
            effects += self._left()
        return effects

    def on_reconnected(self, now_ms: int) -> list[Effect]:
        """The connection is back in the same session; a watch may have been lost with it."""
        return self.on_change(now_ms)

    def on_registered(self, request_id: int, outcome: ChangeResult, now_ms: int) -> list[Effect]:
        """The consumer's node exists, or was not created; it is stale when another session owns it."""
        if request_id != self._registering:
            return []
        self._registering = _NO_REQUEST
        if outcome is ChangeResult.APPLIED:
            self._is_registered = True
            self._retries.reset()
            # This consumer's registration is the change.
            self._window.on_change(now_ms)
            return self._conclude(now_ms, [])
        if outcome is ChangeResult.STALE:
            reason = f"consumer {self.consumer_id} is still registered by another session"
        else:
            reason = "the tree does not answer"
        return self._conclude(now_ms, self._wait(now_ms, reason))

    def leave(self, now_ms: int) -> list[Effect]:
        """Release everything; `Left` is the end."""
        if self._is_leaving:
            return []
        self._is_leaving = True
        self._window.close()
        if self._session_id is None:
            return self._left()
        return self._conclude(now_ms, self._claims.want({}))

    def _left(self) -> list[Effect]:
        if self._has_left:
            return []
        self._has_left = True
        return [Left()]

    def on_change(self, now_ms: int) -> list[Effect]:
        """A watch fired: consumers or partitions have changed."""
        if self._is_registered and not self._is_leaving:
            self._window.on_change(now_ms)
        return []

    def on_view(self, request_id: int, view: GroupView, now_ms: int) -> list[Effect]:
        """The group, as it was when the read was requested or later."""
        if request_id != self._group_read:
            return []
        self._group_read = _NO_REQUEST
        if self._is_leaving:
            return self._conclude(now_ms, [])
        if self.consumer_id not in view.consumers:
            # The node was deleted: without it the other consumers take this consumer's share.
            self._is_registered = self._is_settled = False
            self._view = None
            self._window.close()
            return self._conclude(now_ms, self._claims.want({}))
        if view == self._view and self._claims.is_at_target:
            was_settled, self._is_settled = self._is_settled, True
            self._retries.reset()
            return self._conclude(now_ms, [] if was_settled else [Settled()])
        if view != self._view:
            self._view = view
            self._is_settled = False
            self._retries.reset()
        return self._conclude(now_ms, self._claims.want(share_of(view, self.consumer_id)))

    def on_offsets_set(self, now_ms: int) -> list[Effect]:
        """An operator has set offsets of the group: read held partitions again, also those without a commit."""
        return self._conclude(now_ms, self._claims.doubt())

    def on_nodes(self, request_id: int, nodes: Mapping[TopicPartition, PartitionNodes], now_ms: int) -> list[Effect]:
        """The nodes of all the partitions that were requested."""
        if request_id != self._partitions_read:
            return []
        self._partitions_read = _NO_REQUEST
        return self._conclude(now_ms, self._claims.on_nodes(nodes, self.hand_out_until_ms))

    def on_written(self, write: Write, outcome: ChangeResult, now_ms: int) -> list[Effect]:
        """The outcome of a write; ignored for a write of a former session."""
        return self._conclude(now_ms, self._claims.on_written(write, outcome, self.hand_out_until_ms))

    def on_read_failed(self, request_id: int, now_ms: int) -> list[Effect]:
        """No answer came; the read is repeated after a while."""
        if request_id == self._group_read:
            self._group_read = _NO_REQUEST
            if not self._is_leaving:
                self._window.on_change(now_ms)
        elif request_id == self._partitions_read:
            self._partitions_read = _NO_REQUEST
            self._claims.on_not_read()
        return self._conclude(now_ms, [])

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> list[Effect]:
        """Everything below each offset was delivered under that claim, and the stream moved past it.

        `Committed` with that offset or a later one follows, or the end of the claim.
        """
        return [effect for offset in offsets for effect in self._claims.commit(*offset)]

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int, now_ms: int) -> list[Effect]:
        """Nothing is delivered any more after `Revoke`; the stream moved past everything below `offset`.

        `NO_OFFSET`: nothing was ever handed out, and what is committed stays.
        """
        return self._conclude(now_ms, self._claims.on_stopped(partition, claim, offset))

    def on_time(self, now_ms: int) -> list[Effect]:
        """`due_ms` has passed."""
        if now_ms >= self._retries.due_ms:
            self._retries.on_due()
            self._claims.retry()
        return self._conclude(now_ms, [])

    def _conclude(self, now_ms: int, effects: list[Effect]) -> list[Effect]:
        """The effects that follow from the state after an event: due requests, one of each kind at a time."""
        if self._session_id is None:
            return effects
        if not self._claims.is_at_target:
            self._is_settled = False
        if self._is_leaving and self._claims.is_empty and self._registering == _NO_REQUEST:
            return effects + self._left()
        if self._partitions_read == _NO_REQUEST:
            partitions = self._claims.take_unread()
            if partitions:
                self._partitions_read = self._next_id()
                effects.append(ReadPartitions(self._partitions_read, partitions))
        if self._claims.is_blocked and not self._retries.is_waiting:
            effects += self._wait(now_ms, self._reason())
        if not self._is_leaving:
            effects += self._look_at_group(now_ms)
        return effects

    def _look_at_group(self, now_ms: int) -> list[Effect]:
        if not self._is_registered:
            if self._registering != _NO_REQUEST or self._retries.is_waiting or not self._claims.is_empty:
                return []
            self._registering = self._next_id()
            return [Register(self._registering)]
        # The share is claimed: is the group still the one that it was computed from?
        is_last = self._claims.is_at_target and not self._is_settled and not self._window.is_open
        if self._group_read != _NO_REQUEST or not (is_last or now_ms >= self._window.due_ms):
            return []
        self._window.close()
        self._group_read = self._next_id()
        return [ReadGroup(self._group_read, is_synced=is_last)]

    def _wait(self, now_ms: int, reason: str) -> list[Effect]:
        self._retries.wait(now_ms)
        if self._retries.attempts_count != self._pace.attempts_max:
            return []
        # The caller of a forced rebalance waits for its end, also when nothing has moved.
        self._is_settled = False
        return [Blocked(reason)]

    def _reason(self) -> str:
        held = [f"{partition} is held by {holder}" for partition, holder in self.blocked_by.items()]
        held += [f"{partition} cannot be claimed: {problem}" for partition, problem in self._claims.problems.items()]
        more = f" and {len(held) - _NAMED_MAX} more" if len(held) > _NAMED_MAX else ""
        return ", ".join(held[:_NAMED_MAX]) + more if held else "the tree does not answer"

    def _next_id(self) -> int:
        self._ids_count += 1
        return self._ids_count

    def _next_claim(self) -> ClaimId:
        assert self._session_id is not None
        return ClaimId(self._session_id, self._next_id())

    def check_invariants(self) -> None:
        """What must hold between calls; for tests."""
        self._claims.check_invariants()
        assert self._session_id is not None or (self._claims.is_empty and not self.hand_out_until_ms)
        assert not self._is_settled or self._claims.is_at_target
