"""All streams of a connector behind one lock: users' threads ask, the membership tells, the fetch thread brings.

No method waits, or asks anybody over the network.  The lock is taken for each batch, never for each message.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ottla.client.errors import OffsetOutOfRange
from ottla.client.fetch import FetchedPartition
from ottla.client.membership.membership import CommitRefused, Event, Failed, Membership
from ottla.client.streams.errors import CommitFailed, ConsumerClosed, NoPosition, NotAssigned, PoisonMessage
from ottla.client.streams.places import Target
from ottla.client.streams.reading import CommitOutcome, HandOut, Reading
from ottla.client.streams.settings import RESET_QUESTIONS, StreamSettings
from ottla.client.streams.stream_feed import StreamFeed
from ottla.consumers.effects import Blocked, Committed, Left, Lost, Released, Revoke, Settled, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.stream_id import StreamId
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

_NS_IN_MS: Final = 1_000_000
_HINT_OF_COMMITS: Final = "messages from the last committed offset on may be handed out again, here or elsewhere"


class StreamEnded(Exception):
    """The connector was closed: the stream has nothing more."""


class FetchOrder(NamedTuple):
    """What is to be fetched of a partition from now on: from `offset`, or from the answer to `question`."""

    token: int
    offset: int
    question: int | None


class StreamsEngine:
    """`feed_of` names the stream of a `Start`."""

    def __init__(
        self,
        membership: Membership,
        settings: StreamSettings,
        feeds: Sequence[StreamFeed],
        feed_of: Callable[[TopicPartition, StreamId], StreamFeed],
        clock: Clock,
    ) -> None:
        self.lock = threading.Lock()
        # For those who wait for outcomes of commits, and for the end.
        self.news = threading.Condition(self.lock)
        # Called when the fetch thread has something to do, and when a time is due earlier.
        self.on_orders: Callable[[], None] = lambda: None
        self.on_due: Callable[[], None] = lambda: None
        self.blocked_reason: str | None = None
        self.has_left = False
        self._membership = membership
        self._settings = settings
        self._feeds = feeds
        self._feed_of = feed_of
        self._clock = clock
        self._pid = os.getpid()
        self._tokens = itertools.count(1)
        self._owners: dict[TopicPartition, tuple[StreamFeed, Reading]] = {}
        self._changed: set[TopicPartition] = set()
        self._error: OttlaError | None = None
        self._is_closing = False
        self._closer: int | None = None
        # Whose fetches are in flight, and whose have brought what is put to the others next.
        self._flying: dict[TopicPartition, tuple[StreamFeed, Reading]] = {}
        self._landed: dict[TopicPartition, tuple[StreamFeed, Reading]] = {}
        self._commit_at_ms = clock.monotonic_ms() + settings.auto_commit_interval_ms
        # What the membership is to be told, in this order, without the lock.
        self._outbox: deque[Callable[[], None]] = deque()
        self._telling = threading.Lock()

    # --- users' threads ---------------------------------------------------------------------------------------------

    def ask(self, feed: StreamFeed) -> HandOut | None:
        """The next message is asked for: the next batch of them; None while nothing is there.

        Raises what stands in the way, and StreamEnded.
        """
        self._check_process()
        try:
            with self.lock:
                return self._ask(feed)
        finally:
            self.tell()

    def _ask(self, feed: StreamFeed) -> HandOut | None:
        feed.asker = threading.get_ident()
        reading = feed.settle()
        if reading is not None:
            self._answer(reading)
        if self._error is not None:
            raise self._error
        if self._is_closing:
            raise StreamEnded
        if not self.is_leased():
            return None
        until_ns = self._membership.hand_out_until_ms * _NS_IN_MS
        hand_out = feed.next_hand_out(until_ns)
        if feed.prefetched.take_wanted():
            self.on_orders()
        return hand_out

    def is_leased(self) -> bool:
        """Whether anything may be handed out now."""
        return self._clock.boottime_ms() < self._membership.hand_out_until_ms

    def may_hand_out(self, feed: StreamFeed, hand_out: HandOut) -> bool:
        """The moment `until_ns` has passed: may the message that was taken be handed out all the same?"""
        with self.lock:
            if hand_out.is_current and not self._is_closing and self.is_leased():
                hand_out.until_ns = self._membership.hand_out_until_ms * _NS_IN_MS
                return True
            feed.cut(hand_out)
            return False

    def on_poison(self, feed: StreamFeed, hand_out: HandOut, error: PoisonMessage, *, is_of_one_message: bool) -> bool:
        """Handing out met what cannot be read: is it to be raised?"""
        with self.lock:
            is_raised = feed.on_poison(hand_out, error, is_of_one_message=is_of_one_message)
            self._answer(hand_out.reading)
        self.tell()
        return is_raised

    def skip(self, feed: StreamFeed) -> None:
        self._check_process()
        with self.lock:
            reading, fetch_from = feed.skip()
            if fetch_from is not None:
                self._move(feed, reading, fetch_from, None)

    def seek(self, feed: StreamFeed, partitions: Iterable[TopicPartition] | None, target: Target) -> None:
        """Read on from there in these partitions, or in all that the stream has now."""
        self._check_process()
        with self.lock:
            readings = list(feed.readings.values()) if partitions is None else map(feed.reading_of, partitions)
            for reading in list(readings):
                self._move(feed, reading, *target)

    def position(self, feed: StreamFeed, partition: TopicPartition) -> int | None:
        with self.lock:
            reading = feed.reading_of(partition)
            return None if reading.question is not None or reading.asked_past == NO_OFFSET else reading.asked_past

    def _move(self, feed: StreamFeed, reading: Reading, offset: int, question: int | None) -> None:
        feed.drop(reading)
        if question is None:
            reading.move_to(offset, next(self._tokens))
        else:
            reading.move_to_answer(question, next(self._tokens))
        self._order(reading.partition)
        feed.ring()

    def _order(self, partition: TopicPartition) -> None:
        self._changed.add(partition)
        self.on_orders()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ConsumerClosed(
                "this process was forked from the one that opened the connector",
                hint="open a ConsumerConnector in each process, after the fork",
            )

    # --- commits ----------------------------------------------------------------------------------------------------

    def mark_done(self, feed: StreamFeed, partition: TopicPartition, offset: int) -> None:
        """The message and those before it are done.  Raises NotAssigned when the stream has not handed it out."""
        with self.lock:
            reading = feed.readings.get(partition)
            if reading is None or reading.is_answered or not reading.mark_done(offset):
                raise NotAssigned(
                    f"{partition}, offset {offset}: the partition has moved since this message was handed out"
                    if reading is None or reading.is_answered
                    else f"{partition}: the message at {offset} was not handed out by this stream"
                )

    def commit(self, feeds: Iterable[StreamFeed]) -> CommitOutcome:
        """Commit what was asked past; the outcome becomes known later."""
        self._check_process()
        outcome = CommitOutcome()
        with self.lock:
            self._check_open()
            self._commit([reading for feed in feeds for reading in feed.readings.values()], outcome)
        self.tell()
        return outcome

    def wait_for(self, outcome: CommitOutcome, timeout_ms: int | None) -> None:
        """Raises CommitFailed when something was not committed, or is not known to be in time."""
        with self.lock:
            self.news.wait_for(lambda: outcome.is_known, None if timeout_ms is None else timeout_ms / 1000)
            if not outcome.is_known:
                raise CommitFailed(
                    f"the group did not answer a commit within {timeout_ms} ms", hint="commit again: it may have failed"
                )
            if outcome.error is not None:
                raise CommitFailed(f"not committed: {outcome.error}", hint=_HINT_OF_COMMITS) from outcome.error

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closing:
            raise ConsumerClosed("the connector was closed")

    def _commit(self, readings: Iterable[Reading], outcome: CommitOutcome | None) -> None:
        offsets: list[tuple[TopicPartition, ClaimId, int]] = []
        for reading in readings:
            if reading.is_stopped:
                # It is committed with the release.
                if outcome is not None and not reading.is_answered:
                    reading.requested = reading.asked_past
                continue
            offset = reading.request(outcome)
            if offset is not None:
                offsets.append((reading.partition, reading.claim, offset))
        if offsets:
            self._outbox.append(lambda: self._membership.commit(offsets))

    # --- the clock --------------------------------------------------------------------------------------------------

    def on_time(self) -> int:
        """Commit and release what is due; gives the moment of the next, by `Clock.monotonic_ms`."""
        with self.lock:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._commit_at_ms:
                self._commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
                if self._settings.enable_auto_commit:
                    self._commit((each for _, each in self._owners.values() if not each.has_pending), None)
            next_ms = self._commit_at_ms
            for _, reading in self._owners.values():
                if reading.release_by_ms is not None and not reading.is_answered:
                    if now_ms >= reading.release_by_ms:
                        self._answer(reading, is_due=True)
                    else:
                        next_ms = min(next_ms, reading.release_by_ms)
        self.tell()
        return next_ms

    def _answer(self, reading: Reading, *, is_due: bool = False) -> None:
        """Say that a revoked reading has stopped, when nobody has a message of it in hand, or for too long."""
        if not reading.is_stopped or reading.is_answered or not (is_due or not reading.has_in_hand):
            return
        reading.is_answered = True
        offset = reading.asked_past if self._settings.enable_auto_commit else reading.requested
        self._outbox.append(lambda: self._membership.on_stopped(reading.partition, reading.claim, offset))

    def tell(self) -> None:
        """Tell the membership what it is to be told: one thread at a time, so in order; never with the lock held."""
        while self._outbox and self._telling.acquire(blocking=False):
            try:
                while self._outbox:
                    self._outbox.popleft()()
            finally:
                self._telling.release()

    # --- the membership's thread ------------------------------------------------------------------------------------

    def on_events(self, events: Sequence[Event]) -> None:
        with self.lock:
            for event in events:
                self._on_event(event)
            self.news.notify_all()
        self.tell()

    def _on_event(self, event: Event) -> None:
        match event:
            case Start():
                self._start(event)
            case Revoke(partition, claim):
                self._revoke(partition, claim)
            case Lost(partition, claim):
                error = CommitFailed(f"{partition} was lost to the group before it was known to be committed")
                self._end(partition, claim, NO_OFFSET, error)
            case Released(partition, claim, offset):
                self._end(partition, claim, offset, CommitFailed(f"{partition} was released at offset {offset}"))
            case Committed(partition, claim, offset):
                if (reading := self._reading(partition, claim)) is not None:
                    reading.on_committed(offset)
            case CommitRefused(partition, claim, offset, error):
                if (reading := self._reading(partition, claim)) is not None:
                    log.warning("commit.refused", extra={"partition": partition, "offset": offset, "reason": error})
                    reading.on_refused(offset, error)
            case Settled():
                self.blocked_reason = None
            case Blocked(reason):
                if reason != self.blocked_reason:
                    log.warning("rebalance.blocked", extra={"reason": reason})
                self.blocked_reason = reason
            case Left():
                self.has_left = True
            case Failed(error):
                self._fail(error)

    def on_failure(self, error: OttlaError) -> None:
        """Nothing is handed out any more, and whoever asks or waits gets this error."""
        with self.lock:
            self._fail(error)

    def _fail(self, error: OttlaError) -> None:
        self._error = self._error or error
        self.has_left = True
        for feed, reading in list(self._owners.values()):
            self._end(reading.partition, reading.claim, NO_OFFSET, error)
            feed.ring()
        for feed in self._feeds:
            feed.ring()
        self.news.notify_all()

    def _reading(self, partition: TopicPartition, claim: ClaimId) -> Reading | None:
        owner = self._owners.get(partition)
        return None if owner is None or owner[1].claim != claim else owner[1]

    def _start(self, start: Start) -> None:
        assert start.partition not in self._owners, f"{start.partition} has a claim"
        feed = self._feed_of(start.partition, start.stream)
        reading = Reading(start.partition, start.claim, start.offset, next(self._tokens))
        self._owners[start.partition] = (feed, reading)
        feed.add(reading)
        if start.offset == NO_OFFSET:
            self._reset(feed, reading, lambda: NoPosition(f"the group has no offset of {start.partition}"))
        self._order(start.partition)

    def _reset(self, feed: StreamFeed, reading: Reading, error: Callable[[], OttlaError]) -> None:
        """Begin where `auto_offset_reset` says."""
        question = RESET_QUESTIONS[self._settings.auto_offset_reset]
        if question is None:
            feed.on_unreadable(reading, error(), None)
            feed.ring()
        else:
            reading.move_to_answer(question, next(self._tokens))

    def _revoke(self, partition: TopicPartition, claim: ClaimId) -> None:
        owner = self._owners.get(partition)
        if owner is None or owner[1].claim != claim:
            return
        feed, reading = owner
        reading.stop()
        feed.drop(reading)
        self._order(partition)
        reading.release_by_ms = self._clock.monotonic_ms() + self._settings.release_wait_ms
        self._answer(reading, is_due=self._is_closing and feed.asker == self._closer)
        self.on_due()
        feed.ring()

    def _end(self, partition: TopicPartition, claim: ClaimId, released: int, error: OttlaError) -> None:
        owner = self._owners.get(partition)
        if owner is None or owner[1].claim != claim:
            return
        feed, reading = owner
        reading.stop()
        reading.is_answered = True
        reading.end(released, error)
        feed.remove(reading)
        del self._owners[partition]
        self._order(partition)

    # --- the fetch thread -------------------------------------------------------------------------------------------

    def take_orders(self) -> dict[TopicPartition, FetchOrder | None]:
        """What has changed since the last call; None: nothing is to be fetched of it."""
        with self.lock:
            changed, self._changed = self._changed, set()
            return {partition: self._order_of(partition) for partition in changed}

    def _order_of(self, partition: TopicPartition) -> FetchOrder | None:
        owner = self._owners.get(partition)
        if owner is None or owner[1].is_stopped:
            return None
        reading = owner[1]
        if reading.question is None and reading.asked_past == NO_OFFSET:
            return None  # only a seek helps
        return FetchOrder(reading.token, reading.asked_past, reading.question)

    def _owner(self, partition: TopicPartition, token: int) -> tuple[StreamFeed, Reading] | None:
        owner = self._owners.get(partition)
        return None if owner is None or owner[1].token != token or owner[1].is_stopped else owner

    def reserve(self, partition: TopicPartition) -> int:
        """`FetchRoom`: how much may be brought of this partition."""
        with self.lock:
            owner = self._owners.get(partition)
            if owner is None:
                return 0
            feed, reading = owner
            room = feed.prefetched.reserve(reading, feed.readings_wanted_count())
            if room:
                self._flying[partition] = owner
            return room

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        """`FetchRoom`: a fetch has ended, and brought so much, which `on_fetched` gives next."""
        with self.lock:
            feed, reading = self._flying.pop(partition)
            feed.prefetched.on_landed(reading, size_bytes)
            if size_bytes:
                self._landed[partition] = (feed, reading)

    def on_fetched(self, fetched: FetchedPartition, token: int | None) -> None:
        """Records have come, for the order with this token."""
        with self.lock:
            feed, reading = self._landed.pop(fetched.partition)
            if reading.token == token and not reading.is_stopped:
                feed.prefetched.put(reading, fetched)
                feed.ring()
                return
            feed.prefetched.forget_bytes(len(fetched.records))
            if token is not None and self._owner(fetched.partition, token) is not None:
                # It took off for the claim before, and the fetcher goes on behind it: what it brought is fetched again.
                self._order(fetched.partition)

    def on_answer(self, partition: TopicPartition, token: int, offset: int) -> None:
        """The question of the order is answered: the partition is fetched from `offset` on."""
        with self.lock:
            owner = self._owner(partition, token)
            if owner is None:
                return
            reading = owner[1]
            is_first = reading.asked_past == NO_OFFSET
            reading.move_to(offset, next(self._tokens))
            self._order(partition)
            if is_first:
                # Else "latest" would be another place at the next start.
                self._commit([reading], None)
        self.tell()

    def on_out_of_range(self, error: OffsetOutOfRange, token: int, log_range: range | None) -> None:
        """The log has not the offset that was ordered: it was deleted, or never was."""
        with self.lock:
            owner = self._owner(error.partition, token)
            if owner is None:
                return
            feed, reading = owner
            has = "" if log_range is None else f"; the log has {log_range.start} to {log_range.stop}, exclusive"
            text = f"{error.partition}: offset {error.offset} is not in the log{has}"
            policy = self._settings.auto_offset_reset
            if policy != "error":
                facts = {"partition": error.partition, "offset": error.offset, "to": policy}
                log.warning("position.reset", extra=facts)
            self._reset(feed, reading, lambda: NoPosition(text))
            self._order(error.partition)

    def on_unreadable(self, partition: TopicPartition, token: int, offset: int, error: OttlaError) -> None:
        """What lies at `offset` cannot be fetched, and trying again does not help."""
        with self.lock:
            owner = self._owner(partition, token)
            if owner is None:
                return
            feed, reading = owner
            if isinstance(error, WireError):
                poison = PoisonMessage(partition, offset, "what the broker has there is damaged", error)
                feed.on_unreadable(reading, poison, offset + 1)
            else:
                feed.on_unreadable(reading, error, None)
            feed.ring()

    # --- the end ----------------------------------------------------------------------------------------------------

    def begin_close(self, closer: int) -> bool:
        """Nothing more is handed out, and the membership gives everything back; False when that has begun before.

        `closer` is the thread that closes: it does not ask past what it has in hand itself.
        """
        with self.lock:
            if self._is_closing:
                return False
            self._is_closing = True
            self._closer = closer
            for _, reading in self._owners.values():
                if reading.hand_out is not None:
                    reading.hand_out.until_ns = 0
            for feed in self._feeds:
                feed.ring()
            if not self.has_left:
                self._outbox.append(self._membership.leave)
        self.tell()
        return True
