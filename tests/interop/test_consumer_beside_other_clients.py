"""Ottla's Consumer shares a group with confluent-kafka and kafka-python, on Ottla's broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from kafka import KafkaConsumer

import ottla
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually

pytestmark = pytest.mark.interop

PARTITIONS = 3
RECORDS = 60

# Returns the values that are there after a short wait, and how many partitions the member has.
Poll: TypeAlias = Callable[[], tuple[list[bytes], int]]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


def confluent(consumer: ConfluentConsumer) -> Poll:
    def poll() -> tuple[list[bytes], int]:
        messages = consumer.consume(RECORDS, 0.05)
        return [each.value() or b"" for each in messages if each.error() is None], len(consumer.assignment())

    return poll


def kafka_python(consumer: Any) -> Poll:
    def poll() -> tuple[list[bytes], int]:
        batches = consumer.poll(50)
        return [each.value for batch in batches.values() for each in batch], len(consumer.assignment())

    return poll


def ours(consumer: ottla.Consumer) -> Poll:
    def poll() -> tuple[list[bytes], int]:
        return [each.value or b"" for each in consumer.poll_many(RECORDS, 50)], len(consumer.assignment)

    return poll


class Reader:
    """A member that is polled in a thread."""

    def __init__(self, poll: Poll) -> None:
        self.values: list[bytes] = []
        self.partitions_count = 0
        self._poll = poll
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            values, self.partitions_count = self._poll()
            self.values += values

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def test_three_clients_share_the_partitions_of_a_classic_group(broker: RunningBroker) -> None:
    topic, group = f"shared-{uuid.uuid4().hex[:10]}", f"shared-{uuid.uuid4().hex[:10]}"
    with ottla.Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS)
    of_librdkafka = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
        }
    )
    of_librdkafka.subscribe([topic])
    with (
        closing(of_librdkafka),
        closing(
            KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest")
        ) as of_kafka_python,
        ottla.Consumer(
            broker.bootstrap, group=group, auto_offset_reset="earliest", group_protocol="classic"
        ) as of_ottla,
    ):
        of_ottla.subscribe([topic])
        readers = [Reader(confluent(of_librdkafka)), Reader(kafka_python(of_kafka_python)), Reader(ours(of_ottla))]
        try:
            eventually(lambda: [each.partitions_count for each in readers] == [1, 1, 1])
            with ottla.Producer(broker.bootstrap) as producer:
                for number in range(RECORDS):
                    producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            eventually(lambda: sum(len(each.values) for each in readers) >= RECORDS)
        finally:
            for reader in readers:
                reader.close()
    shares = [sorted({int(value) % PARTITIONS for value in each.values}) for each in readers]
    assert sorted(map(len, shares)) == [1, 1, 1]
    assert sorted(int(value) for each in readers for value in each.values) == list(range(RECORDS))
