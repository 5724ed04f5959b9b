"""The state of a producer of whole batches: which batches go into the next requests, and the result of each.  Pure.

Events go in (`add`, an answer, a lost connection, the passing of a deadline), requests and results come out.  The
machine knows no sockets and does not wait: `RawProducer` drives it over connections, `tests/producer_simulation` over a
simulated network.  Its time is that of the clock of `retrying`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.client.producing.produce_queue import PendingBatch, ProduceQueue
from ottla.client.producing.produce_requests import (
    ACKS_NONE,
    UNKNOWN_OUTCOME,
    BatchResult,
    DeliveryStatus,
    ProduceAnswer,
)
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError, ProducerStopped
from ottla.client.wire.retrying import Deadline, Postponed, Retrying
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import stamp_producer
from ottla.records.record import check_batch

# The leader has no state of this producer, or another one: its sequence numbers are invalid.
_STOPPING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
# The topic's max.message.bytes, and its segment.bytes.
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# Answers to the bytes of a batch: every leader with the same settings gives them, before the append.
_CONTENT_REFUSED: Final = _TOO_LARGE | {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}


class ProducerIdentity(NamedTuple):
    """How leaders recognise the batches of an idempotent producer."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY: Final = ProducerIdentity(-1, -1)


@dataclass(slots=True)
class ProduceFlight:
    """A request without an answer so far.  `deadline`: after it the answer is not expected any more."""

    batches: Sequence[PendingBatch]
    deadline: Deadline


class _Halt(NamedTuple):
    """Why a partition takes no batches.  `order`: the place in the queue of the batch that was refused."""

    order: tuple[int, ...]
    error: OttlaError


class ProduceMachine:
    """Takes batches, gives requests, and settles each batch once.

    `retrying` gives deadlines and pauses; its `on_wait` is called with each reason for a retry.  `split` makes the
    parts of a batch that is too large.  `request_ms` is the time of one request.
    """

    def __init__(
        self,
        options: ProducerOptions,
        retrying: Retrying,
        request_ms: float,
        split: Callable[[TopicPartition, bytearray], Sequence[bytearray]] | None = None,
        identity: ProducerIdentity | None = None,
    ) -> None:
        self.identity = identity or NO_IDENTITY
        self.stopped: ProducerStopped | None = None
        self.results: list[BatchResult] = []
        self.buffered_bytes = 0
        # The topics whose leaders may have changed since the last `take_stale_topics`.
        self._stale_topics: set[str] = set()
        self._options = options
        self._retrying = retrying
        self._request_ms = request_ms
        self._split = split
        self._queues: dict[TopicPartition, ProduceQueue] = {}
        # Queues with a batch: a producer may have written to very many partitions.
        self._open: dict[TopicPartition, ProduceQueue] = {}
        # By leader, the oldest first.
        self._flights: dict[int, deque[ProduceFlight]] = {}
        self._postponed = Postponed[TopicPartition](retrying)
        # Partitions that take no batches since one was refused.
        self._halted: dict[TopicPartition, _Halt] = {}
        # Why nothing is sent any more; what is in flight is settled by its answers.
        self._ending: OttlaError | None = None

    def identify(self, identity: ProducerIdentity) -> None:
        """Batches are sent with this identity; given before the first one is sent."""
        self.identity = identity

    def begin(self, identity: ProducerIdentity) -> None:
        """A transaction begins, with this identity; the numbers of batches continue, or start again with another one.

        Everything before it is settled.
        """
        assert not self._open, "batches of the last transaction must be settled first"
        self._ending = None
        if identity != self.identity:
            self.identity = identity
            self.stopped = None
            self._queues.clear()
            self._halted.clear()

    def end(self, reason: OttlaError) -> None:
        """The transaction is over: nothing is sent, or sent again, until `begin`."""
        self._ending = reason
        for queue in list(self._open.values()):
            for batch in list(queue.waiting):
                queue.drop_waiting(batch)
                self._settle_ended(batch)

    def _settle_ended(self, batch: PendingBatch) -> None:
        assert self._ending is not None, "the transaction has ended"
        status = DeliveryStatus.UNKNOWN if batch.may_be_stored else DeliveryStatus.REFUSED
        self._settle(batch, status, self._ending)

    @property
    def pending_count(self) -> int:
        """The count of unsettled batches."""
        return sum(len(queue) for queue in self._open.values())

    def take_results(self) -> list[BatchResult]:
        results, self.results = self.results, []
        return results

    @property
    def has_stale_topics(self) -> bool:
        return bool(self._stale_topics)

    def take_stale_topics(self) -> set[str]:
        """The topics whose metadata must be refreshed before the next request."""
        stale, self._stale_topics = self._stale_topics, set()
        return stale

    def add(self, partition: TopicPartition, batch: bytearray, tag: object, give_up: Deadline) -> None:
        """Queue one whole batch.  Raises CorruptBatch for invalid bytes."""
        header = check_batch(memoryview(batch), check_crc=False)
        sequences_count = header.last_offset_delta + 1
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = ProduceQueue(self._options.max_in_flight)
        queue.add(PendingBatch(partition, batch, header.records_count, sequences_count, give_up, tag))
        self._open[partition] = queue
        self.buffered_bytes += len(batch)
        if partition in self._halted:
            self._refuse_waiting(queue, self._halted[partition].error)

    def resume(self, partition: TopicPartition) -> None:
        """A partition that `halts_on_refusal` has halted takes batches again."""
        assert partition not in self._open, "batches before the halt must be settled first"
        self._halted.pop(partition, None)

    def sendable(self) -> list[TopicPartition]:
        """The partitions of which a batch may be sent now, if they have a leader."""
        return [partition for partition, queue in self._open.items() if self._may_send(partition, queue)]

    def _may_send(self, partition: TopicPartition, queue: ProduceQueue) -> bool:
        return queue.can_take and self._postponed.may_try(partition)

    def has_room(self, leader_id: int) -> bool:
        """Whether one more request may be in flight to this broker."""
        return len(self._flights.get(leader_id, ())) < self._options.max_in_flight

    def take_request(self, leader_id: int, partitions: Iterable[TopicPartition]) -> ProduceFlight | None:
        """The next batches of as many of these partitions as fit into one request, which is in flight from now on.

        None when none of them can be sent any more: an event since `sendable` has postponed them.
        """
        batches: list[PendingBatch] = []
        room_bytes = self._options.request_bytes_max
        for partition in partitions:
            queue = self._open.get(partition)
            if queue is None or not self._may_send(partition, queue):
                continue
            if not batches or len(queue.waiting[0].batch) <= room_bytes:
                batch = queue.take()
                room_bytes -= len(batch.batch)
                batches.append(batch)
                if self._options.is_idempotent:
                    stamp_producer(batch.batch, *self.identity, batch.wire_sequence)
        if not batches:
            return None
        batches.sort(key=lambda batch: batch.partition)
        flight = ProduceFlight(batches, self._retrying.deadline(self._request_ms))
        self._flights.setdefault(leader_id, deque()).append(flight)
        return flight

    def oldest(self, leader_id: int) -> ProduceFlight | None:
        """The request that this leader answers next."""
        flights = self._flights.get(leader_id)
        return flights[0] if flights else None

    def next_try_ms(self, limit_ms: float) -> float:
        """The time until a postponed partition may be retried; at most `limit_ms`."""
        return self._postponed.next_try_ms(limit_ms)

    def on_answer(self, leader_id: int, answers: Mapping[TopicPartition, ProduceAnswer]) -> None:
        """The leader has answered the oldest request."""
        for batch in self._flights[leader_id].popleft().batches:
            if self.stopped is not None:
                return  # every batch was settled when it stopped
            answer = answers.get(batch.partition)
            if answer is None:
                missing = BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(batch.partition), "no response for it")
                answer = ProduceAnswer(missing, -1, -1)
            self._answered(batch, answer)

    def on_sent(self, leader_id: int) -> None:
        """With acks 0: the newest request is sent, and has no answer."""
        for batch in self._flights[leader_id].pop().batches:
            self._answered(batch, ProduceAnswer(None, -1, -1))

    def on_lost(self, leader_id: int, error: OttlaError) -> None:
        """The connection has failed: none of its requests will be answered.

        All of them end at once: a new connection must not carry later batches past those that are retried.
        """
        for flight in self._flights.pop(leader_id, ()):
            for batch in flight.batches:
                if self.stopped is None:
                    self._unanswered(batch, error)

    def cannot_send(self, partition: TopicPartition, error: ClientError) -> None:
        """Nothing was sent: retry later, or give up the waiting batches."""
        queue = self._open.get(partition)
        if queue is None or not queue.waiting:
            return
        oldest = queue.waiting[0]
        oldest.on_failure(error)
        if error.is_retriable:
            self._retrying.on_wait(error)
            self._postponed.postpone(partition)
            self._stale_topics.add(partition.topic)
            return
        if any(batch.may_be_stored for batch in queue.waiting):
            self._stop(f"{error}, and a batch for it was not answered", error)
            return
        self._refuse_waiting(queue, error)
        self._halt(oldest, error)

    def on_time(self) -> None:
        """Settle the waiting batches whose delivery time-out has passed."""
        for partition, queue in list(self._open.items()):
            while queue.waiting and queue.waiting[0].give_up.has_passed:
                batch = queue.waiting[0]
                if batch.may_be_stored:
                    # After NOT_LEADER_OR_FOLLOWER, too: a broker that never led the partition answers it, and a
                    # replaced leader that had appended the batch.  The next leader may have it, and the next batch must
                    # not get its number.
                    self._stop(f"{partition}: a batch was not answered: {batch.last_error}", batch.last_error)
                    return
                queue.drop_waiting(batch)
                late = CallTimedOut(
                    f"{partition}: not delivered in time: {batch.last_error or 'no leader accepted it'}"
                )
                self._settle(batch, DeliveryStatus.REFUSED, late)
                self._halt(batch, late)
                if self.stopped is not None:
                    return

    def _refuse_waiting(self, queue: ProduceQueue, error: OttlaError) -> None:
        for batch in list(queue.waiting):
            queue.drop_waiting(batch)
            self._settle(batch, DeliveryStatus.REFUSED, error)

    def _halt(self, refused: PendingBatch, error: OttlaError) -> None:
        """A batch was refused.  What waits for its partition is refused too; what is in flight is settled by its
        answer, which is a refusal for a number that does not follow."""
        if not self._options.halts_on_refusal:
            return
        queue = self._queues[refused.partition]
        self._halted.setdefault(refused.partition, _Halt(refused.order, error))
        if any(batch.may_be_stored for batch in queue.waiting):
            self._stop(f"{error}, and another batch was not answered", error)
        else:
            self._refuse_waiting(queue, error)

    def _refuse_after_halt(self, batch: PendingBatch, error: OttlaError) -> None:
        """Sent again it would get the number of the batch that was refused, and be stored in its place."""
        halt = self._halted[batch.partition]
        # A replaced leader cannot have appended a later one: its number follows that of the batch that is in no log.
        is_absent = not batch.was_unanswered and batch.order > halt.order
        if batch.may_be_stored and not is_absent:
            self._stop(f"{batch.partition}: {error}, after another batch was refused", error)
        else:
            self._queues[batch.partition].refuse(batch)
            self._settle(batch, DeliveryStatus.REFUSED, halt.error)

    def _answered(self, batch: PendingBatch, answer: ProduceAnswer) -> None:
        queue = self._queues[batch.partition]
        error = answer.error
        if error is None or error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.acknowledge(batch)
            self._postponed.clear(batch.partition)
            status = DeliveryStatus.SENT if self._options.acks == ACKS_NONE else DeliveryStatus.ACKNOWLEDGED
            self._settle(batch, status, None, answer)
        elif error.code in UNKNOWN_OUTCOME:
            self._unanswered(batch, error)
        elif error.is_retriable:
            # A leader that is replaced answers NOT_LEADER_OR_FOLLOWER for a batch that it has appended, too, and the
            # next leader may have that.
            may_be_stored = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._options.is_idempotent
            self._try_again(batch, error, may_be_stored=may_be_stored)
        elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._options.is_idempotent:
            if self._ending is not None:
                queue.refuse(batch)
                self._settle_ended(batch)
            elif batch.partition in self._halted:
                self._refuse_after_halt(batch, error)
            elif not queue.put_back_out_of_order(batch):
                self._stop(f"{batch.partition}: the leader does not expect this producer's next number", error)
        elif error.code in _STOPPING:
            self._stop(str(error), error)
        elif error.code in _TOO_LARGE and self._can_be_split(batch):
            self._send_parts(batch)
        elif not self._proves_absence(batch, error):
            # An earlier attempt may have taken its number: the next batch with that number could be taken for this one.
            self._stop(f"{error}, and an earlier attempt was not answered", error)
        else:
            queue.refuse(batch)
            self._settle(batch, DeliveryStatus.REFUSED, error)
            self._halt(batch, error)

    def _proves_absence(self, batch: PendingBatch, error: BrokerRefused) -> bool:
        """Whether the batch is in no log after this refusal for good.

        When earlier leaders only answered NOT_LEADER_OR_FOLLOWER, a refusal of its content does: with the same settings
        a leader that was replaced would have refused it, too, and not appended it.  It does not where a setting changed
        in between, such as a lower max.message.bytes: then the batch may be stored, and its parts are stored once more,
        or the next batch with its number is taken for it.  The other choice is to stop, which fails the batches of all
        partitions whenever a leader moves before such a refusal.
        """
        return not batch.may_be_stored or (error.code in _CONTENT_REFUSED and not batch.was_unanswered)

    def _can_be_split(self, batch: PendingBatch) -> bool:
        """After an answer of `_TOO_LARGE`."""
        is_halted = batch.partition in self._halted
        return self._split is not None and batch.records_count > 1 and not batch.was_unanswered and not is_halted

    def _send_parts(self, whole: PendingBatch) -> None:
        assert self._split is not None, "only a producer that can split does"
        parts = self._split(whole.partition, whole.batch)
        found = []
        for number, part in enumerate(parts):
            header = check_batch(memoryview(part), check_crc=False)
            order = (*whole.order, number)
            count = header.last_offset_delta + 1
            found.append(
                PendingBatch(whole.partition, part, header.records_count, count, whole.give_up, whole.tag, order)
            )
        self._queues[whole.partition].replace(whole, found)
        self.buffered_bytes += sum(len(part) for part in parts) - len(whole.batch)

    def _unanswered(self, batch: PendingBatch, error: OttlaError) -> None:
        """Stored or not: an idempotent producer sends it again, another one cannot."""
        if self._options.is_idempotent:
            batch.on_unanswered()
            self._try_again(batch, error, may_be_stored=True)
        else:
            self._stale_topics.add(batch.partition.topic)
            self._queues[batch.partition].refuse(batch)
            self._settle(batch, DeliveryStatus.UNKNOWN, error)

    def _try_again(self, batch: PendingBatch, error: OttlaError, *, may_be_stored: bool) -> None:
        batch.on_failure(error)
        if batch.partition in self._halted:
            batch.doubt(may_be_stored=may_be_stored)
            self._refuse_after_halt(batch, error)
            return
        if self._ending is not None:
            batch.doubt(may_be_stored=may_be_stored)
            self._queues[batch.partition].refuse(batch)
            self._settle_ended(batch)
            return
        self._retrying.on_wait(error)
        self._queues[batch.partition].put_back(batch, may_be_stored=may_be_stored)
        self._postponed.postpone(batch.partition)
        self._stale_topics.add(batch.partition.topic)

    def _stop(self, reason: str, cause: OttlaError | None) -> None:
        """Numbers can no longer be trusted: settle every open batch by its known state."""
        self.stopped = ProducerStopped(f"the producer stopped: {reason}")
        self.stopped.__cause__ = cause
        for queue in list(self._open.values()):
            for batch in queue.clear():
                is_unknown = batch.may_be_stored or batch.base_sequence >= 0
                self._settle(batch, DeliveryStatus.UNKNOWN if is_unknown else DeliveryStatus.REFUSED, self.stopped)
        self._flights.clear()

    def _settle(
        self,
        batch: PendingBatch,
        status: DeliveryStatus,
        error: OttlaError | None,
        answer: ProduceAnswer | None = None,
    ) -> None:
        self.buffered_bytes -= len(batch.batch)
        if not self._queues[batch.partition]:
            self._open.pop(batch.partition, None)
        base_offset, append_time_ms = (answer.base_offset, answer.log_append_time_ms) if answer else (-1, -1)
        self.results.append(
            BatchResult(
                batch.partition,
                batch.tag,
                batch.records_count,
                len(batch.batch),
                status,
                base_offset,
                append_time_ms,
                error,
            )
        )
