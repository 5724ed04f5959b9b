"""The unacknowledged batches of one partition: order and sequence numbers.  Pure.

An idempotent producer numbers the records of each partition; the leader accepts a batch only when its number follows
the last one, and recognises the last five batches (KIP-98).  So after any failure the rule is: wait until nothing of
the partition is in flight, then send the rest, in order.  A batch that may already be stored keeps its number, so that
the leader recognises it; one that certainly is not gets the next number.  A batch that may be stored is in flight
alone: the leader would forget it if later batches were stored after each attempt.

A leader without state of the producer accepts any first number.  So until one batch is acknowledged only one is in
flight: otherwise the second could be stored where the first was refused temporarily, and the order would be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.wire.retrying import Deadline
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

SEQUENCE_LIMIT: Final = 1 << 31


@dataclass(slots=True, eq=False)
class PendingBatch:
    """`base_sequence` is -1 until it is first sent.

    `may_be_stored`: an attempt had an unknown outcome, or the answer NOT_LEADER_OR_FOLLOWER: a leader that is replaced
    gives that for a batch that it has appended, too.  `was_unanswered`: an attempt had an unknown outcome; False while
    NOT_LEADER_OR_FOLLOWER is the only reason.

    `order`: its place in the queue; parts of a batch that was too large have further numbers after the whole's.
    `sequences_count`: the count of its numbers, one for each offset.  Here numbers rise without end, so that later ones
    are greater; on the wire they wrap at 2^31.
    """

    partition: TopicPartition
    batch: bytearray
    records_count: int
    sequences_count: int
    give_up: Deadline
    tag: object
    order: tuple[int, ...] = ()
    base_sequence: int = -1
    taken_number: int = -1
    may_be_stored: bool = False
    was_unanswered: bool = False
    last_error: OttlaError | None = None

    def on_failure(self, error: OttlaError) -> None:
        """An attempt to send it has failed."""
        self.last_error = error

    def on_unanswered(self) -> None:
        self.was_unanswered = True

    def doubt(self, *, may_be_stored: bool) -> None:
        """Once unknown stays unknown: a later attempt that certainly failed proves nothing about the first."""
        self.may_be_stored = self.may_be_stored or may_be_stored

    def prove_absent(self, *, of_all_attempts: bool) -> None:
        """It is in no log; unless `of_all_attempts`, an attempt without an answer keeps its doubt."""
        if of_all_attempts:
            self.was_unanswered = False
        if not self.was_unanswered:
            self.may_be_stored = False

    @property
    def next_sequence(self) -> int:
        return self.base_sequence + self.sequences_count

    @property
    def wire_sequence(self) -> int:
        return self.base_sequence % SEQUENCE_LIMIT


class ProduceQueue:
    """`waiting` and `flying` are in order; everything in `flying` was sent before everything in `waiting`.

    `in_flight_max`: of batches since the oldest in flight; of an idempotent producer no more than a leader recognises.
    """

    def __init__(self, in_flight_max: int = 5) -> None:
        self._in_flight_max = in_flight_max
        self.waiting: deque[PendingBatch] = deque()
        self.flying: deque[PendingBatch] = deque()
        self._added_count = 0
        self._taken_count = 0
        # The number that follows the last batch that was sent, and the greatest that follows an acknowledged one: a
        # batch can be acknowledged after its successors, when the answers to its first attempt were lost.
        self._send_sequence = 0
        self._expected_sequence = 0
        self._is_recovering = False
        self._is_known_to_leader = False

    def __len__(self) -> int:
        return len(self.waiting) + len(self.flying)

    def add(self, batch: PendingBatch) -> None:
        batch.order = (self._added_count,)
        self._added_count += 1
        self.waiting.append(batch)

    @property
    def can_take(self) -> bool:
        if not self.flying:
            return bool(self.waiting)
        may_overlap = self._is_known_to_leader and not self._is_recovering and not self.flying[0].may_be_stored
        # All that were sent since the oldest, acknowledged or not: that may be on its way to a former leader, and the
        # new one would forget it.
        sent_since = self._taken_count - self.flying[0].taken_number
        return bool(self.waiting) and may_overlap and sent_since < self._in_flight_max

    def take(self) -> PendingBatch:
        """The next batch to send; its `base_sequence` is the one to send it with."""
        assert self.can_take
        if self._is_recovering:
            self._is_recovering = False
            self._send_sequence = self._expected_sequence
        batch = self.waiting.popleft()
        if not batch.may_be_stored:
            batch.base_sequence = self._send_sequence
        # A number is never reused for another batch: the leader would take it for the first one.
        self._send_sequence = max(self._send_sequence, batch.next_sequence)
        batch.taken_number = self._taken_count
        self._taken_count += 1
        self.flying.append(batch)
        return batch

    def clear(self) -> list[PendingBatch]:
        """Every open batch, in order; the queue is empty afterwards."""
        batches = [*self.flying, *self.waiting]
        self.flying.clear()
        self.waiting.clear()
        return batches

    def acknowledge(self, batch: PendingBatch) -> None:
        self.flying.remove(batch)
        self._expected_sequence = max(self._expected_sequence, batch.next_sequence)
        self._is_known_to_leader = True

    def refuse(self, batch: PendingBatch) -> None:
        """It is not stored and will not be retried: later batches close the gap in the numbers."""
        self.flying.remove(batch)
        self._left_a_gap(batch)

    def replace(self, batch: PendingBatch, parts: Sequence[PendingBatch]) -> None:
        """It is not stored: these are sent in its place."""
        self.refuse(batch)
        self._insert(parts)

    def drop_waiting(self, batch: PendingBatch) -> None:
        """Its delivery time-out passed before it was sent (again)."""
        self.waiting.remove(batch)
        self._left_a_gap(batch)

    def _left_a_gap(self, gone: PendingBatch) -> None:
        """It is in no log.  So no leader has appended a later one and then answered NOT_LEADER_OR_FOLLOWER: its number
        did not follow, and every leader knows the numbers before two batches are in flight."""
        self._is_recovering = True
        for batch in self.waiting:
            if batch.order > gone.order:
                batch.prove_absent(of_all_attempts=False)

    def put_back(self, batch: PendingBatch, *, may_be_stored: bool) -> None:
        """Queue it again, before everything that was added after it."""
        self.flying.remove(batch)
        batch.doubt(may_be_stored=may_be_stored)
        self._insert([batch])
        self._is_recovering = True

    def _insert(self, batches: Sequence[PendingBatch]) -> None:
        """Each is in the order of `batches` before everything that was added after it."""
        later = [each for each in self.waiting if each.order > batches[-1].order]
        earlier = [each for each in self.waiting if each.order < batches[0].order]
        self.waiting = deque([*earlier, *batches, *later])

    def put_back_out_of_order(self, batch: PendingBatch) -> bool:
        """The leader reports that the number does not follow.  False when nothing explains that: it has lost the state.

        It is explained while an earlier batch is not settled, or when one was refused since this one was sent.
        """
        is_first = all(each.order > batch.order for each in self.waiting) and self.flying[0] is batch
        if is_first and batch.base_sequence == self._expected_sequence:
            return False
        if is_first:
            # The leader remembers five batches and would recognise it: it was never stored, although that was unknown
            # before.
            batch.prove_absent(of_all_attempts=True)
        self.put_back(batch, may_be_stored=False)
        return True
