"""The end of a batch, for those who wait for its messages."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.client.producing.errors import Failure, MessageNotDelivered, MessagesNotDelivered
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.model.identifiers import NO_OFFSET, NO_TIMESTAMP, TopicPartition


class Outcome(NamedTuple):
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


class Settlement:
    """`outcome` is None until the batch is settled.  The monitor's lock guards everything here."""

    __slots__ = ("_callbacks", "_event", "_monitor", "_reported", "outcome", "partition", "timestamps_ms")

    def __init__(self, monitor: ProducerMonitor, partition: TopicPartition, timestamps_ms: Sequence[int]) -> None:
        self.partition = partition
        # The batch's own column: receipts have what was sent.
        self.timestamps_ms = timestamps_ms
        self.outcome: Outcome | None = None
        self._monitor = monitor
        self._event: threading.Event | None = None
        self._callbacks: list[Callback] | None = None
        self._reported: set[int] | None = None

    def wait(self, timeout_s: float | None) -> Outcome | None:
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

    def settle(self, outcome: Outcome) -> Sequence[Callback]:
        """With the lock held.  The caller runs the callbacks, by `run_callbacks`, without it."""
        assert self.outcome is None, "a batch is settled once"
        self.outcome = outcome
        if self._event is not None:
            self._event.set()
        callbacks, self._callbacks = self._callbacks or (), None
        return callbacks

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
        self._settlements: list[Settlement] = []
        self._more_count = 0

    def add(self, settlement: Settlement) -> None:
        if len(self._settlements) >= _KEPT_MAX:
            self._settlements = [each for each in self._settlements if each.unreported() is not None]
        if len(self._settlements) < _KEPT_MAX:
            self._settlements.append(settlement)
        else:
            failure = settlement.unreported()
            self._more_count += failure.messages_count if failure is not None else 0

    def take(self) -> MessagesNotDelivered | None:
        """The failures that were not read; each is returned once."""
        unreported = [failure for each in self._settlements if (failure := each.unreported()) is not None]
        count = self._more_count + sum(failure.messages_count for failure in unreported)
        self._settlements, self._more_count = [], 0
        return MessagesNotDelivered(unreported, count) if count else None
