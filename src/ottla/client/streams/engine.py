"""A connector's machine under one lock: users' threads request messages, other threads bring events.

No method waits or makes a request, except `wait_for`.  The lock is taken for each batch, never for each message.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ottla.client.groups.group_types import CommittedOffset, GroupOffsets
from ottla.client.membership.membership import Event, Membership
from ottla.client.streams.consume_machine import (
    CommitOffsets,
    ConsumeMachine,
    LeaveGroup,
    MembershipCall,
    ReportStopped,
)
from ottla.client.streams.consumer_metrics import ConsumerMetrics
from ottla.client.streams.errors import (
    CommitFailed,
    ConsumerClosed,
    NotAssigned,
    PoisonMessage,
    RebalanceInProgress,
)
from ottla.client.streams.reading import CommitOutcome, HandOut
from ottla.client.streams.rebalance_changes import Changes
from ottla.client.streams.seek_target import Target
from ottla.client.streams.settings import StreamSettings
from ottla.client.streams.stream_buffer import StreamBuffer
from ottla.client.wire.request_metrics import RequestMetrics
from ottla.consumers.share import StreamId
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import Clock

_NS_IN_MS: Final = 1_000_000
_HINT_OF_COMMITS: Final = "messages from the last committed offset on may be handed out again, here or elsewhere"


class StreamsEngine:
    """`buffer_of` names the stream of a `Start`."""

    def __init__(
        self,
        membership: Membership,
        settings: StreamSettings,
        buffers: Sequence[StreamBuffer],
        buffer_of: Callable[[TopicPartition, StreamId], StreamBuffer],
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
        now_ms = clock.monotonic_ms()
        self._machine = ConsumeMachine(settings, buffers, buffer_of, now_ms, on_orders=on_orders, on_due=on_due)
        self._membership = membership
        self._clock = clock
        self._pid = os.getpid()
        self._calling = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[ConsumeMachine]:
        """The machine, for the fetch thread; then the calls of the membership that follow."""
        try:
            with self.lock:
                yield self._machine
        finally:
            self._make_calls()

    @property
    def blocked_reason(self) -> str | None:
        return self._machine.blocked_reason

    @property
    def has_left(self) -> bool:
        return self._machine.has_left

    def next_hand_out(self, buffer: StreamBuffer, *, holds: bool = False, has_some: bool = False) -> HandOut | None:
        """The next batch of a stream, for this thread; None while nothing is there, or the user's code must be notified
        of changes first.

        `holds`: none of its messages counts as passed before the next request without `has_some`, or `begin_many`.
        `has_some`: messages that are held were taken.  Raises what prevents it, and StreamEnded.
        """
        self._check_process()
        try:
            with self.lock:
                until_ns = self._leased_until_ns()
                return self._machine.next_hand_out(
                    buffer, threading.get_ident(), until_ns, holds=holds, has_some=has_some
                )
        finally:
            self._make_calls()

    def begin_many(self, buffer: StreamBuffer) -> None:
        """What was handed out so far is passed; what is handed out from now on is held."""
        with self._then_calls():
            self._machine.begin_many(buffer)

    def pass_held(self, buffer: StreamBuffer) -> None:
        with self._then_calls():
            self._machine.pass_held(buffer)

    def take_back(self, buffer: StreamBuffer) -> None:
        """What is held did not reach the user: it is handed out again."""
        with self._then_calls():
            self._machine.take_back(buffer)

    def pause(
        self,
        buffer: StreamBuffer,
        partitions: Collection[TopicPartition] | None,
        may_start: Collection[TopicPartition] = (),
    ) -> None:
        """Of all that are read now, or of these; those of `may_start` may not have started.  Raises NotAssigned."""
        with self._then_calls():
            self._machine.pause(buffer, partitions, may_start)

    def resume(
        self,
        buffer: StreamBuffer,
        partitions: Collection[TopicPartition] | None,
        may_start: Collection[TopicPartition] = (),
    ) -> None:
        with self._then_calls():
            self._machine.resume(buffer, partitions, may_start)

    def paused(self, buffer: StreamBuffer) -> list[TopicPartition]:
        with self.lock:
            return self._machine.paused(buffer)

    def start_at(self, buffer: StreamBuffer, partition: TopicPartition, target: Target) -> None:
        """`seek` in a partition that was assigned by the user, whether it has started or not."""
        with self._then_calls():
            self._machine.start_at(buffer, partition, target)

    def forget_places(self) -> None:
        with self.lock:
            self._machine.forget_places()

    def take_changes(self, buffer: StreamBuffer) -> Changes:
        """What the user's code must be notified of; then `on_notified`."""
        with self.lock:
            return self._machine.take_changes(buffer)

    def on_notified(self, buffer: StreamBuffer, revoked: Iterable[TopicPartition]) -> None:
        """The user's code has run: these are given back."""
        with self._then_calls():
            self._machine.on_notified(buffer, revoked)

    @contextmanager
    def _then_calls(self) -> Iterator[None]:
        """With the lock; then the calls of the membership that follow."""
        self._check_process()
        try:
            with self.lock:
                yield
        finally:
            self._make_calls()

    def metrics(self, requests: RequestMetrics) -> ConsumerMetrics:
        with self.lock:
            return self._machine.metrics(requests)

    def is_leased(self) -> bool:
        """Whether anything may be handed out now."""
        return self._leased_until_ns() is not None

    def _leased_until_ns(self) -> int | None:
        until_ms = self._membership.hand_out_until_ms
        return until_ms * _NS_IN_MS if self._clock.boottime_ms() < until_ms else None

    def may_hand_out(self, buffer: StreamBuffer, hand_out: HandOut) -> bool:
        """The moment `until_ns` has passed: may the message that was taken be handed out all the same?"""
        with self.lock:
            return self._machine.may_hand_out(buffer, hand_out, self._leased_until_ns())

    def on_poison(
        self, buffer: StreamBuffer, hand_out: HandOut, error: PoisonMessage, *, is_of_one_message: bool
    ) -> bool:
        """Handing out met what cannot be read: is it to be raised?"""
        with self.lock:
            is_raised = self._machine.on_poison(buffer, hand_out, error, is_of_one_message=is_of_one_message)
        self._make_calls()
        return is_raised

    def skip(self, buffer: StreamBuffer) -> None:
        self._check_process()
        with self.lock:
            self._machine.skip(buffer)

    def seek(self, buffer: StreamBuffer, partitions: Iterable[TopicPartition] | None, target: Target) -> None:
        """Read on from there in these partitions, or in all that the stream has now."""
        self._check_process()
        with self.lock:
            self._machine.seek(buffer, partitions, target)

    def position(self, buffer: StreamBuffer, partition: TopicPartition) -> int | None:
        with self.lock:
            reading = buffer.reading_of(partition)
            return None if reading.question is not None or reading.passed_end == NO_OFFSET else reading.passed_end

    def read_position(self, buffer: StreamBuffer, partition: TopicPartition) -> int | None:
        """The offset after the message that was handed out last; None while it is not known.  Raises NotAssigned."""
        with self.lock:
            return buffer.reading_of(partition).known_position

    def read_positions(self, buffer: StreamBuffer) -> dict[TopicPartition, int | None]:
        """`read_position` of all partitions that are read now."""
        with self.lock:
            return {each.partition: each.known_position for each in buffer.readings_of(None)}

    @property
    def is_of_this_process(self) -> bool:
        """After a fork the child has none of the threads, and locks that no thread releases."""
        return os.getpid() == self._pid

    def _check_process(self) -> None:
        if not self.is_of_this_process:
            raise ConsumerClosed(
                "this process was forked from the one that opened the consumer",
                hint="open one in each process, after the fork",
            )

    def mark_done(self, buffer: StreamBuffer, partition: TopicPartition, offset: int) -> None:
        """The message and those before it are done.  Raises NotAssigned when the stream has not handed it out."""
        with self.lock:
            self._machine.mark_done(buffer, partition, offset)

    def group_offsets(self, buffers: Sequence[StreamBuffer], timeout_ms: int | None) -> GroupOffsets:
        """What was passed, for a transaction, as the member that owns these partitions.

        The membership is read before any event that follows can be taken: once a partition is released, the group
        refuses offsets with it.
        """
        self._check_process()
        with self.lock:
            has_none = self.news.wait_for(
                lambda: not self._machine.has_pending_commit(buffers), None if timeout_ms is None else timeout_ms / 1000
            )
            if not has_none:
                raise CommitFailed(
                    f"the group did not answer an earlier commit within {timeout_ms} ms",
                    hint="it could set back the offsets of the transaction: abort that, and try again",
                )
            member = self._membership.group_metadata()
            offsets = self._machine.take_offsets(buffers)
            if member is None:
                raise NotAssigned("the consumer is not a member of its group now")
        return GroupOffsets(member, {partition: CommittedOffset(offset) for partition, offset in offsets.items()})

    def commit(self, buffers: Iterable[StreamBuffer]) -> CommitOutcome:
        """Commit what was passed; the outcome becomes known later."""
        self._check_process()
        with self.lock:
            outcome = self._machine.commit(buffers)
        self._make_calls()
        return outcome

    def commit_all(self, buffer: StreamBuffer) -> CommitOutcome:
        """Commit everything that was returned; the outcome becomes known later."""
        with self._then_calls():
            self._machine.mark_all_done(buffer)
            return self._machine.commit([buffer])

    def commit_offsets(self, buffer: StreamBuffer, offsets: Mapping[TopicPartition, int]) -> CommitOutcome:
        """Commit these; the outcome becomes known later.  Raises NotAssigned."""
        with self._then_calls():
            return self._machine.commit_offsets(buffer, offsets)

    def await_releases(self, buffer: StreamBuffer, outcome: CommitOutcome) -> bool:
        """Whether the user's code must run before `outcome` is known, and may."""
        with self.lock:
            return self._machine.await_releases(buffer, outcome)

    def mark_all_done(self, buffer: StreamBuffer) -> None:
        """Everything that was returned is done."""
        with self.lock:
            self._machine.mark_all_done(buffer)

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

    def check_not_deferred(self, outcome: CommitOutcome) -> None:
        """Raises RebalanceInProgress where a commit that was waited for is not made yet."""
        if outcome.deferred:
            partitions = ", ".join(map(str, sorted(outcome.deferred)))
            raise RebalanceInProgress(f"not committed yet, but with the end of the rebalance: {partitions}")

    def on_time(self) -> int:
        """Commit and give back what is due; gives the moment of the next, by `Clock.monotonic_ms`."""
        with self.lock:
            next_ms = self._machine.on_time(self._clock.monotonic_ms())
        self._make_calls()
        return next_ms

    def on_events(self, events: Sequence[Event]) -> None:
        """By the membership's thread."""
        with self.lock:
            for event in events:
                self._machine.on_event(event, self._clock.monotonic_ms())
            self.news.notify_all()
        self._make_calls()

    def on_failure(self, error: OttlaError) -> None:
        """A thread of the connector has ended: streams raise this error.  The membership continues until `close`."""
        with self.lock:
            self._machine.fail(error)
            self.news.notify_all()

    def begin_close(self, closer: int) -> bool:
        """Nothing more is handed out, and the membership gives everything back; False when that has started before.

        `closer` is the thread that closes: it does not pass what it has in hand itself.
        """
        with self.lock:
            has_begun = self._machine.begin_close(closer)
        self._make_calls()
        return has_begun

    def _make_calls(self) -> None:
        """Make the calls of the membership that are due: one thread at a time, so in order; not with the lock held."""
        calls = self._machine.due_calls
        while calls and self._calling.acquire(blocking=False):
            try:
                while calls:
                    self._make_call(calls.popleft())
            finally:
                self._calling.release()

    def _make_call(self, call: MembershipCall) -> None:
        match call:
            case CommitOffsets(offsets):
                self._membership.commit(offsets)
            case ReportStopped(partition, claim, offset):
                self._membership.on_stopped(partition, claim, offset)
            case LeaveGroup():
                self._membership.leave()
