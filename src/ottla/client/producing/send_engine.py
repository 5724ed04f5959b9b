"""The thread of a producer: encodes, compresses and sends closed batches, and completes their deliveries."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ottla.client.producing.accumulator import Accumulator
from ottla.client.producing.batch import Batch
from ottla.client.producing.delivery import Acknowledged, BatchDelivery, BatchOutcome, Callback, Failures
from ottla.client.producing.errors import MessageNotDelivered, ProducerClosed, TransactionAborted
from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.producer_metrics import BatchMeter, ProducerMetrics
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerSettings
from ottla.client.producing.transaction_driver import TransactionDriver
from ottla.client.producing.transaction_machine import TransactionMachine
from ottla.client.wire.client_log import PRODUCER
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError, ProducerStopped
from ottla.client.wire.metadata import TopicInfo
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.retrying import Backoff, Deadline
from ottla.client.wire.topic_look_ups import MISSING
from ottla.model.errors import OttlaError

# The longest wait with batches under way: then it looks for those that are too old.
_STEP_MS: Final = 1_000
_IDLE_MS: Final = 60_000
# How often it compares the partitions of topics in use with what the cluster's metadata says by now.
_TOPICS_CHECK_MS: Final = 1_000
# The pause before a topic that is missing is looked up again: it counts as deleted after `unknown_topic_wait_ms`.
_TOPIC_MISSING_MS: Final = 500


class LookUp:
    """The sending thread's query for a topic's partitions, repeated until they or a final `error` are known.

    What is known when it starts is not enough for its caller: `has_started` is whether the topic was requested since.
    """

    def __init__(self, topic: str, backoff: Backoff) -> None:
        self.topic = topic
        self.has_started = False
        self.is_under_way = False
        self.is_done = False
        self.error: ClientError | None = None
        # Why there is no answer yet.
        self.last_problem: ClientError | None = None
        self.next_try_ms: float = 0
        self._backoff = backoff

    def postpone(self, problem: ClientError, now_ms: float) -> None:
        self.last_problem = problem
        self.is_under_way = False
        self.next_try_ms = now_ms + self._backoff.next_ms()

    def end(self, error: ClientError | None = None) -> None:
        self.is_done = True
        self.is_under_way = False
        self.error = error


class _Encoded:
    """A batch for the raw producer; `give_up` is its delivery time-out, which another raw producer does not restart."""

    __slots__ = ("batch", "data", "give_up")

    def __init__(self, batch: Batch, data: bytearray, give_up: Deadline) -> None:
        self.batch = batch
        self.data = data
        self.give_up = give_up


class SendEngine:
    """`turn` is one round, and is all that `run` does.  Only the engine's thread touches the cluster.

    Other threads hold the monitor's lock for `look_up`, `wake` and `finish`.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        monitor: ProducerMonitor,
        accumulator: Accumulator,
        failures: Failures,
        interrupt: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._monitor = monitor
        self._accumulator = accumulator
        self._failures = failures
        self._interrupt = interrupt
        self._meter = BatchMeter()
        self._statistics_due = cluster.retrying.deadline(settings.statistics_interval_ms)
        self._raw = self._new_raw()
        self._look_ups: dict[str, LookUp] = {}
        # Encoded, and not accepted by the raw producer yet: it has no producer id, as long as no broker can be reached.
        self._backlog: deque[_Encoded] = deque()
        self._backlog_problem: ClientError | None = None
        # What the raw producer has.
        self._sent: set[Batch] = set()
        self._is_asleep = False
        self._asleep_until_ms: float = 0
        self._is_finishing = False
        self._is_orphaned = False
        self._check_topics_at_ms: float = 0
        # Topics in use whose metadata is requested again, and when.
        self._unchecked: dict[str, float] = {}
        self._acknowledged_calls: tuple[Callable[[Acknowledged], object], ...] = ()
        self._transactions = (
            None
            if settings.transactional_id is None
            else TransactionDriver(
                cluster,
                settings.transactional_id,
                settings.transaction_timeout_ms,
                monitor,
                self._on_transaction_end,
            )
        )
        # Batches to be reported once their transaction has committed, and those of one that has.
        self._uncommitted: list[Acknowledged] = []
        self._committed: list[Acknowledged] = []
        # What was stored of the open transaction, as long as a user has its delivery.
        self._stored: list[weakref.ref[BatchDelivery]] = []
        # The number of the transaction whose batches the raw producer has.
        self._begun_count = 0
        # How long a producer that finishes tries to end its transaction.
        self._end_by: Deadline | None = None

    @property
    def transactions(self) -> TransactionMachine | None:
        """Of a producer with a transactional id; for callers with the lock, which `hurry` the thread after a change."""
        return None if self._transactions is None else self._transactions.machine

    def metrics(self) -> ProducerMetrics:
        """What was counted; with the lock."""
        requests = RequestMeter.snapshot([self._cluster.meter])
        return self._meter.snapshot(len(self._accumulator.unsettled), self._accumulator.buffered_bytes, requests)

    def run(self) -> None:
        """Until it has finished."""
        self._monitor.sent_by_this_thread()
        try:
            while self.turn():
                pass
        except BaseException as error:
            stopped = ProducerStopped(f"the producer's thread failed: {error!r}", hint="this is a fault of Ottla's")
            stopped.__cause__ = error
            with self._monitor.lock:
                self._monitor.refuse(stopped)
            self.abandon(stopped)
            raise
        finally:
            self._raw.close()
            self._cluster.close()
            self._monitor.sender_has_ended()

    def wake(self) -> None:
        """Interrupt the thread's wait if something is due before the end of it."""
        if self._is_asleep:
            due_ms = self._accumulator.next_due_ms
            is_earlier = due_ms is not None and due_ms < self._asleep_until_ms
            if is_earlier or self._accumulator.ready_count or self._is_finishing or self._look_ups:
                self._interrupt()
                self._is_asleep = False

    def hurry(self) -> None:
        """Interrupt the thread's wait, since a transaction needs a call; with the lock."""
        if self._is_asleep:
            self._interrupt()
            self._is_asleep = False

    def look_up(self, topic: str) -> LookUp:
        """Query the partitions of a topic, now."""
        found = self._look_ups.get(topic)
        if found is None:
            found = self._look_ups[topic] = LookUp(topic, self._cluster.retrying.backoff())
            self.wake()
        return found

    def on_acknowledged(self, call: Callable[[Acknowledged], object]) -> None:
        """`call` for each batch that is stored from now on, on this thread, before its senders get receipts.

        Of a transaction when it has committed.
        """
        self._acknowledged_calls += (call,)

    def finish(self) -> None:
        """Send everything, then end.  A transaction that is open is aborted."""
        self._begin_to_finish()
        self.wake()

    def _begin_to_finish(self) -> None:
        self._is_finishing = True
        machine = self.transactions
        if machine is not None and self._end_by is None:
            self._end_by = self._cluster.retrying.deadline(self._settings.max_block_ms)
            if machine.is_abortable:
                PRODUCER.warning("transaction of %s: aborted, since the producer is closed", machine.transactional_id)
                machine.abort()
        self._accumulator.close_all()

    def orphan(self) -> None:
        """The producer is gone without `close`: the thread sends the rest and ends.  No lock: a finalizer calls it."""
        self._is_orphaned = True
        self._interrupt()

    def abandon(self, reason: OttlaError) -> None:
        """Settle everything that is under way, by its present state.  Without the lock."""
        callbacks: list[tuple[BatchDelivery, Sequence[Callback]]] = []
        with self._monitor.lock:
            self._accumulator.close_all()
            for batch in list(self._accumulator.unsettled):
                error = MessageNotDelivered(batch.partition, reason, may_be_stored=batch in self._sent)
                self._settle(batch, BatchOutcome(error=error), callbacks)
            for look_up in self._look_ups.values():
                look_up.end(CallTimedOut(str(reason), hint=reason.hint))
            self._look_ups.clear()
            self._is_finishing = True
            self._end_by = self._cluster.retrying.deadline(0)
            self._monitor.announce()
            self.wake()
        _run(callbacks)

    def turn(self) -> bool:
        """One round; False when it has finished and everything is settled."""
        with self._monitor.lock:
            if self._is_orphaned:
                self._monitor.refuse(ProducerClosed("the producer was dropped without close"))
                self._begin_to_finish()
            now_ms = self._cluster.clock.monotonic_ms()
            refusal = None if self.transactions is None else self.transactions.refusal
            if refusal is not None:
                self._accumulator.close_all()
            ready = self._accumulator.take_ready(now_ms)
            asked = [each for each in self._look_ups.values() if each.next_try_ms <= now_ms]
            if self._is_finishing and not self._accumulator.unsettled and not self._is_ending_a_transaction():
                return False
            wait_ms = 0 if ready or not all(each.is_under_way for each in asked) else self._wait_ms(now_ms)
            self._asleep_until_ms = now_ms + wait_ms
            self._is_asleep = wait_ms > 0
        self._cluster.look_ups.poll()
        for look_up in asked:
            self._ask(look_up)
        self._check_topics(now_ms)
        if not all(each.is_under_way for each in asked):
            wait_ms = 0
        if refusal is not None:
            self._end_batches(ready, refusal)
        else:
            for batch in ready:
                self._hand_over(batch)
        self._make_calls()
        self._send_backlog()
        results = self._wait(wait_ms)
        if results:
            self._settle_all(results)
        self._restart_if_stopped(results)
        if self._settings.on_statistics is not None and self._statistics_due.has_passed:
            self._report_statistics(self._settings.on_statistics)
        return True

    def _report_statistics(self, call: Callable[[ProducerMetrics], object]) -> None:
        self._statistics_due = self._cluster.retrying.deadline(self._settings.statistics_interval_ms)
        with self._monitor.lock:
            found = self.metrics()
        try:
            call(found)
        except Exception:  # noqa: BLE001 (it is logged)
            PRODUCER.exception("on_statistics has failed")

    def _wait_ms(self, now_ms: float) -> float:
        """How long there is nothing to do but to wait for answers; with the lock."""
        moments = [now_ms + (_STEP_MS if self._sent else _IDLE_MS)]
        moments += [each.next_try_ms for each in self._look_ups.values() if not each.is_under_way]
        moments += [due_ms for due_ms in self._unchecked.values() if due_ms > now_ms]
        due_ms = self._accumulator.next_due_ms
        if due_ms is not None:
            moments.append(due_ms)
        if self._backlog:
            moments.append(now_ms + self._cluster.options.retry_backoff_ms)
        if self._settings.on_statistics is not None:
            moments.append(now_ms + self._statistics_due.remaining_ms)
        call_due_ms = None if self.transactions is None else self.transactions.due_in_ms(is_idle=self._is_idle())
        if call_due_ms is not None:
            moments.append(now_ms + call_due_ms)
        return max(0, min(moments) - now_ms)

    def _wait(self, wait_ms: float) -> list[BatchResult]:
        is_expecting = self._raw.pending_count > 0
        look_ups = self._cluster.look_ups
        if look_ups.poll():  # one has failed at once
            wait_ms = 0
        # Without a batch under way, too: what failed when it was handed over has a result.
        results = self._raw.turn(wait_ms)
        if not is_expecting and not results and wait_ms > 0:
            self._cluster.wait(look_ups.streams(), look_ups.wait_ms(wait_ms))
        self._is_asleep = False
        return results

    def _hand_over(self, batch: Batch) -> None:
        try:
            # An idempotent producer's checksum is written with its number.
            data = batch.encode(
                self._settings.compression,
                self._settings.compression_level,
                has_checksum=not self._settings.raw_options().is_idempotent,
                is_transactional=self._transactions is not None,
            )
        except Exception as error:  # noqa: BLE001 - any error: this batch fails, the others are sent
            reason = OttlaError(f"the batch cannot be encoded: {error!r}", hint="this is a fault of Ottla's")
            reason.__cause__ = error
            self._fail(batch, reason)
            return
        self._meter.on_encoded(batch.messages_bytes, len(data))
        batch.drop_contents()
        with self._monitor.lock:
            self._accumulator.shrink(batch, len(data))
            # Room came free where compression is good, or the estimate was far off.
            self._monitor.announce()
        age_ms = self._cluster.clock.monotonic_ms() - batch.opened_ms
        give_up = self._cluster.retrying.deadline(self._settings.delivery_timeout_ms - age_ms)
        self._backlog.append(_Encoded(batch, data, give_up))

    def _send_backlog(self) -> None:
        """Hand everything to the raw producer, in order; it stays where that needs a broker and none can be reached."""
        while self._backlog:
            encoded = self._backlog[0]
            batch = encoded.batch
            is_late = encoded.give_up.has_passed
            with self._monitor.lock:
                if batch not in self._accumulator.unsettled:  # abandoned meanwhile
                    self._backlog.popleft()
                    continue
                if not is_late:
                    if self.transactions is not None and not self.transactions.may_send(batch.partition):
                        return
                    self._sent.add(batch)
            if is_late:
                # Without another attempt: those of a long backlog, one after the other, would take minutes.
                reason = self._backlog_problem or "its time was over before it could be sent"
                self._fail(batch, CallTimedOut(f"{batch.partition}: not delivered in time: {reason}"))
                self._backlog.popleft()
                continue
            try:
                self._raw.send(batch.partition, encoded.data, encoded, give_up=encoded.give_up)
            except ProducerStopped:
                self._sent.discard(batch)
                return  # it is replaced after its results
            except ClientError as error:
                self._sent.discard(batch)
                self._backlog_problem = error
                if error.is_retriable and not encoded.give_up.has_passed:
                    return
                self._fail(batch, error)
            else:
                self._backlog_problem = None
            self._backlog.popleft()

    def _settle_all(self, results: Sequence[BatchResult]) -> None:
        callbacks: list[tuple[BatchDelivery, Sequence[Callback]]] = []
        if self._acknowledged_calls:
            found = [each for each in map(_acknowledged, results) if each is not None]
            if self._transactions is None:
                self._report_acknowledged(found)
            else:
                self._uncommitted += found
        with self._monitor.lock:
            for result in results:
                encoded = result.tag
                assert isinstance(encoded, _Encoded)
                self._sent.discard(encoded.batch)
                if not self._is_sent_again(result, encoded):
                    self._settle(encoded.batch, _outcome(result), callbacks)
            self._monitor.announce()
        _run(callbacks)

    def _fail(self, batch: Batch, reason: OttlaError) -> None:
        callbacks: list[tuple[BatchDelivery, Sequence[Callback]]] = []
        with self._monitor.lock:
            error = MessageNotDelivered(batch.partition, reason, may_be_stored=False)
            self._settle(batch, BatchOutcome(error=error), callbacks)
            self._monitor.announce()
        _run(callbacks)

    def _settle(
        self, batch: Batch, outcome: BatchOutcome, callbacks: list[tuple[BatchDelivery, Sequence[Callback]]]
    ) -> None:
        if self._accumulator.settle(batch):
            self._meter.on_settled(batch.count, is_stored=outcome.error is None)
            if outcome.error is not None:
                self._cluster.meter.on_error(outcome.error.reason)
            found = batch.batch_delivery.settle(outcome)
            if found:
                callbacks.append((batch.batch_delivery, found))
            if self.transactions is not None:
                self._settle_in_transaction(batch.batch_delivery, outcome, self.transactions)
            elif outcome.error is not None:
                self._failures.add(batch.batch_delivery)

    def _is_sent_again(self, result: BatchResult, encoded: _Encoded) -> bool:
        """Whether the next raw producer sends this batch: another batch stopped this one before it was sent."""
        return (
            isinstance(result.error, ProducerStopped)
            and self._transactions is None
            and result.status is DeliveryStatus.REFUSED
            and not encoded.give_up.has_passed
        )

    def _restart_if_stopped(self, results: Sequence[BatchResult]) -> None:
        """A new producer id, after numbers that cannot be trusted any more; their batches have results."""
        if self._raw.is_stopped and self._transactions is None:
            self._raw.close()
            self._raw = self._new_raw()
            again = [each.tag for each in results if isinstance(each.tag, _Encoded)]
            unsettled = self._accumulator.unsettled
            self._backlog.extendleft(each for each in reversed(again) if each.batch in unsettled)

    def _is_idle(self) -> bool:
        return not self._accumulator.unsettled

    def _is_ending_a_transaction(self) -> bool:
        machine = self.transactions
        return machine is not None and machine.is_ending and self._end_by is not None and not self._end_by.has_passed

    def _end_batches(self, ready: Sequence[Batch], refusal: ClientError) -> None:
        """The transaction is over: what was not sent is not, and what is in flight is not sent again."""
        for batch in [*(encoded.batch for encoded in self._backlog), *ready]:
            self._fail(batch, refusal)
        self._backlog.clear()
        self._raw.end(refusal)

    def _settle_in_transaction(
        self, batch_delivery: BatchDelivery, outcome: BatchOutcome, machine: TransactionMachine
    ) -> None:
        """A failure is reported by the end of the transaction, and by the delivery."""
        if outcome.error is None:
            self._stored.append(weakref.ref(batch_delivery))
        else:
            machine.on_batch_failed(outcome.error.reason)

    def _on_transaction_end(self, has_committed: bool | None) -> None:
        """No message of a transaction that did not commit counts as delivered; with the lock."""
        stored, self._stored = self._stored, []
        uncommitted, self._uncommitted = self._uncommitted, []
        if has_committed:
            self._committed += uncommitted
            return
        machine = self.transactions
        assert machine is not None
        reason = machine.refusal or TransactionAborted("the transaction was aborted")
        for batch_delivery in filter(None, (each() for each in stored)):
            # A producer that has failed does not know whether its last commit was executed.
            may_be_stored = has_committed is None
            batch_delivery.revoke(MessageNotDelivered(batch_delivery.partition, reason, may_be_stored=may_be_stored))

    def _make_calls(self) -> None:
        """What coordinators must know before the next batches are sent."""
        if self._transactions is None:
            return
        machine = self._transactions.machine
        with self._monitor.lock:
            if machine.transactions_count != self._begun_count:
                self._begun_count = machine.transactions_count
                self._raw.begin(machine.identity, is_implicit=machine.is_implicit)
            for encoded in self._backlog:
                machine.may_send(encoded.batch.partition)
        self._transactions.make_calls(self._is_idle)
        committed, self._committed = self._committed, []
        self._report_acknowledged(committed)

    def _report_acknowledged(self, found: Sequence[Acknowledged]) -> None:
        for call in self._acknowledged_calls:
            for acknowledged in found:
                call(acknowledged)

    def _new_raw(self) -> RawProducer:
        return RawProducer(self._cluster, self._settings.raw_options())

    def _ask(self, look_up: LookUp) -> None:
        """Start to learn a topic's partitions, or see what has become of it."""
        if not look_up.has_started:
            look_up.has_started = True
            self._cluster.look_ups.renew(look_up.topic)
        look_up.is_under_way = True
        problem: ClientError | None = None
        found: TopicInfo | None = None
        create = self._settings.allow_auto_create_topics
        try:
            found = self._cluster.look_ups.topic(look_up.topic, allow_auto_topic_creation=create)
        except ClientError as error:
            problem = error
        if found is None and problem is None:
            return
        if problem is not None and problem.is_retriable:
            self._cluster.retrying.on_wait(problem)
        with self._monitor.lock:
            if found is not None:
                self._learn(found)
            if problem is not None and problem.is_retriable:
                look_up.postpone(problem, self._cluster.clock.monotonic_ms())
            else:
                look_up.end(problem)
                self._look_ups.pop(look_up.topic, None)
            self._monitor.announce()

    def _check_topics(self, now_ms: float) -> None:
        """Partitions that were added to a topic in use, and topics that were deleted."""
        if now_ms >= self._check_topics_at_ms:
            self._check_topics_at_ms = now_ms + _TOPICS_CHECK_MS
            with self._monitor.lock:
                used = self._accumulator.take_used_topics()
            for topic in used:
                self._unchecked.setdefault(topic, 0)
        for topic in [each for each, due_ms in self._unchecked.items() if due_ms <= now_ms]:
            self._check_topic(topic, now_ms)

    def _check_topic(self, topic: str, now_ms: float) -> None:
        try:
            # Its own cache answers, but for once in `metadata_max_age_ms` and after errors.
            info = self._cluster.look_ups.topic(topic)
        except ClientError as error:
            if isinstance(error, BrokerRefused) and error.code in MISSING:
                self._unchecked[topic] = now_ms + _TOPIC_MISSING_MS
                return
            self._unchecked.pop(topic)  # it is checked after its next use
            if not error.is_retriable:
                with self._monitor.lock:
                    self._accumulator.forget_topic(topic)
            return
        if info is not None:
            self._unchecked.pop(topic)
            with self._monitor.lock:
                self._learn(info)

    def _learn(self, topic: TopicInfo) -> None:
        led = [number for number, partition in topic.partitions.items() if partition.leader_id >= 0]
        self._accumulator.learn_topic(topic.name, len(topic.partitions), led)


def _acknowledged(result: BatchResult) -> Acknowledged | None:
    """None for a batch that failed; one that was sent with acks 0 counts as stored, as for its senders."""
    if result.error is not None or not isinstance(result.tag, _Encoded):
        return None
    batch_delivery = result.tag.batch.batch_delivery
    return Acknowledged(*result.partition, batch_delivery.timestamps_ms, result.log_append_time_ms)


def _outcome(result: BatchResult) -> BatchOutcome:
    if result.status in (DeliveryStatus.ACKNOWLEDGED, DeliveryStatus.SENT):
        return BatchOutcome(result.base_offset, result.log_append_time_ms)
    reason = result.error or OttlaError("no reason is known")
    may_be_stored = result.status is DeliveryStatus.UNKNOWN
    return BatchOutcome(error=MessageNotDelivered(result.partition, reason, may_be_stored=may_be_stored))


def _run(callbacks: Sequence[tuple[BatchDelivery, Sequence[Callback]]]) -> None:
    for batch_delivery, found in callbacks:
        batch_delivery.run_callbacks(found)
