"""What `send` gives: to be waited for, to be asked, or to be ignored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.client.producing.errors import Failure, MessageNotDelivered, MessagesNotDelivered
from ottla.client.producing.settlement import Outcome, Settlement
from ottla.client.wire.errors import CallTimedOut
from ottla.model.counted import counted
from ottla.model.identifiers import NO_OFFSET, NO_TIMESTAMP

ReceiptT = TypeVar("ReceiptT", covariant=True)


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


class MessageDelivery(Delivery[Receipt]):
    """Of one message: one place of a batch.  `Batch.append` makes it, and sets both fields."""

    __slots__ = ("index", "settlement")

    index: int
    settlement: Settlement

    @property
    def is_done(self) -> bool:
        return self.settlement.outcome is not None

    def wait(self, timeout_ms: float | None = None) -> Receipt:
        settlement = self.settlement
        outcome = settlement.outcome or _outcome(settlement, _Countdown(timeout_ms))
        if outcome.error is not None:
            settlement.mark_reported([self.index])
            raise outcome.error.again()
        return _receipt(settlement, self.index)

    def error(self) -> MessageNotDelivered | None:
        outcome = self.settlement.outcome
        if outcome is not None and outcome.error is not None:
            self.settlement.mark_reported([self.index])
            return outcome.error
        return None

    def add_done_callback(self, call: Callable[[Delivery[Receipt]], object]) -> None:
        self.settlement.on_settled(self.index, lambda: call(self))

    def when_done(self, call: Callable[[], object]) -> None:
        self.settlement.on_settled(None, call)

    def __repr__(self) -> str:
        return f"<delivery to {self.settlement.partition}: {_state(self.settlement)}>"


class Part(NamedTuple):
    """Messages of a set in one batch, from its message `first` on: `positions` are their places in the set."""

    settlement: Settlement
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
        return all(part.settlement.outcome is not None for part in self._parts)

    def wait(self, timeout_ms: float | None = None) -> list[Receipt]:
        countdown = _Countdown(timeout_ms)
        for part in self._parts:
            _outcome(part.settlement, countdown)
        error = self.error()
        if error is not None:
            raise error
        receipts: list[Receipt | None] = [None] * self._count
        for part in self._parts:
            for index, position in enumerate(part.positions, start=part.first):
                receipts[position] = _receipt(part.settlement, index)
        return [receipt for receipt in receipts if receipt is not None]

    def error(self) -> MessagesNotDelivered | None:
        """Why some of it failed, when all of it is done."""
        if not self.is_done:
            return None
        failures = []
        for settlement, first, positions in self._parts:
            outcome = settlement.outcome
            if outcome is not None and outcome.error is not None:
                settlement.mark_reported(range(first, first + len(positions)))
                failures.append(Failure(*settlement.partition, len(positions), outcome.error))
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
            part.settlement.on_settled(None, one_is_done)
        one_is_done()

    def __repr__(self) -> str:
        states = sorted({_state(part.settlement) for part in self._parts})
        return f"<delivery of {counted(self._count, 'message')}: {', '.join(states)}>"


class _Countdown:
    """What is left of a time-out over several waits."""

    def __init__(self, timeout_ms: float | None) -> None:
        self._until_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    @property
    def left_s(self) -> float | None:
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())


def _outcome(settlement: Settlement, countdown: _Countdown) -> Outcome:
    outcome = settlement.wait(countdown.left_s)
    if outcome is None:
        raise CallTimedOut(f"a message for {settlement.partition} is not acknowledged yet", hint="it may still be")
    return outcome


def _receipt(settlement: Settlement, index: int) -> Receipt:
    outcome = settlement.outcome
    assert outcome is not None, "asked for before the end"
    stamped_ms = outcome.log_append_time_ms
    timestamp_ms = settlement.timestamps_ms[index] if stamped_ms == NO_TIMESTAMP else stamped_ms
    offset = NO_OFFSET if outcome.base_offset == NO_OFFSET else outcome.base_offset + index
    return Receipt(*settlement.partition, offset, timestamp_ms)


def _state(settlement: Settlement) -> str:
    if settlement.outcome is None:
        return "under way"
    return "stored" if settlement.outcome.error is None else "failed"
