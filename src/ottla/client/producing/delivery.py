"""The delivery of batches and of the messages in them: to be waited for, to be asked, or to be ignored."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from ottla.client.producing.errors import Failure, MessageNotDelivered, MessagesNotDelivered
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.wire.errors import CallTimedOut
from ottla.model.counted import counted
from ottla.model.identifiers import NO_OFFSET, NO_TIMESTAMP, TopicPartition

ReceiptT = TypeVar("ReceiptT", covariant=True)


class BatchOutcome(NamedTuple):
    """`base_offset` is -1 where no broker returned it: with acks 0, or with an error."""

    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    error: MessageNotDelivered | None = None


class Acknowledged(NamedTuple):
    """A batch that is stored.  `log_append_time_ms` is -1, or the broker's time, which all its messages have."""

    topic: str
    partition: int
    timestamps_ms: Sequence[int]
    log_append_time_ms: int

    @property
    def event_times_ms(self) -> Sequence[int]:
        """The times that a consumer of the messages sees."""
        if self.log_append_time_ms == NO_TIMESTAMP:
            return self.timestamps_ms
        return [self.log_append_time_ms] * len(self.timestamps_ms)


# What to call, and the index of the message in its batch that it reports to the user; None reports none.
Callback: TypeAlias = tuple[int | None, Callable[[], object]]


class BatchDelivery:
    """`outcome` is None until the batch is settled.  The monitor's lock guards everything here."""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_event",
        "_monitor",
        "_reported",
        "outcome",
        "partition",
        "timestamps_ms",
    )

    def __init__(self, monitor: ProducerMonitor, partition: TopicPartition, timestamps_ms: Sequence[int]) -> None:
        self.partition = partition
        # The batch's own column: receipts have what was sent.
        self.timestamps_ms = timestamps_ms
        self.outcome: BatchOutcome | None = None
        self._monitor = monitor
        self._event: threading.Event | None = None
        self._callbacks: list[Callback] | None = None
        self._reported: set[int] | None = None

    def wait(self, timeout_s: float | None) -> BatchOutcome | None:
        """The outcome; None when there is none in time.  ProducerClosed in a process that was forked."""
        if self.outcome is None:
            with self._monitor.lock:
                if self.outcome is None:
                    self._monitor.check_waiter()
                    self._event = self._event or threading.Event()
            if self._event is not None:
                self._event.wait(timeout_s)
        return self.outcome

    def on_settled(self, index: int | None, call: Callable[[], object]) -> None:
        """`call` when the message has its outcome: at once, or on the producer's thread."""
        with self._monitor.lock:
            if self.outcome is None:
                self._callbacks = self._callbacks or []
                self._callbacks.append((index, call))
                return
        self.run_callbacks([(index, call)])

    def settle(self, outcome: BatchOutcome) -> Sequence[Callback]:
        """With the lock held.  The caller runs the callbacks, by `run_callbacks`, without it."""
        assert self.outcome is None, "a batch is settled once"
        self.outcome = outcome
        if self._event is not None:
            self._event.set()
        callbacks, self._callbacks = self._callbacks or (), None
        return callbacks

    def revoke(self, error: MessageNotDelivered) -> None:
        """It was stored, and its transaction has not committed.  With the lock held."""
        self.outcome = BatchOutcome(error=error)

    def run_callbacks(self, callbacks: Sequence[Callback]) -> None:
        self.mark_reported([index for index, _ in callbacks if index is not None])
        for _, call in callbacks:
            try:
                call()
            except (Exception, SystemExit):  # noqa: BLE001 - a user's code: reported as that of any thread
                arguments = (*sys.exc_info(), threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(arguments))

    def mark_reported(self, indexes: Sequence[int]) -> None:
        """The user knows what became of these messages."""
        if indexes and self.outcome is not None and self.outcome.error is not None:
            with self._monitor.lock:
                self._reported = self._reported or set()
                self._reported.update(indexes)

    def unreported(self) -> Failure | None:
        """The messages that failed and whose failure was not read.  With the lock held."""
        if self.outcome is None or self.outcome.error is None:
            return None
        count = len(self.timestamps_ms) - len(self._reported or ())
        return Failure(*self.partition, count, self.outcome.error) if count else None


# Of a user who never asks, so many are kept one by one; the others are counted.
_KEPT_MAX: Final = 1_000


class Failures:
    """With the monitor's lock held."""

    def __init__(self) -> None:
        self._batches: list[BatchDelivery] = []
        self._more_count = 0

    def add(self, batch_delivery: BatchDelivery) -> None:
        if len(self._batches) >= _KEPT_MAX:
            self._batches = [each for each in self._batches if each.unreported() is not None]
        if len(self._batches) < _KEPT_MAX:
            self._batches.append(batch_delivery)
        else:
            failure = batch_delivery.unreported()
            self._more_count += failure.messages_count if failure is not None else 0

    def take(self) -> MessagesNotDelivered | None:
        """The failures that were not read; each is returned once."""
        unreported = [failure for each in self._batches if (failure := each.unreported()) is not None]
        count = self._more_count + sum(failure.messages_count for failure in unreported)
        self._batches, self._more_count = [], 0
        return MessagesNotDelivered(unreported, count) if count else None


class Receipt(NamedTuple):
    """Where a message is stored.  `offset` is -1 where no broker returns it, as with acks 0."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Delivery(Generic[ReceiptT]):
    """The delivery of what one `send` took: a message (`Delivery[Receipt]`) or a set (`Delivery[list[Receipt]]`).

    delivery = producer.send("page-views", b"/jobs")
    receipt = delivery.wait()

    Waiting is not required: a failure that was not read here is raised by `flush` and `close`.
    """

    __slots__ = ()

    @property
    def is_done(self) -> bool:
        """Whether it is settled: stored, or failed."""
        raise NotImplementedError

    def wait(self, timeout_ms: float | None = None) -> ReceiptT:
        """The receipt, when the broker has acknowledged what `acks` demands.

        Raises MessageNotDelivered (of a set: MessagesNotDelivered), CallTimedOut after `timeout_ms`, by which nothing
        is cancelled.  Without a time it ends, too: by the producer's `delivery_timeout_ms`.
        """
        raise NotImplementedError

    def error(self) -> MessageNotDelivered | MessagesNotDelivered | None:
        """Why it failed; None while it is not done, and when it is stored."""
        raise NotImplementedError

    def add_done_callback(self, call: Callable[[Delivery[ReceiptT]], object]) -> None:
        """`call(delivery)` when it is done: on the producer's thread, which must not be held up; at once if it is."""
        raise NotImplementedError

    def when_done(self, call: Callable[[], object]) -> None:
        """The same without the delivery: an error does not count as reported by it."""
        raise NotImplementedError

    def settled(self) -> tuple[list[Receipt], MessageNotDelivered | None]:
        """The receipts of what is stored, and why other messages are not, when it is done.  An error does not count as
        reported by it.
        """
        raise NotImplementedError


class MessageDelivery(Delivery[Receipt]):
    """Of one message: one place of a batch.  `Batch.append` makes it, and sets both fields."""

    __slots__ = ("batch_delivery", "index")

    index: int
    batch_delivery: BatchDelivery

    @property
    def is_done(self) -> bool:
        return self.batch_delivery.outcome is not None

    def wait(self, timeout_ms: float | None = None) -> Receipt:
        batch_delivery = self.batch_delivery
        outcome = batch_delivery.outcome or _outcome(batch_delivery, _Countdown(timeout_ms))
        if outcome.error is not None:
            batch_delivery.mark_reported([self.index])
            raise outcome.error.again()
        return _receipt(batch_delivery, self.index)

    def error(self) -> MessageNotDelivered | None:
        outcome = self.batch_delivery.outcome
        if outcome is not None and outcome.error is not None:
            self.batch_delivery.mark_reported([self.index])
            return outcome.error
        return None

    def add_done_callback(self, call: Callable[[Delivery[Receipt]], object]) -> None:
        self.batch_delivery.on_settled(self.index, lambda: call(self))

    def when_done(self, call: Callable[[], object]) -> None:
        self.batch_delivery.on_settled(None, call)

    def settled(self) -> tuple[list[Receipt], MessageNotDelivered | None]:
        outcome = self.batch_delivery.outcome
        assert outcome is not None, "asked for before the end"
        return ([_receipt(self.batch_delivery, self.index)], None) if outcome.error is None else ([], outcome.error)

    def __repr__(self) -> str:
        return f"<delivery to {self.batch_delivery.partition}: {_state(self.batch_delivery)}>"


class Part(NamedTuple):
    """Messages of a set in one batch, from its message `first` on: `positions` are their places in the set."""

    batch_delivery: BatchDelivery
    first: int
    positions: Sequence[int]


class SetDelivery(Delivery[list[Receipt]]):
    """Of a set of messages, which may be in several batches.  The receipts are in the order of the set."""

    __slots__ = ("_count", "_parts")

    def __init__(self, parts: Sequence[Part], count: int) -> None:
        self._parts = parts
        self._count = count

    def __len__(self) -> int:
        """The count of its messages."""
        return self._count

    @property
    def is_done(self) -> bool:
        return all(part.batch_delivery.outcome is not None for part in self._parts)

    def wait(self, timeout_ms: float | None = None) -> list[Receipt]:
        countdown = _Countdown(timeout_ms)
        for part in self._parts:
            _outcome(part.batch_delivery, countdown)
        error = self.error()
        if error is not None:
            raise error
        receipts: list[Receipt | None] = [None] * self._count
        for part in self._parts:
            for index, position in enumerate(part.positions, start=part.first):
                receipts[position] = _receipt(part.batch_delivery, index)
        return [receipt for receipt in receipts if receipt is not None]

    def error(self) -> MessagesNotDelivered | None:
        """Why some of it failed, when all of it is done."""
        if not self.is_done:
            return None
        failures = []
        for batch_delivery, first, positions in self._parts:
            outcome = batch_delivery.outcome
            if outcome is not None and outcome.error is not None:
                batch_delivery.mark_reported(range(first, first + len(positions)))
                failures.append(Failure(*batch_delivery.partition, len(positions), outcome.error))
        return MessagesNotDelivered(failures, sum(each.messages_count for each in failures)) if failures else None

    def add_done_callback(self, call: Callable[[Delivery[list[Receipt]]], object]) -> None:
        def report_and_call() -> None:
            self.error()
            call(self)

        self.when_done(report_and_call)

    def when_done(self, call: Callable[[], object]) -> None:
        # One more than the parts, for the case of none.  Each end takes one away, on any thread; the last calls.
        left = [True, *(False for _ in self._parts)]

        def one_is_done() -> None:
            if left.pop():
                call()

        for part in self._parts:
            part.batch_delivery.on_settled(None, one_is_done)
        one_is_done()

    def settled(self) -> tuple[list[Receipt], MessageNotDelivered | None]:
        receipts: list[Receipt] = []
        error: MessageNotDelivered | None = None
        for batch_delivery, first, positions in self._parts:
            assert batch_delivery.outcome is not None, "asked for before the end"
            if batch_delivery.outcome.error is None:
                receipts += [_receipt(batch_delivery, first + number) for number in range(len(positions))]
            else:
                error = error or batch_delivery.outcome.error
        return receipts, error

    def __repr__(self) -> str:
        states = sorted({_state(part.batch_delivery) for part in self._parts})
        return f"<delivery of {counted(self._count, 'message')}: {', '.join(states)}>"


class _Countdown:
    """What is left of a time-out over several waits."""

    def __init__(self, timeout_ms: float | None) -> None:
        self._until_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    @property
    def left_s(self) -> float | None:
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())


def _outcome(batch_delivery: BatchDelivery, countdown: _Countdown) -> BatchOutcome:
    outcome = batch_delivery.wait(countdown.left_s)
    if outcome is None:
        raise CallTimedOut(f"a message for {batch_delivery.partition} is not acknowledged yet", hint="it may still be")
    return outcome


def _receipt(batch_delivery: BatchDelivery, index: int) -> Receipt:
    outcome = batch_delivery.outcome
    assert outcome is not None, "asked for before the end"
    stamped_ms = outcome.log_append_time_ms
    timestamp_ms = batch_delivery.timestamps_ms[index] if stamped_ms == NO_TIMESTAMP else stamped_ms
    offset = NO_OFFSET if outcome.base_offset == NO_OFFSET else outcome.base_offset + index
    return Receipt(*batch_delivery.partition, offset, timestamp_ms)


def _state(batch_delivery: BatchDelivery) -> str:
    if batch_delivery.outcome is None:
        return "under way"
    return "stored" if batch_delivery.outcome.error is None else "failed"
