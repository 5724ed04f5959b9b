"""Whole batches in transactions: the blocking driver of `TransactionMachine`, for one thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from ottla.client.producing.errors import TransactionAborted, TransactionOutcomeUnknown
from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.producing.transaction_driver import TransactionDriver
from ottla.client.producing.transaction_machine import Pending
from ottla.client.wire.client_log import PRODUCER
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import CallTimedOut, ClientError, ProducerStopped
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.observe.events import fields


class BatchTransactions:
    """The transactions of one transactional id, one after the other.  Batches are built as transactional ones.

    `with` aborts a transaction that was not committed; where that fails, its coordinator or the next `take_over` does.
    `split` as of `RawProducer`; its parts are transactional batches, too.

        with BatchTransactions(cluster, "orders", 60_000) as transactions:
            transactions.take_over()
            transactions.begin()
            transactions.send(TopicPartition("clicks", 0), build_batch(records, is_transactional=True))
            transactions.commit()
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        timeout_ms: int,
        options: ProducerOptions | None = None,
        *,
        split: Callable[[TopicPartition, bytearray], Sequence[bytearray]] | None = None,
    ) -> None:
        options = dataclasses.replace(options or ProducerOptions(), transactional_id=transactional_id)
        self._cluster = cluster
        self._driver = TransactionDriver(cluster, transactional_id, timeout_ms, ProducerMonitor(), lambda _: None)
        self._machine = self._driver.machine
        self._raw = RawProducer(cluster, options, split=split)
        # Since the last `poll`.
        self._stored: list[BatchResult] = []
        self._refused: BatchResult | None = None

    def __enter__(self) -> BatchTransactions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._machine.is_abortable:
                self.abort()
        except ClientError as problem:
            transactional_id = self._machine.transactional_id
            PRODUCER.warning("transaction.not_aborted", extra=fields(id=transactional_id, error=str(problem)))
        finally:
            self.close()

    def close(self) -> None:
        """Close the connections.  A transaction that is open stays so until its time-out, or the next `take_over`."""
        self._raw.close()

    def take_over(self) -> None:
        """Fence former producers of the id; when this returns, each of their transactions is committed or aborted.

        Raises ClientError.
        """
        self._wait(self._machine.initialize(), CallTimedOut)

    def begin(self) -> None:
        self._machine.begin()
        self._stored.clear()
        self._refused = None
        self._raw.begin(self._machine.identity, is_implicit=self._machine.is_implicit)

    def send(self, partition: TopicPartition, batch: bytearray, tag: object = None) -> None:
        """Queue one batch; it belongs to the transaction from now on, its result has the `tag`.  May block.

        Raises TransactionAbortable when a batch was refused, or a partition cannot be added; ProducerFenced.
        """
        deadline = self._cluster.retrying.deadline()
        while not self._machine.may_send(partition):
            self._make_calls()
            self._machine.check_open()
            if deadline.has_passed:
                self._machine.on_batch_failed(CallTimedOut(f"{partition} was not added to the transaction in time"))
                self._machine.check_open()
            self._pause(deadline.remaining_ms)
        try:
            self._raw.send(partition, batch, tag)
        except ProducerStopped as error:
            # A batch before it has failed, whose result says more.
            self._take(self._raw.poll())
            self._machine.on_batch_failed(error)
        self._take(self._raw.poll())
        self._machine.check_open()

    @property
    def refused(self) -> BatchResult | None:
        """The first batch of the last transaction that was not stored, if that is why it cannot commit."""
        return self._refused

    @property
    def pending_count(self) -> int:
        """The count of unsettled batches."""
        return self._raw.pending_count

    @property
    def has_room(self) -> bool:
        """Whether the next `send` does not block for unacknowledged batches."""
        return self._raw.has_room

    def poll(self, timeout_ms: float = 0) -> list[BatchResult]:
        """The batches that were stored since the last call, in the open transaction; the first ones to be stored within
        `timeout_ms`.  Raises as `send`.
        """
        self._take(self._raw.poll(0 if self._stored else timeout_ms))
        self._machine.check_open()
        stored, self._stored = self._stored, []
        return stored

    def flush(self) -> None:
        """Wait until everything that was sent is stored, in the open transaction.  Raises as `send`."""
        self._take(self._raw.flush())
        self._machine.check_open()

    def commit(self) -> None:
        """Wait until everything is stored, and commit.

        Raises TransactionAbortable, ProducerFenced: it is not committed.  TransactionOutcomeUnknown: no answer came,
        and the next `take_over` decides.
        """
        self.flush()
        self._wait(self._machine.commit(), TransactionOutcomeUnknown)

    def abort(self) -> None:
        """Raises ClientError."""
        pending = self._machine.abort()
        self._raw.end(TransactionAborted("the transaction was aborted"))
        self._raw.flush()
        self._wait(pending, TransactionOutcomeUnknown)

    def _take(self, results: Iterable[BatchResult]) -> None:
        for result in results:
            if result.status is DeliveryStatus.ACKNOWLEDGED:
                self._stored.append(result)
            else:
                self._refused = self._refused or result
                self._machine.on_batch_failed(result.error or OttlaError(f"{result.partition}: no reason is known"))

    def _wait(self, pending: Pending, late: type[ClientError]) -> None:
        deadline = self._cluster.retrying.deadline()
        while True:
            self._make_calls()
            if self._machine.take_result(pending):
                return
            if deadline.has_passed:
                problem = pending.last_problem
                what = f"{pending.operation.value} of {self._machine.transactional_id}"
                hint = None if problem is None else problem.hint
                raise late(f"{what} did not succeed in time: {problem}", hint=hint) from problem
            self._pause(deadline.remaining_ms)

    def _make_calls(self) -> None:
        self._driver.make_calls(lambda: not self._raw.pending_count)

    def _pause(self, limit_ms: float) -> None:
        """Until the machine has a call to make again."""
        due_ms = self._machine.due_in_ms(is_idle=not self._raw.pending_count)
        if due_ms:
            self._cluster.retrying.sleep_ms(min(due_ms, limit_ms))
