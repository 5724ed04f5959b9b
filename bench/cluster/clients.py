"""Real clients (confluent-kafka, librdkafka) that note when each of their requests had its answer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.loop import Loop
from bench.raw_client.load import VALUE_BYTES, LoadFailed

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

VALUE: Final = bytes(ord("a") + index % 26 for index in range(VALUE_BYTES))
DRAIN_S: Final = 60
# A commit that gets no answer is given up after this long, and made again.
COMMIT_TIMEOUT_MS: Final = 5_000
COMMITS_PER_S: Final = 100


class Answered(NamedTuple):
    partition: int
    due_s: float
    """When the message was due, by time.monotonic()."""
    answered_s: float


def longest_silence_s(answered_s: Sequence[float], from_s: float, to_s: float) -> float:
    """The longest time between two answers that follow each other, in a window whose ends count as answers."""
    inside = [from_s, *sorted(moment for moment in answered_s if from_s < moment < to_s), to_s]
    return max(after - before for before, after in itertools.pairwise(inside))


class PacedProducer(Loop):
    """Idempotent, acks=all: messages at even distances to the partitions in turn, all acknowledged in the end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, messages_per_s: float) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._interval_s = 1 / messages_per_s
        self.answered: list[Answered] = []

    def answers_of(self, partitions: Sequence[int]) -> list[float]:
        return [each.answered_s for each in self.answered if each.partition in partitions]

    def latencies_s(self, from_s: float, to_s: float) -> list[float]:
        """Of the messages that were due in this window, counted from when they were due."""
        return [each.answered_s - each.due_s for each in self.answered if from_s <= each.due_s < to_s]

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )
        sent = 0
        due_s = time.monotonic()
        while not self.is_stopping.is_set():
            partition = sent % self._partitions
            producer.produce(
                self._topic, VALUE, partition=partition, on_delivery=partial(self._on_delivery, partition, due_s)
            )
            sent += 1
            due_s += self._interval_s
            while (left_s := due_s - time.monotonic()) > 0:
                producer.poll(left_s)
        if producer.flush(DRAIN_S) > 0:
            raise LoadFailed(f"not everything was acknowledged within {DRAIN_S} s")
        if len(self.answered) != sent:
            raise LoadFailed(f"{sent - len(self.answered)} of {sent} messages failed")

    def _on_delivery(self, partition: int, due_s: float, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.answered.append(Answered(partition, due_s, time.monotonic()))


class Committer(Loop):
    """A member of a group of one that commits an offset again and again, each before the next."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self.committed_s: list[float] = []

    def wait_for_first(self, timeout_s: float = 60) -> None:
        give_up_s = time.monotonic() + timeout_s
        while not self.committed_s:
            if not self._thread.is_alive() or time.monotonic() > give_up_s:
                raise LoadFailed(f"group {self._group} has committed nothing")
            time.sleep(0.01)

    def run(self) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": COMMIT_TIMEOUT_MS + 1_000,
                "heartbeat.interval.ms": 500,
            }
        )
        consumer.subscribe([self._topic])
        offset = 0
        try:
            while not self.is_stopping.is_set():
                consumer.poll(1 / COMMITS_PER_S)
                if not consumer.assignment():
                    continue
                try:
                    consumer.commit(offsets=[TopicPartition(self._topic, 0, offset)], asynchronous=False)
                except KafkaException:
                    continue  # the coordinator is gone or moving: the next attempt asks for it
                self.committed_s.append(time.monotonic())
                offset += 1
        finally:
            consumer.close()
