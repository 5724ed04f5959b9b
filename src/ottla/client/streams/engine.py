"""All streams of a connector behind one lock: users' threads request messages, other threads bring events.

No method waits or makes a request.  The lock is taken for each batch, never for each message.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ottla.client.membership.membership import CommitRefused, Event, Failed, Membership
from ottla.client.streams.assignments import Assigned, Assignments
from ottla.client.streams.errors import CommitFailed, ConsumerClosed, NotAssigned, PoisonMessage
from ottla.client.streams.fetch_scheduler import FetchScheduler
from ottla.client.streams.reading import CommitOutcome, HandOut, Reading
from ottla.client.streams.seek_target import Target
from ottla.client.streams.settings import StreamSettings
from ottla.client.streams.stream_feed import StreamFeed
from ottla.consumers.effects import Blocked, Committed, Left, Lost, Released, Revoke, Settled, Start
from ottla.consumers.stream_id import StreamId
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

_NS_IN_MS: Final = 1_000_000
_HINT_OF_COMMITS: Final = "messages from the last committed offset on may be handed out again, here or elsewhere"


class StreamEnded(Exception):
    """The connector was closed: the stream has nothing more."""


class StreamsEngine:
    """`feed_of` names the stream of a `Start`."""

    def __init__(
        self,
        membership: Membership,
        settings: StreamSettings,
        feeds: Sequence[StreamFeed],
        feed_of: Callable[[TopicPartition, StreamId], StreamFeed],
        clock: Clock,
        *,
        on_orders: Callable[[], None] = lambda: None,
        on_due: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_orders` is called when the fetch thread has something to do, `on_due` when a time is due earlier than it
        was.
        """
        self.lock = threading.Lock()
        # For those who wait for outcomes of commits, and for the end.
        self.news = threading.Condition(self.lock)
        self._on_orders = on_orders
        self._on_due = on_due
        self.blocked_reason: str | None = None
        self.has_left = False
        self._membership = membership
        self._feeds = feeds
        self._feed_of = feed_of
        self._clock = clock
        self._pid = os.getpid()
        self._assignments = Assignments(membership, settings, clock.monotonic_ms(), on_orders)
        self.fetching = FetchScheduler(self.lock, self._assignments, self.make_calls)
        self._error: OttlaError | None = None
        self._is_closing = False
        self._closer: int | None = None
        self._calling = threading.Lock()

    # --- users' threads ---------------------------------------------------------------------------------------------

    def ask(self, feed: StreamFeed) -> HandOut | None:
        """The next message is asked for: the next batch of them; None while nothing is there.

        Raises what prevents it, and StreamEnded.
        """
        self._check_process()
        try:
            with self.lock:
                return self._ask(feed)
        finally:
            self.make_calls()

    def _ask(self, feed: StreamFeed) -> HandOut | None:
        feed.asker = threading.get_ident()
        if feed.is_asking:
            # The last time was interrupted: what it took was not handed out.
            self._assignments.read_again(feed, feed.readings.values())
        feed.is_asking = True
        try:
            hand_out = self._next_hand_out(feed)
        except Exception:
            feed.is_asking = False
            raise
        feed.is_asking = False
        return hand_out

    def _next_hand_out(self, feed: StreamFeed) -> HandOut | None:
        last = feed.settle()
        if last is not None:
            self._assignments.answer(last.reading)
            if last.is_broken_off:
                self._assignments.read_again(feed, [last.reading])
        if self._error is not None:
            raise self._error
        if self._is_closing:
            raise StreamEnded
        if not self.is_leased():
            return None
        until_ns = self._membership.hand_out_until_ms * _NS_IN_MS
        hand_out = feed.next_hand_out(until_ns)
        if feed.prefetched.take_wanted():
            self._on_orders()
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
            self._assignments.answer(hand_out.reading)
        self.make_calls()
        return is_raised

    def skip(self, feed: StreamFeed) -> None:
        self._check_process()
        with self.lock:
            reading, fetch_from = feed.skip()
            if fetch_from is not None:
                self._assignments.move(Assigned(feed, reading), Target(fetch_from, None))

    def seek(self, feed: StreamFeed, partitions: Iterable[TopicPartition] | None, target: Target) -> None:
        """Read on from there in these partitions, or in all that the stream has now."""
        self._check_process()
        with self.lock:
            readings = list(feed.readings.values()) if partitions is None else map(feed.reading_of, partitions)
            for reading in list(readings):
                self._assignments.move(Assigned(feed, reading), target)

    def position(self, feed: StreamFeed, partition: TopicPartition) -> int | None:
        with self.lock:
            reading = feed.reading_of(partition)
            return None if reading.question is not None or reading.asked_past == NO_OFFSET else reading.asked_past

    @property
    def is_of_this_process(self) -> bool:
        """After a fork the child has none of the threads, and locks that no thread releases."""
        return os.getpid() == self._pid

    def _check_process(self) -> None:
        if not self.is_of_this_process:
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
            readings = [each for feed in feeds for each in feed.readings.values()]
            if self._error is not None:
                raise self._error
            if self._is_closing and not readings:
                raise ConsumerClosed("the connector was closed")
            self._assignments.commit(readings, outcome)
        self.make_calls()
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

    # --- the clock --------------------------------------------------------------------------------------------------

    def on_time(self) -> int:
        """Commit and give back what is due; gives the moment of the next, by `Clock.monotonic_ms`."""
        with self.lock:
            next_ms = self._assignments.on_time(self._clock.monotonic_ms())
        self.make_calls()
        return next_ms

    def make_calls(self) -> None:
        """Make the calls of the membership that are due: one thread at a time, so in order; not with the lock held."""
        calls = self._assignments.due_calls
        while calls and self._calling.acquire(blocking=False):
            try:
                while calls:
                    calls.popleft()()
            finally:
                self._calling.release()

    # --- the membership's thread ------------------------------------------------------------------------------------

    def on_events(self, events: Sequence[Event]) -> None:
        with self.lock:
            for event in events:
                self._on_event(event)
            self.news.notify_all()
        self.make_calls()

    def _on_event(self, event: Event) -> None:
        match event:
            case Start():
                self._assignments.start(event, self._feed_of(event.partition, event.stream))
            case Revoke(partition, claim) | Lost(partition, claim) | Released(partition, claim):
                if (assigned := self._assignments.of_claim(partition, claim)) is not None:
                    self._on_end(event, assigned)
            case Committed(partition, claim) | CommitRefused(partition, claim):
                if (assigned := self._assignments.of_claim(partition, claim)) is not None:
                    self._on_outcome(event, assigned.reading)
            case Settled():
                self.blocked_reason = None
            case Blocked(reason):
                if reason != self.blocked_reason:
                    log.warning("a rebalance does not end: %s", reason)
                self.blocked_reason = reason
            case Left():
                self.has_left = True
            case Failed(error):
                self._fail(error)

    def _on_end(self, event: Revoke | Lost | Released, assigned: Assigned) -> None:
        match event:
            case Revoke():
                waits = not (self._is_closing and assigned.feed.asker == self._closer)
                self._assignments.revoke(assigned, self._clock.monotonic_ms(), waits=waits)
                self._on_due()
            case Lost(partition):
                error = CommitFailed(f"{partition} was lost to the group before it was known to be committed")
                self._assignments.end(assigned, NO_OFFSET, error)
            case Released(partition, _, offset):
                error = CommitFailed(f"{partition} was given back at offset {offset}")
                self._assignments.end(assigned, offset, error)

    def _on_outcome(self, event: Committed | CommitRefused, reading: Reading) -> None:
        if isinstance(event, Committed):
            reading.on_committed(event.offset)
        else:
            log.warning("offset %d of %s was not committed: %s", event.offset, event.partition, event.error)
            reading.on_refused(event.offset, event.error)

    def on_failure(self, error: OttlaError) -> None:
        """A thread of the connector has ended: streams raise this error.  The membership continues until `close`."""
        with self.lock:
            self._raise_from_now_on(error)

    def _raise_from_now_on(self, error: OttlaError) -> None:
        self._error = self._error or error
        for feed in self._feeds:
            feed.ring()
        self.news.notify_all()

    def _fail(self, error: OttlaError) -> None:
        self.has_left = True
        for assigned in self._assignments.all():
            self._assignments.end(assigned, NO_OFFSET, error)
        self._raise_from_now_on(error)

    # --- the end ----------------------------------------------------------------------------------------------------

    def begin_close(self, closer: int) -> bool:
        """Nothing more is handed out, and the membership gives everything back; False when that has started before.

        `closer` is the thread that closes: it does not ask past what it has in hand itself.
        """
        with self.lock:
            if self._is_closing:
                return False
            self._is_closing = True
            self._closer = closer
            for _, reading in self._assignments.all():
                if reading.hand_out is not None:
                    reading.hand_out.until_ns = 0
            for feed in self._feeds:
                feed.ring()
            if not self.has_left:
                self._assignments.due_calls.append(self._membership.leave)
        self.make_calls()
        return True
