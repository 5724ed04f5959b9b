"""A producer's engine without its thread, on fake brokers: each round is a call, and time is turned by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ottla.client.producing.accumulator import Accumulator
from ottla.client.producing.delivery import Delivery, Failures, Receipt
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.send_engine import LookUp, SendEngine
from ottla.client.producing.send_steps import MessageStep, SendStep, SetStep, TopicStep
from ottla.client.producing.serializing import MessageSerializer
from ottla.client.producing.settings import ProducerSettings
from tests.unit.client.fake_cluster import FakeCluster

Taken = TypeVar("Taken")
ROUNDS_MAX = 10_000


class Sending:
    """`send` and `send_set` do what a producer's do, and run rounds where that would wait."""

    def __init__(self, fake: FakeCluster, settings: ProducerSettings | None = None) -> None:
        self.fake = fake
        self.settings = settings or ProducerSettings()
        self.monitor = ProducerMonitor()
        self.failures = Failures()
        self.interrupts_count = 0
        self.serializer = MessageSerializer(self.settings, fake.clock.now_ms, self._choose)
        self.accumulator = Accumulator(self.settings, self.monitor, fake.clock, self._choose, self._wake)
        self.engine = SendEngine(
            fake.client(self.settings.client_options()),
            self.settings,
            self.monitor,
            self.accumulator,
            self.failures,
            self._interrupt,
        )
        self._chosen_count = 0

    def send(
        self, topic: str, value: bytes, *, key: bytes | None = None, partition: int | None = None
    ) -> Delivery[Receipt]:
        messages = self.serializer.message(topic, value, key, partition, None, None)
        known = self.topic_step(topic)
        if key is not None and partition is None:
            partition = self.serializer.partition(key, self.until_taken(known))
        fields = (partition, value, key, (), messages.timestamp_ms, messages.total_bytes)
        return self.until_taken(MessageStep(topic, known, self.accumulator, *fields))

    def send_set(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None] | None = None
    ) -> Delivery[list[Receipt]]:
        messages = self.serializer.messages(topic, values, None, keys, None, None, None)
        known = self.topic_step(topic)
        runs = self.serializer.runs(messages, self.until_taken(known))
        return self.until_taken(SetStep(topic, known, self.accumulator, runs, (), messages.timestamp_ms))

    def topic_step(self, topic: str, partitions_min: int = 1) -> TopicStep:
        return TopicStep(topic, partitions_min, self.accumulator, self.look_up, self.check)

    def check(self) -> None:
        """Raise why no message is taken."""
        self.monitor.check()

    def look_up(self, topic: str) -> LookUp:
        return self.engine.look_up(topic)

    def until_taken(self, step: SendStep[Taken]) -> Taken:
        """What the step gives, after as many rounds as it takes."""
        for _ in range(ROUNDS_MAX):
            with self.monitor.lock:
                taken = step.attempt()
            if taken is not None:
                return taken
            self.engine.turn()
        raise AssertionError("it is never taken")

    def flush(self) -> None:
        with self.monitor.lock:
            self.accumulator.close_all()
        for _ in range(ROUNDS_MAX):
            if not self.accumulator.unsettled:
                return
            self.engine.turn()
        raise AssertionError(f"not settled after {ROUNDS_MAX} rounds: {list(self.accumulator.unsettled)}")

    def _choose(self, partitions: Sequence[int]) -> int:
        self._chosen_count += 1
        return partitions[self._chosen_count % len(partitions)]

    def _wake(self) -> None:
        self.engine.wake()

    def _interrupt(self) -> None:
        self.interrupts_count += 1
