"""Whole batches to their leaders: in order, without duplicates, several requests in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple

from ottla.client.producing.acks import BatchResult, Delivery, ProducerOptions
from ottla.client.producing.produce_lanes import ProduceLanes
from ottla.client.producing.produce_queue import PendingBatch, ProduceQueue
from ottla.client.producing.produce_requests import ACKS_NONE, UNKNOWN_OUTCOME, ProduceAnswer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.deadline import Deadline
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError, ProducerStopped, error_code_of
from ottla.client.wire.postponed import Postponed
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.records.builder import stamp_producer
from ottla.records.record import check_batch

# A call with a shorter time-out still has this long to find the leader: else it would never find it.
LOOK_UP_MS_MIN: Final = 200
# The longest wait in a flush: then it checks for expired batches.
FLUSH_STEP_MS: Final = 1_000

# The leader has no or other state of this producer: its numbers are invalid.
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


class ProducerIdentity(NamedTuple):
    """How leaders recognise the batches of an idempotent producer."""

    producer_id: int
    producer_epoch: int


class RawProducer:
    """Sends built batches (`records.builder`) and returns the result of each, once.

    Batches of one partition are stored in the order of `send`, retries included, when the producer is idempotent.
    Without idempotence a batch whose outcome is unknown is not sent again.

    `identity`: of a producer that has ended.  Its first batch of each partition, sent again with the same records, is
    stored once, as long as the leaders remember the producer (`producer.id.expiration.ms`).

    `split`: a batch of several records that is too large for its topic or for a segment is sent as what it makes of it,
    in its place; each part has a result of its own, with the tag of the whole.

    with RawProducer(cluster) as producer:
        producer.send(TopicPartition("clicks", 0), build_batch(records))
        for result in producer.flush(): ...
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions | None = None,
        *,
        identity: ProducerIdentity | None = None,
        split: Callable[[TopicPartition, bytearray], Sequence[bytearray]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options or ProducerOptions()
        self._split = split
        self._lanes = ProduceLanes(cluster, self._options.acks, self._options.max_in_flight)
        self._queues: dict[TopicPartition, ProduceQueue] = {}
        # Queues with a batch: a producer may have written to very many partitions.
        self._open: dict[TopicPartition, ProduceQueue] = {}
        self._postponed = Postponed(cluster.retrying)
        self._results: list[BatchResult] = []
        self._buffered_bytes = 0
        self._stopped: ProducerStopped | None = None
        # Partitions that take nothing since a batch was refused, with the reason.
        self._halted: dict[TopicPartition, OttlaError | None] = {}
        self.producer_id, self.producer_epoch = identity or (-1, -1)

    def __enter__(self) -> RawProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections.  Batches that `flush` has not settled may be stored or not."""
        self._lanes.close()

    def identify(self) -> ProducerIdentity:
        """The identity that its batches have, got from the cluster when it has none yet."""
        if self.producer_id < 0:
            self._init_producer_id()
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def pending_count(self) -> int:
        """The count of unsettled batches."""
        return sum(len(queue) for queue in self._open.values())

    @property
    def has_room(self) -> bool:
        """Whether the next `send` does not block."""
        return self._buffered_bytes < self._options.buffer_bytes_max

    def send(
        self, partition: TopicPartition, batch: bytearray, tag: object = None, *, give_up: Deadline | None = None
    ) -> None:
        """Queue one whole batch; it belongs to the producer until its result is returned.

        `give_up` is `delivery_timeout_ms` from now, unless some of that is spent already.  Blocks while
        `buffer_bytes_max` is unacknowledged.  Raises CorruptBatch for invalid bytes, ProducerStopped.
        """
        if self._stopped is not None:
            raise self._stopped
        header = check_batch(memoryview(batch), check_crc=False)
        if self._options.is_idempotent:
            self.identify()
        give_up = give_up or self._cluster.retrying.deadline(self._options.delivery_timeout_ms)
        sequences_count = header.last_offset_delta + 1
        pending = PendingBatch(partition, batch, header.records_count, sequences_count, give_up, tag)
        queue = self._queues.setdefault(partition, ProduceQueue())
        queue.add(pending)
        self._open[partition] = queue
        self._buffered_bytes += len(batch)
        if partition in self._halted:
            self._refuse_waiting(queue, self._halted[partition])
            return
        self._dispatch(self._cluster.retrying.deadline(0))
        while self._buffered_bytes > self._options.buffer_bytes_max:
            self._step(self._cluster.retrying.deadline(self._cluster.options.request_timeout_ms))

    def resume(self, partition: TopicPartition) -> None:
        """A partition that `halts_on_refusal` has halted takes batches again; everything of it must be settled."""
        assert partition not in self._open, "batches before the halt must be settled first"
        self._halted.pop(partition, None)

    @property
    def is_stopped(self) -> bool:
        """Whether it takes nothing more, and has settled everything: see ProducerStopped."""
        return self._stopped is not None

    def turn(self, timeout_ms: float) -> list[BatchResult]:
        """Send what can be sent, wait once, for at most `timeout_ms` or until the cluster's `wait` is woken; the
        results so far.  For a caller that has more to do than to wait for them.

        Some have a result before they are sent: their topic is gone.  Then it does not wait.
        """
        if self.pending_count:
            self._step(self._cluster.retrying.deadline(0 if self._results else timeout_ms))
        return self._take_results()

    def poll(self, timeout_ms: float = 0) -> list[BatchResult]:
        """The results so far, or the first to arrive within `timeout_ms`."""
        deadline = self._cluster.retrying.deadline(timeout_ms)
        if self.pending_count:
            self._step(deadline if not self._results else self._cluster.retrying.deadline(0))
        while not self._results and self.pending_count and not deadline.has_passed:
            self._step(deadline)
        return self._take_results()

    def flush(self, timeout_ms: float | None = None) -> list[BatchResult]:
        """Wait until every batch is settled, at most `timeout_ms`; returns the results that `poll` has not returned.

        Without a time-out it still ends: each batch expires after `delivery_timeout_ms`, and that is its result.
        """
        until = None if timeout_ms is None else self._cluster.retrying.deadline(timeout_ms)
        while self.pending_count and not (until is not None and until.has_passed):
            # In steps, since a batch may expire in the middle of a wait.
            step_ms = FLUSH_STEP_MS if until is None else min(until.remaining_ms, FLUSH_STEP_MS)
            self._step(self._cluster.retrying.deadline(step_ms))
        return self._take_results()

    def _take_results(self) -> list[BatchResult]:
        results, self._results = self._results, []
        return results

    def _init_producer_id(self) -> None:
        request = InitProducerIdRequest(transaction_timeout_ms=self._cluster.options.request_timeout_ms)

        def attempt(deadline: Deadline) -> InitProducerIdResponse:
            connection = self._cluster.connect_any(deadline)
            answer = connection.call(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse, deadline)
            if answer.error_code:
                raise BrokerRefused(error_code_of(answer.error_code), "producer id")
            return answer

        answer = self._cluster.retrying.run("INIT_PRODUCER_ID", attempt, self._cluster.retrying.deadline())
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    def _step(self, deadline: Deadline) -> None:
        """Expire old batches, send what can be sent, process responses."""
        self._give_up_old()
        self._dispatch(deadline)
        if self.pending_count:
            for batch, outcome in self._lanes.wait(self._postponed.next_try_ms(deadline.remaining_ms)):
                if self._stopped is not None:
                    return  # every batch was settled when it stopped
                if isinstance(outcome, ProduceAnswer):
                    self._answered(batch, outcome)
                else:
                    self._unanswered(batch, outcome)
            self._dispatch(deadline)

    def _dispatch(self, deadline: Deadline) -> None:
        """Send requests to every leader that has room for one more in flight, while there are batches."""
        while True:
            groups: dict[int, list[ProduceQueue]] = {}
            for partition, queue in list(self._open.items()):
                if queue.can_take and self._postponed.may_try(partition):
                    leader_id = self._find_leader(partition, queue, deadline)
                    if leader_id is not None:
                        groups.setdefault(leader_id, []).append(queue)
            sent_count = sum(self._send_request(leader_id, queues) for leader_id, queues in groups.items())
            if not sent_count:
                return

    def _find_leader(self, partition: TopicPartition, queue: ProduceQueue, deadline: Deadline) -> int | None:
        """The current leader; None when it cannot be found in time, and then the partition is retried later."""
        create = self._options.allow_auto_topic_creation
        look_up = self._cluster.retrying.deadline(max(deadline.remaining_ms, LOOK_UP_MS_MIN))
        try:
            return self._cluster.leader(partition, allow_auto_topic_creation=create, deadline=look_up).leader_id
        except ClientError as error:
            self._cannot_send(queue, error)
            return None

    def _send_request(self, leader_id: int, queues: list[ProduceQueue]) -> bool:
        """Send the next batch of as many of these partitions as fit into one request; False when none can be sent
        now."""
        try:
            if not self._lanes.has_room(leader_id):
                return False
        except ClientError as error:
            for queue in queues:
                self._cannot_send(queue, error)
            return False
        batches: list[PendingBatch] = []
        room_bytes = self._options.request_bytes_max
        for queue in queues:
            if not batches or len(queue.waiting[0].batch) <= room_bytes:
                batch = queue.take()
                room_bytes -= len(batch.batch)
                batches.append(batch)
                if self._options.is_idempotent:
                    stamp_producer(batch.batch, self.producer_id, self.producer_epoch, batch.wire_sequence)
        self._lanes.send(leader_id, sorted(batches, key=lambda batch: batch.partition))
        return True

    def _cannot_send(self, queue: ProduceQueue, error: ClientError) -> None:
        """Nothing was sent: retry later, or give up the waiting batches."""
        partition = queue.waiting[0].partition
        queue.waiting[0].last_error = error
        if error.is_retriable:
            self._cluster.retrying.on_wait(error)
            self._postponed.postpone(partition)
            self._cluster.forget([partition.topic])
            return
        if any(batch.may_be_stored for batch in queue.waiting):
            self._stop(f"{error}, and a batch for it was not answered", error)
            return
        self._refuse_waiting(queue, error)
        self._halt(partition, queue, error)

    def _refuse_waiting(self, queue: ProduceQueue, error: OttlaError | None) -> None:
        for batch in list(queue.waiting):
            queue.drop_waiting(batch)
            self._settle(batch, Delivery.REFUSED, error)

    def _halt(self, partition: TopicPartition, queue: ProduceQueue, error: OttlaError | None) -> None:
        """One of its batches was refused.  What waits is refused too; what is in flight is settled by its answer,
        which is a refusal for a number that does not follow."""
        if not self._options.halts_on_refusal:
            return
        self._halted.setdefault(partition, error)
        if any(batch.may_be_stored for batch in queue.waiting):
            self._stop(f"{error}, and a later batch was not answered", error)
        else:
            self._refuse_waiting(queue, error)

    def _refuse_after_halt(self, batch: PendingBatch, error: OttlaError) -> None:
        """Sent again it would get the number of the batch that was refused, and be stored in its place."""
        if batch.may_be_stored:
            self._stop(f"{batch.partition}: {error}, after an earlier batch was refused", error)
        else:
            self._queues[batch.partition].refuse(batch)
            self._settle(batch, Delivery.REFUSED, self._halted[batch.partition])

    def _answered(self, batch: PendingBatch, answer: ProduceAnswer) -> None:
        queue = self._queues[batch.partition]
        error = answer.error
        if error is None or error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.acknowledge(batch)
            self._postponed.clear(batch.partition)
            delivery = Delivery.SENT if self._options.acks == ACKS_NONE else Delivery.ACKNOWLEDGED
            self._settle(batch, delivery, None, answer)
        elif error.code in UNKNOWN_OUTCOME:
            self._unanswered(batch, error)
        elif error.is_retriable:
            self._try_again(batch, error, may_be_stored=False)
        elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._options.is_idempotent:
            if batch.partition in self._halted:
                self._refuse_after_halt(batch, error)
            elif not queue.put_back_out_of_order(batch):
                self._stop(f"{batch.partition}: the leader does not expect this producer's next number", error)
        elif error.code in _STOPPING:
            self._stop(str(error), error)
        elif error.code in _TOO_LARGE and self._can_be_split(batch):
            self._send_parts(batch)
        elif batch.may_be_stored:
            # An earlier attempt may have taken its number: the next batch with that number could be taken for this one.
            self._stop(f"{error}, and an earlier attempt was not answered", error)
        else:
            queue.refuse(batch)
            self._settle(batch, Delivery.REFUSED, error)
            self._halt(batch.partition, queue, error)

    def _can_be_split(self, batch: PendingBatch) -> bool:
        return self._split is not None and batch.records_count > 1 and not batch.may_be_stored

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
        self._buffered_bytes += sum(len(part) for part in parts) - len(whole.batch)

    def _unanswered(self, batch: PendingBatch, error: OttlaError) -> None:
        """Stored or not: an idempotent producer sends it again, another one cannot."""
        if self._options.is_idempotent:
            self._try_again(batch, error, may_be_stored=True)
        else:
            self._cluster.forget([batch.partition.topic])
            self._queues[batch.partition].refuse(batch)
            self._settle(batch, Delivery.UNKNOWN, error)

    def _try_again(self, batch: PendingBatch, error: OttlaError, *, may_be_stored: bool) -> None:
        batch.last_error = error
        if batch.partition in self._halted:
            batch.may_be_stored = batch.may_be_stored or may_be_stored
            self._refuse_after_halt(batch, error)
            return
        self._cluster.retrying.on_wait(error)
        self._queues[batch.partition].put_back(batch, may_be_stored=may_be_stored)
        self._postponed.postpone(batch.partition)
        self._cluster.forget([batch.partition.topic])

    def _give_up_old(self) -> None:
        for partition, queue in list(self._open.items()):
            while queue.waiting and queue.waiting[0].give_up.has_passed:
                batch = queue.waiting[0]
                if batch.may_be_stored:
                    self._stop(f"{partition}: a batch was not answered: {batch.last_error}", batch.last_error)
                    return
                queue.drop_waiting(batch)
                late = CallTimedOut(
                    f"{partition}: not delivered in time: {batch.last_error or 'no leader accepted it'}"
                )
                self._settle(batch, Delivery.REFUSED, late)
                self._halt(partition, queue, late)
                if self._stopped is not None:
                    return

    def _stop(self, reason: str, cause: OttlaError | None) -> None:
        """Numbers can no longer be trusted: settle every open batch by its known state."""
        self._stopped = ProducerStopped(f"the producer stopped: {reason}")
        self._stopped.__cause__ = cause
        for queue in list(self._open.values()):
            for batch in queue.clear():
                is_unknown = batch.may_be_stored or batch.base_sequence >= 0
                self._settle(batch, Delivery.UNKNOWN if is_unknown else Delivery.REFUSED, self._stopped)
        self._lanes.close()

    def _settle(
        self, batch: PendingBatch, delivery: Delivery, error: OttlaError | None, answer: ProduceAnswer | None = None
    ) -> None:
        self._buffered_bytes -= len(batch.batch)
        if not self._queues[batch.partition]:
            self._open.pop(batch.partition, None)
        base_offset, append_time_ms = (answer.base_offset, answer.log_append_time_ms) if answer else (-1, -1)
        self._results.append(
            BatchResult(
                batch.partition,
                batch.tag,
                batch.records_count,
                len(batch.batch),
                delivery,
                base_offset,
                append_time_ms,
                error,
            )
        )
