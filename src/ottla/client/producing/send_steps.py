"""The steps of a `send` and of a transaction that may have to wait: for a topic's partitions, for room in the buffer,
for a coordinator's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ottla.client.producing.accumulator import Accumulator, Run
from ottla.client.producing.delivery import MessageDelivery, SetDelivery
from ottla.client.producing.errors import BufferFull, TransactionOutcomeUnknown
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.send_engine import LookUp
from ottla.client.producing.transaction_machine import Operation, Pending, TransactionMachine
from ottla.client.wire.errors import CallTimedOut, UnknownTopic
from ottla.model.errors import OttlaError
from ottla.records.record import Headers

Taken = TypeVar("Taken", covariant=True)


class SendStep(Protocol[Taken]):
    """`attempt` and `too_late` are called with the monitor's lock held."""

    def attempt(self) -> Taken | None:
        """None while something is missing that may still arrive.  Raises an error that waiting would not change."""
        ...

    def too_late(self, waited_ms: float) -> OttlaError:
        """The error of a wait that has ended: what was missing."""
        ...


class TopicStep:
    """A topic, of which at least `partitions_min` partitions are needed; gives their count."""

    def __init__(
        self,
        topic: str,
        partitions_min: int,
        accumulator: Accumulator,
        look_up: Callable[[str], LookUp],
        check: Callable[[], None],
    ) -> None:
        """`check` raises the reason why nothing may be sent."""
        self._topic = topic
        self._partitions_min = partitions_min
        self._check = check
        self._accumulator = accumulator
        self._look_up = look_up
        self._asked: LookUp | None = None

    def attempt(self) -> int | None:
        self._check()
        count = self._accumulator.partitions_count(self._topic)
        if count is not None and count >= self._partitions_min:
            return count
        if self._asked is not None and self._asked.is_done:
            if self._asked.error is not None:
                raise self._asked.error.with_traceback(None)
            if count is not None:
                raise UnknownTopic(
                    f"topic {self._topic} has no partition {self._partitions_min - 1}",
                    hint=f"its partitions are 0 to {count - 1}",
                )
            self._asked = None
        self._asked = self._asked or self._look_up(self._topic)
        return None

    def too_late(self, waited_ms: float) -> OttlaError:
        why = self._asked.last_problem if self._asked is not None else None
        late = CallTimedOut(
            f"the partitions of topic {self._topic} are not known after {waited_ms:g} ms: {why or 'no answer yet'}",
            hint=why.hint if why is not None else None,
        )
        late.__cause__ = why
        return late


class _Contents:
    """What a message and a set have in common: a known topic, and the need of room."""

    def __init__(self, topic: str, known: TopicStep, accumulator: Accumulator) -> None:
        self.topic = topic
        self._known = known
        self._accumulator = accumulator
        self._has_topic = False

    def has_topic(self) -> bool:
        self._has_topic = self._known.attempt() is not None
        return self._has_topic

    def too_late(self, waited_ms: float) -> OttlaError:
        if not self._has_topic:
            return self._known.too_late(waited_ms)
        return BufferFull(f"there was no room for more messages within {waited_ms:g} ms")


class MessageStep(_Contents):
    """One message; `partition` None: any."""

    def __init__(
        self,
        topic: str,
        known: TopicStep,
        accumulator: Accumulator,
        partition: int | None,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size_bytes: int,
    ) -> None:
        super().__init__(topic, known, accumulator)
        self._message = (partition, value, key, headers, timestamp_ms, size_bytes)

    def attempt(self) -> MessageDelivery | None:
        return self._accumulator.add(self.topic, *self._message) if self.has_topic() else None


class SetStep(_Contents):
    """A set of messages: all of it is taken at once."""

    def __init__(
        self,
        topic: str,
        known: TopicStep,
        accumulator: Accumulator,
        runs: Sequence[Run],
        headers: Headers,
        timestamp_ms: int,
    ) -> None:
        super().__init__(topic, known, accumulator)
        self._set = (runs, headers, timestamp_ms)

    def attempt(self) -> SetDelivery | None:
        return self._accumulator.add_set(self.topic, *self._set) if self.has_topic() else None


class TransactionStep:
    """The result of a user's call of a transaction; gives True."""

    def __init__(self, pending: Pending, machine: TransactionMachine, monitor: ProducerMonitor) -> None:
        self._pending = pending
        self._machine = machine
        self._monitor = monitor

    def attempt(self) -> bool | None:
        if self._machine.take_result(self._pending):
            return True
        self._monitor.check()
        return None

    def too_late(self, waited_ms: float) -> OttlaError:
        operation, why = self._pending.operation, self._pending.last_problem
        text = f"{operation.value} has no result after {waited_ms:g} ms: {why or 'no answer yet'}"
        if operation in (Operation.COMMIT, Operation.ABORT):
            late: OttlaError = TransactionOutcomeUnknown(
                text, hint=f"{operation.value}() again is safe, and waits for it"
            )
        else:
            late = CallTimedOut(text, hint=why.hint if why is not None else None)
        late.__cause__ = why
        return late
