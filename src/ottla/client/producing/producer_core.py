"""One producer below its interfaces: its monitor, accumulator and thread, and their end with the process.

`producer` and `aio_producer` wait in their own ways, and share this.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from ottla.client.groups.group_types import GroupOffsets
from ottla.client.producing.accumulator import Accumulator, Run
from ottla.client.producing.delivery import Acknowledged, BatchDelivery, Failures, MessageDelivery, SetDelivery
from ottla.client.producing.errors import InvalidTransactionState, MessagesNotDelivered, ProducerClosed
from ottla.client.producing.producer_metrics import ProducerMetrics
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.send_engine import SendEngine
from ottla.client.producing.send_steps import MessageStep, SendStep, SetStep, TopicStep, TransactionStep
from ottla.client.producing.serializing import SerializedMessages
from ottla.client.producing.settings import (
    ProducerSettings,
)
from ottla.client.producing.transaction_machine import Pending, TransactionMachine
from ottla.client.wire.client_log import PRODUCER
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.destination.destination import Destination
from ottla.client.wire.errors import CallTimedOut
from ottla.client.wire.waiting import WARN_AGAIN_MS, Waiting, warns_on
from ottla.client.wire.wake_up import WakeUp, WokenWaits
from ottla.runtime.clock import SystemClock

# After an abandoned close the thread may still be in a call to a broker; it ends when that call ends.
_ABANDONED_JOIN_S: Final = 1.0
# So many closed batches may wait for the producer's thread before a user's thread lets it run; and for how long.
_READY_MAX: Final = 1
_YIELD_S: Final = 0.01


class ProducerCore:
    """The monitor, the accumulator and the thread of one producer, which runs until `finish` and the last outcome."""

    def __init__(
        self, destination: Destination, settings: ProducerSettings, choose: Callable[[Sequence[int]], int]
    ) -> None:
        self.settings = settings
        self.monitor = ProducerMonitor()
        self._wake_up = WakeUp()
        waits = WokenWaits(self._wake_up)
        clock = SystemClock()
        try:
            warn = warns_on(PRODUCER, f"producer of {destination.bootstrap}")
            waiting = Waiting(warn, clock, again_after_ms=WARN_AGAIN_MS)
            cluster = Cluster(
                destination,
                settings.client_options(),
                dial=waiting.dial,
                clock=clock,
                wait=waits.wait,
                sleep=waits.sleep,
                on_wait=waiting.on_wait,
            )
        except BaseException:  # an address that cannot be parsed
            self._wake_up.close()
            raise
        self.accumulator = Accumulator(settings, self.monitor, clock, choose, self._wake)
        self._failures = Failures()
        self._engine = SendEngine(cluster, settings, self.monitor, self.accumulator, self._failures, self._wake_up.ring)
        self._is_forked = False
        self._thread = threading.Thread(target=self._run, name="ottla-producer", daemon=True)
        self._thread.start()
        _OPEN.add(self)

    @property
    def is_closed(self) -> bool:
        return self.monitor.refusal is not None

    def topic_step(self, messages: SerializedMessages) -> TopicStep:
        """Gives the count of the topic's partitions, at least as many as an explicit partition needs."""
        least = 1 if messages.partition is None else messages.partition + 1
        return TopicStep(messages.topic, least, self.accumulator, self._engine.look_up, self._check)

    def message_step(self, messages: SerializedMessages, partition: int | None) -> SendStep[MessageDelivery]:
        message = (partition, messages.values[0], messages.keys[0], messages.headers)
        return MessageStep(
            messages.topic,
            self.topic_step(messages),
            self.accumulator,
            *message,
            messages.timestamp_ms,
            messages.total_bytes,
        )

    def set_step(self, messages: SerializedMessages, runs: Sequence[Run]) -> SendStep[SetDelivery]:
        known = self.topic_step(messages)
        return SetStep(messages.topic, known, self.accumulator, runs, messages.headers, messages.timestamp_ms)

    def _check(self) -> None:
        """Raise why no message is taken; with the lock."""
        self.monitor.check()
        if self._engine.transactions is not None:
            self._engine.transactions.check_open()

    def init_step(self) -> TransactionStep:
        return self._transaction_step(TransactionMachine.initialize)

    def begin_transaction(self) -> None:
        with self.monitor.lock:
            self.monitor.check()
            self._transactions().begin()

    def commit_step(self) -> TransactionStep:
        """Everything is sent now, and the transaction ends when it is stored."""
        return self._transaction_step(TransactionMachine.commit)

    def abort_step(self) -> TransactionStep:
        """Nothing more is sent."""
        return self._transaction_step(TransactionMachine.abort)

    def offsets_step(self, offsets: GroupOffsets) -> TransactionStep:
        return self._transaction_step(lambda machine: machine.add_offsets(*offsets))

    @property
    def has_ended_transaction(self) -> bool:
        """Whether the last transaction was ended, and its result read."""
        with self.monitor.lock:
            return self._transactions().is_ended_by_the_user

    def _transaction_step(self, call: Callable[[TransactionMachine], Pending]) -> TransactionStep:
        with self.monitor.lock:
            self.monitor.check()
            machine = self._transactions()
            pending = call(machine)
            if machine.is_ending:
                self.accumulator.close_all()
            self._engine.hurry()
            return TransactionStep(pending, machine, self.monitor)

    def _transactions(self) -> TransactionMachine:
        machine = self._engine.transactions
        if machine is None:
            raise InvalidTransactionState(
                "this producer has no transactions", hint='open it with transactional_id="a name that stays"'
            )
        return machine

    def yield_to_sender(self) -> None:
        """With the lock, by a user's thread that is not the only one to compute.

        A thread that closes batches faster than they are taken lets the producer's thread run, for a bounded time: that
        would wait for the interpreter's lock at each system call, while the buffer fills up.
        """
        if self.accumulator.ready_count >= _READY_MAX:
            self.monitor.yield_now(_YIELD_S)

    def begin_flush(self) -> Sequence[BatchDelivery]:
        """Everything is sent now; what has no outcome yet."""
        with self.monitor.lock:
            self.accumulator.close_all()
            return [batch.batch_delivery for batch in self.accumulator.unsettled]

    def on_acknowledged(self, call: Callable[[Acknowledged], object]) -> None:
        self._engine.on_acknowledged(call)

    def metrics(self) -> ProducerMetrics:
        with self.monitor.lock:
            return self._engine.metrics()

    def take_failures(self) -> MessagesNotDelivered | None:
        """The failures that no delivery has reported; each is returned once."""
        with self.monitor.lock:
            return self._failures.take()

    def finish(self) -> None:
        """Take nothing more, send everything, end the thread."""
        with self.monitor.lock:
            self.monitor.refuse(ProducerClosed("the producer is closed"))
            if not self._is_forked:
                self._engine.finish()
            self.monitor.announce()

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the end of the thread, after `finish`; False when it has not come in time.

        In a forked child there is nothing to wait for: the messages are the parent's.
        """
        if self._is_forked:
            return True
        self.monitor.check_waiter()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abandon(self, waited_ms: float) -> None:
        """The end, now: what is under way fails with what is known of it."""
        self._engine.abandon(CallTimedOut(f"the producer was closed, which waited for {waited_ms:g} ms"))
        self._thread.join(_ABANDONED_JOIN_S)

    def orphan(self) -> None:
        """For a finalizer: the thread sends what is left and ends."""
        if not self._is_forked:
            self._engine.orphan()

    def end_with_the_process(self, wait_ms: int) -> None:
        """Send what is left, within `wait_ms`; raises what was not delivered.  Called again after an interrupt."""
        began_s = time.monotonic()
        self.finish()
        # After an interrupted join Python takes a thread that runs for one that has ended (bpo-45274).
        if not (wait_ms > 0 and self.join(wait_ms / 1000)):
            self.abandon(round((time.monotonic() - began_s) * 1000))
        lost = self.take_failures()
        if lost is not None:
            raise lost

    def in_a_forked_child(self) -> None:
        self._is_forked = True
        self.monitor.forked(ProducerClosed("the process was forked: a producer belongs to the process that made it"))
        self.accumulator.forget_everything()

    def _wake(self) -> None:
        self._engine.wake()

    def _run(self) -> None:
        try:
            self._engine.run()
        finally:
            _OPEN.discard(self)
            self._wake_up.close()


# The end of a process waits so long for each producer that was not closed.
EXIT_WAIT_MS: Final = 10_000
# The producers of this process, for its end and for its forks.
_OPEN: Final[weakref.WeakSet[ProducerCore]] = weakref.WeakSet()


def _at_exit() -> None:
    errors: list[Exception] = []
    try:
        _end_all(EXIT_WAIT_MS, errors)
    except KeyboardInterrupt:
        # The user does not want to wait.  Losses are reported wherever the interrupt came.
        _end_all(0, errors)
    if errors:
        # Python prints it, as for every error at the end of a process.
        raise errors[0]


def _end_all(wait_ms: int, errors: list[Exception]) -> None:
    for core in list(_OPEN):
        try:
            core.end_with_the_process(wait_ms)
        except Exception as error:  # noqa: BLE001 - the others are ended, too
            errors.append(error)


def _after_fork() -> None:
    for core in list(_OPEN):
        core.in_a_forked_child()
    _OPEN.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
