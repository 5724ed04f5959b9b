"""What the group has given a connector's streams, and the calls and orders that follow for membership and fetch thread.

Pure.  The caller holds the lock of the engine.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.client.membership.membership import Membership
from ottla.client.streams.errors import NoPosition, PoisonMessage
from ottla.client.streams.reading import CommitOutcome, Reading
from ottla.client.streams.seek_target import Target
from ottla.client.streams.settings import RESET_QUESTIONS, StreamSettings
from ottla.client.streams.stream_feed import StreamFeed
from ottla.client.wire.errors import OffsetOutOfRange
from ottla.consumers.effects import Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import NO_OFFSET, TopicPartition

log = logging.getLogger(__name__)


class FetchOrder(NamedTuple):
    """Fetch a partition from now on: from `offset`, or from the answer to `question`."""

    token: int
    offset: int
    question: int | None


class Assigned(NamedTuple):
    """A partition, and the stream that reads it."""

    feed: StreamFeed
    reading: Reading


class Assignments:
    """`due_calls` are of the membership, in order; `on_orders` is called when there are new orders."""

    def __init__(
        self, membership: Membership, settings: StreamSettings, now_ms: int, on_orders: Callable[[], None]
    ) -> None:
        self.due_calls: deque[Callable[[], None]] = deque()
        self._on_orders = on_orders
        self._membership = membership
        self._settings = settings
        self._tokens = itertools.count(1)
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._changed: set[TopicPartition] = set()
        self._commit_at_ms = now_ms + settings.auto_commit_interval_ms

    def all(self) -> list[Assigned]:
        return list(self._assigned.values())

    def of(self, partition: TopicPartition) -> Assigned | None:
        """The stream that reads it now, and may continue."""
        assigned = self._assigned.get(partition)
        return None if assigned is None or assigned.reading.is_stopped else assigned

    def of_claim(self, partition: TopicPartition, claim: ClaimId) -> Assigned | None:
        assigned = self._assigned.get(partition)
        return None if assigned is None or assigned.reading.claim != claim else assigned

    def of_order(self, partition: TopicPartition, token: int) -> Assigned | None:
        assigned = self.of(partition)
        return None if assigned is None or assigned.reading.token != token else assigned

    # --- what the group does ----------------------------------------------------------------------------------------

    def start(self, start: Start, feed: StreamFeed) -> None:
        assert start.partition not in self._assigned, f"{start.partition} has a claim"
        reading = Reading(start.partition, start.claim, start.offset, next(self._tokens))
        self._assigned[start.partition] = Assigned(feed, reading)
        feed.add(reading)
        if start.offset != NO_OFFSET:
            self.order(start.partition)
        else:
            self._reset(feed, reading, NoPosition(f"the group has no offset of {start.partition}"))

    def revoke(self, assigned: Assigned, now_ms: int, *, waits: bool) -> None:
        """Nothing more is handed out; if it `waits`, then for the message in hand, but not for ever."""
        feed, reading = assigned
        reading.stop()
        feed.drop(reading)
        self.order(reading.partition)
        reading.release_by_ms = now_ms + self._settings.release_wait_ms
        self.answer(reading, is_due=not waits)
        feed.ring()

    def end(self, assigned: Assigned, released: int, error: OttlaError) -> None:
        """The claim is over; `released` is what the group has then, NO_OFFSET if that is not known."""
        feed, reading = assigned
        reading.stop()
        reading.is_answered = True
        reading.end(released, error)
        feed.remove(reading)
        del self._assigned[reading.partition]
        self.order(reading.partition)

    # --- calls of the membership ------------------------------------------------------------------------------------

    def answer(self, reading: Reading, *, is_due: bool = False) -> None:
        """Report that a revoked reading has stopped, when no message of it is in hand, or for too long."""
        if not reading.is_stopped or reading.is_answered or not (is_due or not reading.has_in_hand):
            return
        reading.is_answered = True
        offset = reading.asked_past if self._settings.enable_auto_commit else reading.requested
        self.due_calls.append(lambda: self._membership.on_stopped(reading.partition, reading.claim, offset))

    def commit(self, readings: Iterable[Reading], outcome: CommitOutcome | None) -> None:
        """What was asked past; a reading that is being given back is committed with its release."""
        offsets: list[tuple[TopicPartition, ClaimId, int]] = []
        for reading in readings:
            if reading.is_stopped:
                if outcome is not None:
                    self._commit_with_release(reading, outcome)
                continue
            offset = reading.request(outcome)
            if offset is not None:
                offsets.append((reading.partition, reading.claim, offset))
        if offsets:
            self.due_calls.append(lambda: self._membership.commit(offsets))

    def _commit_with_release(self, reading: Reading, outcome: CommitOutcome) -> None:
        """A message in hand delays the release: the thread that has it must not wait for that."""
        if not reading.is_answered:
            reading.requested = reading.asked_past
        if not reading.has_in_hand:
            reading.await_release(outcome)
            self.answer(reading)

    def on_time(self, now_ms: int) -> int:
        """Commit and give back what is due; gives the moment of the next."""
        if now_ms >= self._commit_at_ms:
            self._commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
            if self._settings.enable_auto_commit:
                # One commit of a partition is under way at a time: a group that does not answer makes no heap of them.
                self.commit((each.reading for each in self.all() if not each.reading.has_pending), None)
        next_ms = self._commit_at_ms
        for _, reading in self.all():
            if reading.release_by_ms is not None and not reading.is_answered:
                if now_ms >= reading.release_by_ms:
                    self.answer(reading, is_due=True)
                else:
                    next_ms = min(next_ms, reading.release_by_ms)
        return next_ms

    # --- orders for the fetch thread --------------------------------------------------------------------------------

    def order(self, partition: TopicPartition) -> None:
        """The partition needs another order."""
        self._changed.add(partition)
        self._on_orders()

    def take_orders(self) -> dict[TopicPartition, FetchOrder | None]:
        """What has changed since the last call; None: fetch nothing of it."""
        changed, self._changed = self._changed, set()
        return {partition: self._order_of(partition) for partition in changed}

    def _order_of(self, partition: TopicPartition) -> FetchOrder | None:
        assigned = self.of(partition)
        if assigned is None:
            return None
        reading = assigned.reading
        if reading.question is None and reading.asked_past == NO_OFFSET:
            return None  # only a seek helps
        return FetchOrder(reading.token, reading.asked_past, reading.question)

    def move(self, assigned: Assigned, target: Target) -> None:
        """Read on from there: what was fetched is forgotten."""
        feed, reading = assigned
        feed.drop(reading)
        if target.question is None:
            reading.move_to(target.offset, next(self._tokens))
        else:
            reading.move_to_answer(target.question, next(self._tokens))
        self.order(reading.partition)
        feed.ring()

    def read_again(self, feed: StreamFeed, readings: Iterable[Reading]) -> None:
        """From what was asked past on."""
        for reading in list(readings):
            if not reading.is_stopped and reading.question is None and reading.asked_past != NO_OFFSET:
                self.move(Assigned(feed, reading), Target(reading.asked_past, None))

    # --- what the fetch thread found out ----------------------------------------------------------------------------

    def on_place(self, assigned: Assigned, offset: int) -> None:
        """The question of the order is answered."""
        reading = assigned.reading
        is_first = reading.asked_past == NO_OFFSET
        reading.move_to(offset, next(self._tokens))
        self.order(reading.partition)
        if is_first:
            # Else "latest" would be another place at the next start.
            self.commit([reading], None)

    def on_out_of_range(self, assigned: Assigned, error: OffsetOutOfRange, log_range: range | None) -> None:
        """The log has not the offset that was ordered: it was deleted, or never was."""
        has = "" if log_range is None else f"; the log has {log_range.start} to {log_range.stop}, exclusive"
        text = f"{error.partition}: offset {error.offset} is not in the log{has}"
        policy = self._settings.auto_offset_reset
        if policy != "error":
            log.warning("%s: reading continues at the %s one, as auto_offset_reset says", text, policy)
        self._reset(*assigned, NoPosition(text))

    def _reset(self, feed: StreamFeed, reading: Reading, error: NoPosition) -> None:
        """Begin where `auto_offset_reset` says."""
        question = RESET_QUESTIONS[self._settings.auto_offset_reset]
        if question is None:
            feed.on_unreadable(reading, error, None)
        else:
            self.move(Assigned(feed, reading), Target(NO_OFFSET, question))

    def on_unreadable(self, assigned: Assigned, offset: int, error: OttlaError) -> None:
        """The records at `offset` cannot be fetched, and trying again does not help."""
        feed, reading = assigned
        if isinstance(error, WireError):
            poison = PoisonMessage(reading.partition, offset, "what the broker has there is damaged", error)
            feed.on_unreadable(reading, poison, offset + 1)
        else:
            feed.on_unreadable(reading, error, None)
