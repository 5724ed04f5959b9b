"""The state of a connector's streams: what the group assigned, what was fetched, handed out and committed.  Pure.

Events go in: of the group, of the fetches, of the users' threads, of the clock.  Batches to hand out, orders for the
fetch thread and calls of the membership come out.  The machine knows no lock, thread or socket and does not wait:
`StreamsEngine` drives it for many threads.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from ottla.client.fetching.fetch_requests import FetchedPartition
from ottla.client.membership.membership import CommitRefused, Event, Failed
from ottla.client.streams.consumer_metrics import ConsumerMetrics, PartitionMetrics
from ottla.client.streams.errors import CommitFailed, ConsumerClosed, NoPosition, NotAssigned, PoisonMessage
from ottla.client.streams.reading import CommitOutcome, HandOut, Reading
from ottla.client.streams.rebalance_changes import Changes
from ottla.client.streams.seek_target import Target
from ottla.client.streams.settings import RESET_QUESTIONS, StreamSettings
from ottla.client.streams.stream_buffer import StreamBuffer
from ottla.client.wire.client_log import CONSUMER
from ottla.client.wire.errors import OffsetOutOfRange
from ottla.client.wire.request_metrics import RequestMetrics
from ottla.consumers.effects import Blocked, Committed, Left, Lost, Released, Revoke, Settled, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import StreamId
from ottla.model.errors import ConfigError, OttlaError, WireError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.observe.events import named
from ottla.observe.text import safe_line


class StreamEnded(Exception):
    """The connector was closed: the stream has nothing more."""


class FetchOrder(NamedTuple):
    """Fetch a partition from now on: from `offset`, or from the answer to `question`."""

    token: int
    offset: int
    question: int | None


class CommitOffsets(NamedTuple):
    """Commit these: partition, claim, offset."""

    offsets: Sequence[tuple[TopicPartition, ClaimId, int]]


class ReportStopped(NamedTuple):
    """Nothing of a revoked claim is handed out any more; commit `offset` with its release."""

    partition: TopicPartition
    claim: ClaimId
    offset: int


class LeaveGroup(NamedTuple):
    """Give everything back."""


MembershipCall: TypeAlias = CommitOffsets | ReportStopped | LeaveGroup


class Assigned(NamedTuple):
    """A partition, and the stream that reads it."""

    buffer: StreamBuffer
    reading: Reading


def _without(
    partitions: Collection[TopicPartition] | None, left_out: set[TopicPartition]
) -> list[TopicPartition] | None:
    return None if partitions is None else [each for each in partitions if each not in left_out]


class ConsumeMachine:
    """`due_calls` are of the membership, in order.  A token is of one order: what carries it is ignored once the
    partition was ordered again.
    """

    def __init__(
        self,
        settings: StreamSettings,
        buffers: Sequence[StreamBuffer],
        buffer_of: Callable[[TopicPartition, StreamId], StreamBuffer],
        now_ms: int,
        *,
        on_orders: Callable[[], None],
        on_due: Callable[[], None],
    ) -> None:
        """`buffer_of` names the stream of a `Start`.  `on_orders` is called when the fetch thread has something to do,
        `on_due` when a time is due earlier than it was.
        """
        self.due_calls: deque[MembershipCall] = deque()
        self.blocked_reason: str | None = None
        self.has_left = False
        self._settings = settings
        self._buffers = buffers
        self._buffer_of = buffer_of
        self._on_orders = on_orders
        self._on_due = on_due
        self._tokens = itertools.count(1)
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._changed: set[TopicPartition] = set()
        # Where to start in place of the group's offset, by the user.
        self._places: dict[TopicPartition, Target] = {}
        # Paused before they have started, by the user who has assigned them.
        self._paused: set[TopicPartition] = set()
        # Whose fetches are in flight, and whose have brought what is put to the others next.
        self._flying: dict[TopicPartition, Assigned] = {}
        self._landed: dict[TopicPartition, Assigned] = {}
        self._commit_at_ms = now_ms + settings.auto_commit_interval_ms
        self._error: OttlaError | None = None
        self._is_closing = False
        # The thread that closes: it does not pass what it has in hand itself.
        self._closer: int | None = None

    def _of(self, partition: TopicPartition) -> Assigned | None:
        """The stream that reads it now, and may continue."""
        assigned = self._assigned.get(partition)
        return None if assigned is None or assigned.reading.is_stopped else assigned

    def _of_claim(self, partition: TopicPartition, claim: ClaimId) -> Assigned | None:
        assigned = self._assigned.get(partition)
        return None if assigned is None or assigned.reading.claim != claim else assigned

    def _of_order(self, partition: TopicPartition, token: int) -> Assigned | None:
        assigned = self._of(partition)
        return None if assigned is None or assigned.reading.token != token else assigned

    def next_hand_out(
        self, buffer: StreamBuffer, thread: int, until_ns: int | None, *, holds: bool = False, has_some: bool = False
    ) -> HandOut | None:
        """The next batch of a stream, to be handed out by `thread` up to this moment; None while nothing is there.

        `until_ns` is None while nothing may be handed out; `holds`: none of its messages is passed before `pass_held`;
        `has_some`: messages that are held were taken.  Raises what prevents it, and StreamEnded.
        """
        if not has_some:
            # A batch without messages to hand out must not keep its partition while the request waits for others.
            self.pass_held(buffer)
        if buffer.begin_request(thread):
            self._read_again(buffer, buffer.readings.values())
        try:
            hand_out = self._take_hand_out(buffer, until_ns, holds=holds)
        except Exception:
            buffer.end_request()
            raise
        buffer.end_request()
        return hand_out

    def _take_hand_out(self, buffer: StreamBuffer, until_ns: int | None, *, holds: bool) -> HandOut | None:
        last = buffer.settle()
        if last is not None:
            self._answer(last.reading)
            if last.is_broken_off:
                self._read_again(buffer, [last.reading])
        if buffer.has_changes and not self._is_closing:
            return None
        if self._error is not None:
            raise self._error
        if self._is_closing:
            raise StreamEnded
        if until_ns is None:
            return None
        hand_out = buffer.next_hand_out(until_ns)
        if hand_out is not None and holds:
            buffer.hold(hand_out.reading)
        if buffer.prefetched.take_wanted():
            self._on_orders()
        return hand_out

    def begin_many(self, buffer: StreamBuffer) -> None:
        """What was handed out so far is passed; what is handed out from now on is held."""
        self.pass_held(buffer)
        buffer.begin_many()

    def pass_held(self, buffer: StreamBuffer) -> None:
        for reading in buffer.pass_held():
            self._answer(reading)

    def take_back(self, buffer: StreamBuffer) -> None:
        """A request of many messages was interrupted: its messages are handed out again."""
        self._read_again(buffer, [each for each in buffer.readings.values() if each.is_held])

    def pause(
        self,
        buffer: StreamBuffer,
        partitions: Collection[TopicPartition] | None,
        may_start: Collection[TopicPartition] = (),
    ) -> None:
        """Fetch and hand out nothing of these, or of all that are read now; those of `may_start` also when they start
        later.  Raises NotAssigned.
        """
        unstarted = self._unstarted(partitions, may_start)
        for reading in buffer.readings_of(_without(partitions, unstarted)):
            if not reading.is_paused:
                self._pause(buffer, reading)
        self._paused |= unstarted

    def _pause(self, buffer: StreamBuffer, reading: Reading) -> None:
        buffer.drop(reading)
        reading.pause(next(self._tokens))
        if reading.is_held:
            buffer.hold(reading)
        self._order(reading.partition)

    def resume(
        self,
        buffer: StreamBuffer,
        partitions: Collection[TopicPartition] | None,
        may_start: Collection[TopicPartition] = (),
    ) -> None:
        """Continue where each was paused, or all that are read now.  Raises NotAssigned."""
        unstarted = self._unstarted(partitions, may_start)
        for reading in buffer.readings_of(_without(partitions, unstarted)):
            if reading.is_paused:
                reading.resume()
                self._begin(buffer, reading)
        self._paused -= unstarted

    def paused(self, buffer: StreamBuffer) -> list[TopicPartition]:
        return sorted({each.partition for each in buffer.readings_of(None) if each.is_paused} | self._paused)

    def _unstarted(
        self, partitions: Collection[TopicPartition] | None, may_start: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        return {each for each in partitions or () if each in may_start and self._of(each) is None}

    def start_at(self, buffer: StreamBuffer, partition: TopicPartition, target: Target) -> None:
        """`seek`, also in a partition that starts later: then there, and not at the group's offset."""
        if self._of(partition) is None:
            self._places[partition] = target
        else:
            self.seek(buffer, [partition], target)

    def forget_places(self) -> None:
        """Partitions that have not started yet start at the group's offset, and are not paused."""
        self._places.clear()
        self._paused.clear()

    def take_changes(self, buffer: StreamBuffer) -> Changes:
        """What the user's code must be notified of, before anything more is handed out; then `on_notified`."""
        changes = buffer.take_changes()
        for partition in changes.revoked:
            buffer.readings[partition].on_user_notified()
        return changes

    def on_notified(self, buffer: StreamBuffer, revoked: Iterable[TopicPartition]) -> None:
        """The user's code has run: these are given back."""
        for partition in revoked:
            reading = buffer.readings.get(partition)
            if reading is not None and reading.awaits_user:
                reading.on_user_done()
                self._answer(reading, is_due=self._is_closed_by(buffer))

    def _is_closed_by(self, buffer: StreamBuffer) -> bool:
        """Whether the thread that reads this stream closes: it requests no further message."""
        return self._is_closing and buffer.requester == self._closer

    def may_hand_out(self, buffer: StreamBuffer, hand_out: HandOut, until_ns: int | None) -> bool:
        """The moment of the batch has passed: may the message that was taken be handed out, up to `until_ns`?"""
        if hand_out.is_current and not self._is_closing and until_ns is not None:
            hand_out.extend(until_ns)
            return True
        buffer.cut(hand_out)
        self._on_cut(buffer, hand_out)
        return False

    def _on_cut(self, buffer: StreamBuffer, hand_out: HandOut) -> None:
        """The message that was taken last was not handed out: if that is due to a pause, it is read after that."""
        reading = hand_out.reading
        if reading.on_cut(hand_out, next(self._tokens)):
            buffer.drop(reading)
            self._order(reading.partition)

    def on_poison(
        self, buffer: StreamBuffer, hand_out: HandOut, error: PoisonMessage, *, is_of_one_message: bool
    ) -> bool:
        """Handing out met what cannot be read: is it to be raised?"""
        is_raised = buffer.on_poison(hand_out, error, is_of_one_message=is_of_one_message)
        if is_of_one_message and not is_raised:
            self._on_cut(buffer, hand_out)
        self._answer(hand_out.reading)
        return is_raised

    def skip(self, buffer: StreamBuffer) -> None:
        """Step over what cannot be read.  Raises NotAssigned."""
        reading, fetch_from = buffer.skip()
        if fetch_from is not None:
            self._move(Assigned(buffer, reading), Target(fetch_from, None))

    def seek(self, buffer: StreamBuffer, partitions: Iterable[TopicPartition] | None, target: Target) -> None:
        """Read on from there in these partitions, or in all that are read now.  Raises NotAssigned."""
        for reading in buffer.readings_of(partitions):
            self._move(Assigned(buffer, reading), target)

    def mark_done(self, buffer: StreamBuffer, partition: TopicPartition, offset: int) -> None:
        """The message and those before it are done.  Raises NotAssigned when the stream has not handed it out."""
        reading = buffer.readings.get(partition)
        if reading is None or reading.is_answered or not reading.mark_done(offset):
            raise NotAssigned(
                f"{partition}, offset {offset}: the partition has moved since this message was handed out"
                if reading is None or reading.is_answered
                else f"{partition}: the message at {offset} was not handed out by this stream"
            )

    def mark_all_done(self, buffer: StreamBuffer) -> None:
        """Everything that was returned is done: not what another thread is taking."""
        if buffer.is_taking_many:
            return  # what was returned is passed
        for reading in buffer.readings.values():
            if not reading.is_answered:
                reading.mark_all_done()

    def has_pending_commit(self, buffers: Iterable[StreamBuffer]) -> bool:
        """Whether a commit is on its way that could set back what a transaction commits."""
        return any(reading.has_pending for buffer in buffers for reading in buffer.readings.values())

    def take_offsets(self, buffers: Iterable[StreamBuffer]) -> dict[TopicPartition, int]:
        """What was passed since the last call.  Raises NotAssigned where a partition has moved meanwhile."""
        if self._settings.enable_auto_commit:
            raise ConfigError(
                "the connector commits offsets automatically, also those of a transaction that is aborted",
                hint="open it with enable_auto_commit=False",
            )
        if self._error is not None:
            raise self._error
        moved = sorted(partition for buffer in buffers for partition in buffer.take_moved())
        if moved:
            raise NotAssigned(
                f"moved to another consumer since its messages were handed out: {', '.join(map(str, moved))}",
                hint="abort the transaction: the other consumer reads these messages again",
            )
        return {
            reading.partition: offset
            for buffer in buffers
            for reading in buffer.readings.values()
            if not reading.is_answered and (offset := reading.take_offset()) is not None
        }

    def commit(self, buffers: Iterable[StreamBuffer]) -> CommitOutcome:
        """Commit what was passed; the outcome becomes known later."""
        readings = [each for buffer in buffers for each in buffer.readings.values()]
        if self._error is not None:
            raise self._error
        if self._is_closing and not readings:
            raise ConsumerClosed("the connector was closed")
        outcome = CommitOutcome()
        self._commit(readings, outcome)
        return outcome

    def commit_offsets(self, buffer: StreamBuffer, named: Mapping[TopicPartition, int]) -> CommitOutcome:
        """Commit these, wherever the stream is.  Raises NotAssigned, and then commits nothing."""
        if self._error is not None:
            raise self._error
        readings: list[Reading] = []
        for partition in named:
            reading = buffer.readings.get(partition)
            if reading is None or reading.is_answered:
                raise NotAssigned(f"{partition} is not assigned to this consumer now")
            readings.append(reading)
        outcome = CommitOutcome()
        self._commit(readings, outcome, named)
        return outcome

    def await_releases(self, buffer: StreamBuffer, outcome: CommitOutcome) -> bool:
        """Whether the user's code must run before `outcome` is known, and may: a commit included all that was returned.

        Partitions that wait for it are committed with their release, and the outcome includes these.
        """
        readings = [each for each in buffer.readings.values() if not each.is_answered]
        if any(each.has_in_hand for each in readings):
            return False
        waiting = [
            each for each in readings if each.awaits_user and not each.is_notified and each.requested == each.passed_end
        ]
        for reading in waiting:
            outcome.include(reading.partition)
            reading.await_release(outcome)
        return bool(waiting)

    def _commit(
        self,
        readings: Iterable[Reading],
        outcome: CommitOutcome | None,
        named: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """What was passed, or the named offset; a reading that is being given back is committed with its release."""
        offsets: list[tuple[TopicPartition, ClaimId, int]] = []
        for reading in readings:
            offset = named.get(reading.partition)
            if reading.is_stopped:
                if outcome is not None:
                    self._commit_with_release(reading, outcome, offset)
                continue
            offset = reading.request(outcome, offset)
            if offset is not None:
                offsets.append((reading.partition, reading.claim, offset))
        if offsets:
            self.due_calls.append(CommitOffsets(offsets))

    def _commit_with_release(self, reading: Reading, outcome: CommitOutcome, named: int | None) -> None:
        """A message in hand, or the user's code, delays the release: the thread that has it must not wait for that."""
        reading.request_with_release(named)
        if reading.may_be_released:
            reading.on_user_done()
            reading.await_release(outcome)
            self._answer(reading)
        else:
            outcome.defer(reading.partition)

    def _answer(self, reading: Reading, *, is_due: bool = False) -> None:
        """Report that a revoked reading has stopped, when no message of it is in hand, or for too long."""
        if not reading.is_stopped or reading.is_answered:
            return
        if not is_due and (reading.has_in_hand or reading.awaits_user):
            return
        offset = reading.answer(has_auto_commit=self._settings.enable_auto_commit)
        self.due_calls.append(ReportStopped(reading.partition, reading.claim, offset))

    def on_time(self, now_ms: int) -> int:
        """Commit and give back what is due; gives the moment of the next."""
        if now_ms >= self._commit_at_ms:
            self._commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
            if self._settings.enable_auto_commit:
                # One commit of a partition is under way at a time: a group that does not answer makes no heap of them.
                readings = (each.reading for each in self._assigned.values())
                self._commit((each for each in readings if not each.has_pending), None)
        next_ms = self._commit_at_ms
        for _, reading in self._assigned.values():
            if reading.release_by_ms is not None and not reading.is_answered:
                if now_ms >= reading.release_by_ms:
                    self._answer(reading, is_due=True)
                else:
                    next_ms = min(next_ms, reading.release_by_ms)
        return next_ms

    def on_event(self, event: Event, now_ms: int) -> None:
        match event:
            case Start():
                self._start(event)
            case Revoke(partition, claim) | Lost(partition, claim) | Released(partition, claim):
                if (assigned := self._of_claim(partition, claim)) is not None:
                    self._on_end(event, assigned, now_ms)
            case Committed(partition, claim) | CommitRefused(partition, claim):
                if (assigned := self._of_claim(partition, claim)) is not None:
                    self._on_outcome(event, assigned.reading)
            case Settled():
                self.blocked_reason = None
            case Blocked(reason):
                self.blocked_reason = reason
            case Left():
                self.has_left = True
            case Failed(error):
                self.has_left = True
                for assigned in list(self._assigned.values()):
                    self._end(assigned, NO_OFFSET, error)
                self.fail(error)

    def fail(self, error: OttlaError) -> None:
        """The streams raise this error from now on."""
        self._error = self._error or error
        for buffer in self._buffers:
            buffer.ring()

    def _start(self, start: Start) -> None:
        assert start.partition not in self._assigned, f"{start.partition} has a claim"
        buffer = self._buffer_of(start.partition, start.stream)
        reading = Reading(start.partition, start.claim, start.offset, next(self._tokens))
        self._assigned[start.partition] = Assigned(buffer, reading)
        buffer.add(reading)
        place = self._places.pop(start.partition, None)
        if start.partition in self._paused:
            self._paused.remove(start.partition)
            self._pause(buffer, reading)
        if buffer.has_changes:
            buffer.ring()
        if place is not None:
            self._move(self._assigned[start.partition], place)
        elif not reading.is_paused:
            self._begin(buffer, reading)

    def _begin(self, buffer: StreamBuffer, reading: Reading) -> None:
        """Read from where it is; where that is not known, from where `auto_offset_reset` says."""
        if reading.question is None and reading.read_end == NO_OFFSET:
            self._reset(buffer, reading, NoPosition(f"the group has no offset of {reading.partition}"))
        else:
            self._order(reading.partition)

    def _on_end(self, event: Revoke | Lost | Released, assigned: Assigned, now_ms: int) -> None:
        match event:
            case Revoke():
                self._revoke(assigned, now_ms, waits=not self._is_closed_by(assigned.buffer))
            case Lost(partition):
                error = CommitFailed(f"{partition} was lost to the group before it was known to be committed")
                self._end(assigned, NO_OFFSET, error)
            case Released(partition, _, offset):
                error = CommitFailed(f"{partition} was given back at offset {offset}")
                self._end(assigned, offset, error)

    def _revoke(self, assigned: Assigned, now_ms: int, *, waits: bool) -> None:
        """Nothing more is handed out; if it `waits`, then for the message in hand, but not for ever."""
        buffer, reading = assigned
        awaits_user = buffer.on_revoked(reading.partition)
        reading.revoke(now_ms + self._settings.release_wait_ms, awaits_user=awaits_user)
        buffer.drop(reading)
        self._order(reading.partition)
        self._answer(reading, is_due=not waits and not awaits_user)
        buffer.ring()
        self._on_due()

    def _end(self, assigned: Assigned, released: int, error: OttlaError) -> None:
        """The claim is over; `released` is what the group has then, NO_OFFSET if that is not known."""
        buffer, reading = assigned
        reading.end(released, error)
        buffer.remove(reading)
        del self._assigned[reading.partition]
        self._order(reading.partition)

    def _on_outcome(self, event: Committed | CommitRefused, reading: Reading) -> None:
        if isinstance(event, Committed):
            reading.on_committed(event.offset)
        else:
            CONSUMER.warning(
                "offset %d of %s was not committed: %s",
                event.offset,
                event.partition,
                safe_line(str(event.error)),
                extra=named("commit.refused", partition=event.partition, offset=event.offset, reason=event.error),
            )
            reading.on_refused(event.offset, event.error)

    def begin_close(self, closer: int) -> bool:
        """Nothing more is handed out, and everything is given back; False when that has started before.

        `closer` is the thread that closes.
        """
        if self._is_closing:
            return False
        self._is_closing = True
        self._closer = closer
        for buffer, reading in self._assigned.values():
            reading.stop_hand_out()
            if reading.awaits_user and reading.is_notified and self._is_closed_by(buffer):
                # The code that was notified closes: what it had to commit is committed.
                reading.on_user_done()
                self._answer(reading, is_due=True)
        for buffer in self._buffers:
            buffer.ring()
        if not self.has_left:
            self.due_calls.append(LeaveGroup())
        return True

    def take_orders(self) -> dict[TopicPartition, FetchOrder | None]:
        """What has changed since the last call; None: fetch nothing of it."""
        changed, self._changed = self._changed, set()
        return {partition: self._order_of(partition) for partition in changed}

    def _order(self, partition: TopicPartition) -> None:
        """The partition needs another order."""
        self._changed.add(partition)
        self._on_orders()

    def _order_of(self, partition: TopicPartition) -> FetchOrder | None:
        assigned = self._of(partition)
        if assigned is None:
            return None
        reading = assigned.reading
        if reading.is_paused or (reading.question is None and reading.read_end == NO_OFFSET):
            return None  # only a resume helps, or a seek
        return FetchOrder(reading.token, reading.read_end, reading.question)

    def _move(self, assigned: Assigned, target: Target) -> None:
        """Read on from there: what was fetched is forgotten."""
        buffer, reading = assigned
        buffer.drop(reading)
        if target.question is None:
            reading.move_to(target.offset, next(self._tokens))
        else:
            reading.move_to_answer(target.question, next(self._tokens))
        self._order(reading.partition)
        buffer.ring()

    def _read_again(self, buffer: StreamBuffer, readings: Iterable[Reading]) -> None:
        """From what was passed on."""
        for reading in list(readings):
            if not reading.is_stopped and reading.question is None and reading.passed_end != NO_OFFSET:
                self._move(Assigned(buffer, reading), Target(reading.passed_end, None))

    def metrics(self, requests: RequestMetrics) -> ConsumerMetrics:
        return ConsumerMetrics(
            messages_count=sum(each.messages_count for each in self._buffers),
            batches_count=sum(each.batches_count for each in self._buffers),
            batches_bytes=sum(each.batches_bytes for each in self._buffers),
            buffered_bytes=sum(each.prefetched.waiting_bytes for each in self._buffers),
            partitions={
                partition: PartitionMetrics(reading.known_position, reading.high_watermark)
                for partition, (_, reading) in sorted(self._assigned.items())
                if not reading.is_stopped
            },
            requests=requests,
        )

    def reserve(self, partition: TopicPartition) -> int:
        """See `FetchRoom`."""
        assigned = self._of(partition)
        if assigned is None:
            return 0
        buffer, reading = assigned
        room_bytes = buffer.prefetched.reserve(reading, buffer.readings_wanted_count())
        if room_bytes:
            self._flying[partition] = assigned
        return room_bytes

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        """See `FetchRoom`."""
        assigned = self._flying.pop(partition)
        assigned.buffer.prefetched.on_landed(assigned.reading, size_bytes)
        if size_bytes:
            self._landed[partition] = assigned

    def on_fetched(self, fetched: FetchedPartition, token: int | None) -> None:
        """Records have come."""
        buffer, reading = self._landed.pop(fetched.partition)
        reading.on_fetched(fetched.high_watermark)
        if reading.token == token and not reading.is_stopped:
            buffer.prefetched.put(reading, fetched)
            buffer.ring()
            return
        buffer.prefetched.forget_bytes(len(fetched.records))
        if token is not None and self._of_order(fetched.partition, token) is not None:
            # It was sent for the claim before, and the fetcher continues after it: its records are fetched again.
            self._order(fetched.partition)

    def on_place(self, partition: TopicPartition, token: int, offset: int) -> None:
        """The question of the order is answered: the partition is read from `offset` on."""
        assigned = self._of_order(partition, token)
        if assigned is None:
            return
        reading = assigned.reading
        is_first = reading.passed_end == NO_OFFSET
        reading.move_to(offset, next(self._tokens))
        self._order(reading.partition)
        if is_first:
            # Else "latest" would be another place at the next start.
            self._commit([reading], None)

    def may_reset(self, partition: TopicPartition, token: int) -> bool:
        """Whether all that was fetched before was handed out, so that reading may continue elsewhere."""
        assigned = self._of_order(partition, token)
        return assigned is None or not assigned.buffer.has_more_of(assigned.reading)

    def on_out_of_range(self, error: OffsetOutOfRange, token: int, log_range: range | None) -> None:
        """The log has not the offset that was ordered: it was deleted, or never was."""
        assigned = self._of_order(error.partition, token)
        if assigned is None:
            return
        has = "" if log_range is None else f"; the log has {log_range.start} to {log_range.stop}, exclusive"
        text = f"{error.partition}: offset {error.offset} is not in the log{has}"
        policy = self._settings.auto_offset_reset
        if policy != "error":
            CONSUMER.warning(
                "%s: reading continues at the %s one, as auto_offset_reset says",
                text,
                policy,
                extra=named("offset.reset", partition=error.partition, offset=error.offset, policy=policy),
            )
        self._reset(*assigned, NoPosition(text))

    def _reset(self, buffer: StreamBuffer, reading: Reading, error: NoPosition) -> None:
        """Begin where `auto_offset_reset` says."""
        question = RESET_QUESTIONS[self._settings.auto_offset_reset]
        if question is None:
            buffer.on_unreadable(reading, error, None)
        else:
            self._move(Assigned(buffer, reading), Target(NO_OFFSET, question))

    def on_unreadable(self, partition: TopicPartition, token: int, offset: int, error: OttlaError) -> None:
        """The records at `offset` cannot be fetched, and trying again does not help."""
        assigned = self._of_order(partition, token)
        if assigned is None:
            return
        buffer, reading = assigned
        if isinstance(error, WireError):
            poison = PoisonMessage(partition, offset, "what the broker has there is damaged", error)
            buffer.on_unreadable(reading, poison, offset + 1)
        else:
            buffer.on_unreadable(reading, error, None)
