"""Known bugs, planted one at a time: each must break a promise within a bounded number of seeds.

The product has no switches for them: they are patched in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ottla.client.producing.produce_machine import ProduceMachine
from ottla.client.producing.produce_queue import PendingBatch, ProduceQueue
from ottla.client.producing.produce_requests import DeliveryStatus, ProduceAnswer
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ProducerStopped
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from tests.producer_simulation.plan import Plan
from tests.seeds.planted import Mutant

_take: Final = ProduceQueue.take
_put_back: Final = ProduceQueue.put_back
_answered: Final = ProduceMachine._answered
_can_be_split: Final = ProduceMachine._can_be_split
_on_lost: Final = ProduceMachine.on_lost


def take_without_advance(self: ProduceQueue) -> PendingBatch:
    """The parts of a split batch all get the number of the whole."""
    batch = _take(self)
    if len(batch.order) > 1:
        self._send_sequence = batch.base_sequence
    return batch


def insert_at_the_end(self: ProduceQueue, batches: Sequence[PendingBatch]) -> None:
    self.waiting.extend(batches)


def put_back_as_not_stored(self: ProduceQueue, batch: PendingBatch, *, may_be_stored: bool) -> None:
    """It is sent again with the next number, although it may be stored with the old one."""
    _put_back(self, batch, may_be_stored=False)
    self._send_sequence += 1
    self._expected_sequence = self._send_sequence


def put_back_while_others_fly(self: ProduceQueue, batch: PendingBatch, *, may_be_stored: bool) -> None:
    was_recovering = self._is_recovering
    _put_back(self, batch, may_be_stored=may_be_stored)
    self._is_recovering = was_recovering
    batch.may_be_stored = False


def no_halt(self: ProduceMachine, refused: PendingBatch, error: OttlaError) -> None:
    """Later batches of the partition are stored."""


def lose_the_oldest_only(self: ProduceMachine, leader_id: int, error: OttlaError) -> None:
    flights = self._flights.get(leader_id)
    if flights:
        oldest = flights.popleft()
        flights.clear()
        flights.append(oldest)
    _on_lost(self, leader_id, error)


def not_leader_is_not_stored(self: ProduceMachine, batch: PendingBatch, answer: ProduceAnswer) -> None:
    """A replaced leader's answer is taken as the proof that the batch is in no log."""
    error = answer.error
    if error is not None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        self._try_again(batch, error, may_be_stored=False)
    else:
        _answered(self, batch, answer)


def overlap_with_a_retry(self: ProduceQueue) -> bool:
    may_overlap = self._is_known_to_leader and not self._is_recovering
    return bool(self.waiting) and (may_overlap or not self.flying)


def overlap_over_leaders(self: ProduceQueue) -> bool:
    if not self.flying:
        return bool(self.waiting)
    may_overlap = self._is_known_to_leader and not self._is_recovering and not self.flying[0].may_be_stored
    return bool(self.waiting) and may_overlap and len(self.flying) < self._in_flight_max


def overlap_at_an_unknown_leader(self: ProduceQueue) -> bool:
    return bool(self.waiting) and (not self._is_recovering or not self.flying)


def split_while_halted(self: ProduceMachine, batch: PendingBatch) -> bool:
    return self._split is not None and batch.records_count > 1 and not batch.was_unanswered


def split_never_after_a_move(self: ProduceMachine, batch: PendingBatch) -> bool:
    """A batch that a broker refused since it did not lead is not split, which is a refusal for good."""
    return _can_be_split(self, batch) and not batch.may_be_stored


def may_be_stored_in_spite_of_its_content(self: ProduceMachine, batch: PendingBatch, error: BrokerRefused) -> bool:
    return not batch.may_be_stored


def expire_as_refused(self: ProduceMachine) -> None:
    """A batch without an answer is said not to be stored when its time is over."""
    for queue in list(self._open.values()):
        while queue.waiting and queue.waiting[0].give_up.has_passed:
            batch = queue.waiting[0]
            queue.drop_waiting(batch)
            self._settle(batch, DeliveryStatus.REFUSED, CallTimedOut("late"))


def expire_nothing(self: ProduceMachine) -> None:
    """Without a leader a batch waits for ever."""


def any_room(self: ProduceMachine, leader_id: int) -> bool:
    return True


def stop_without_the_flights(self: ProduceMachine, reason: str, cause: OttlaError | None) -> None:
    """Batches in flight are said not to be stored."""
    self.stopped = ProducerStopped(f"the producer stopped: {reason}")
    for queue in list(self._open.values()):
        for batch in queue.clear():
            self._settle(batch, DeliveryStatus.REFUSED, self.stopped)
    self._flights.clear()


def as_it_is(plan: Plan) -> Plan:
    return plan


def with_halts(plan: Plan) -> Plan:
    return replace(plan, is_idempotent=True, halts_on_refusal=True, poison_share=0.1, large_share=0.2)


def impatient(plan: Plan) -> Plan:
    return replace(
        plan,
        is_idempotent=True,
        delivery_timeout_ms=400,
        fault_interval_ms=40,
        fault_kinds=(*plan.fault_kinds, "move_leader", "leaderless"),
    )


def unsure(plan: Plan) -> Plan:
    return replace(plan, is_idempotent=True, unknown_share=0.2, max_in_flight=5, send_interval_ms=2)


def moving(plan: Plan) -> Plan:
    """Requests hang at a leader while the next one takes others."""
    return replace(
        unsure(plan),
        brokers_count=3,
        partitions_count=4,
        unknown_share=0,
        fault_kinds=("hang", "move_leader", "cut"),
        fault_interval_ms=40,
    )


def moving_with_refusals(plan: Plan) -> Plan:
    """Leaders move, metadata lags, and batches are refused for their content."""
    return replace(
        moving(plan),
        fault_kinds=("move_leader", "lagging_metadata"),
        halts_on_refusal=False,
        poison_share=0.1,
        large_share=0.2,
    )


def early(plan: Plan) -> Plan:
    """Many producers begin, and many of their first batches are refused for a time."""
    return replace(unsure(plan), refused_share=0.2, delivery_timeout_ms=400)


MUTANTS: Final = {
    mutant.bug: mutant
    for mutant in (
        Mutant("the number does not advance within a split", ((ProduceQueue, "take", take_without_advance),), as_it_is),
        Mutant("a retried batch goes to the end", ((ProduceQueue, "_insert", insert_at_the_end),), as_it_is),
        Mutant(
            "a batch that may be stored is renumbered",
            ((ProduceQueue, "put_back", put_back_as_not_stored),),
            unsure,
        ),
        Mutant(
            "a retry does not wait for what is in flight",
            ((ProduceQueue, "put_back", put_back_while_others_fly),),
            as_it_is,
        ),
        Mutant("a halt is forgotten", ((ProduceMachine, "_halt", no_halt),), with_halts),
        Mutant("a lost connection ends one request", ((ProduceMachine, "on_lost", lose_the_oldest_only),), as_it_is),
        Mutant(
            "the answer of a replaced leader is believed",
            ((ProduceMachine, "_answered", not_leader_is_not_stored),),
            impatient,
        ),
        Mutant(
            "later batches follow one that may be stored",
            ((ProduceQueue, "can_take", property(overlap_with_a_retry)),),
            unsure,
        ),
        Mutant(
            "only batches in flight are counted",
            ((ProduceQueue, "can_take", property(overlap_over_leaders)),),
            moving,
        ),
        Mutant(
            "first batches overlap",
            ((ProduceQueue, "can_take", property(overlap_at_an_unknown_leader)),),
            early,
        ),
        Mutant("a halted partition splits", ((ProduceMachine, "_can_be_split", split_while_halted),), with_halts),
        Mutant(
            "a batch is not split after a move",
            (
                (ProduceMachine, "_can_be_split", split_never_after_a_move),
                (ProduceMachine, "_proves_absence", may_be_stored_in_spite_of_its_content),
            ),
            moving_with_refusals,
        ),
        Mutant(
            "a refusal after a move stops the producer",
            ((ProduceMachine, "_proves_absence", may_be_stored_in_spite_of_its_content),),
            moving_with_refusals,
        ),
        Mutant("an expired batch counts as refused", ((ProduceMachine, "on_time", expire_as_refused),), impatient),
        Mutant("no batch expires", ((ProduceMachine, "on_time", expire_nothing),), impatient),
        Mutant("requests in flight are not counted", ((ProduceMachine, "has_room", any_room),), as_it_is),
        Mutant("a stop forgets what is in flight", ((ProduceMachine, "_stop", stop_without_the_flights),), impatient),
    )
}
