"""Transactional producers of Python's clients: a loop of consume, transform and produce, aborts, and fencing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from tests.peers.either_broker import BrokerKind, either_broker
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

PARTITIONS: Final = 2
INPUTS: Final = 200
BATCH: Final = 20
# The batches whose first attempt is aborted.
ABORTED_EVERY: Final = 3
CALL_S: Final = 30.0
READ_WITHIN_MS: Final = 30_000


@pytest.fixture(scope="module", params=BrokerKind)
def either(request: pytest.FixtureRequest) -> Iterator[str]:
    try:
        with either_broker(request.param, {"group.initial.rebalance.delay.ms": "0"}) as bootstrap:
            yield bootstrap
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


@pytest.fixture
def name(either: str) -> str:
    """Of two topics, NAME and NAME-out, of the transactional ids and of the groups."""
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    with Cluster(either) as cluster:
        for topic in (name, f"{name}-out"):
            Admin(cluster).create_topic(topic, PARTITIONS)
    return name


def committed_values(bootstrap: str, topic: str, count: int) -> list[int]:
    """The first `count` numbers that a reader of committed records sees, and all that come with the last ones."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    ends: set[int] = set()
    while len(found) < count or len(ends) < PARTITIONS:
        message = consumer.poll(CALL_S)
        assert message is not None, f"{len(found)} of {count} came"
        error = message.error()
        partition = message.partition()
        assert partition is not None
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ends.add(partition)
        else:
            ends.discard(partition)
            found.append(number_of(message))
    consumer.close()
    return found


def number_of(message: Message) -> int:
    value = message.value()
    assert isinstance(value, bytes)
    return int(value)


def test_loop_of_confluent_kafka_processes_each_record_once(either: str, name: str) -> None:
    source = Producer({"bootstrap.servers": either})
    for number in range(INPUTS):
        source.produce(name, b"%d" % number, partition=number % PARTITIONS)
    assert source.flush(CALL_S) == 0
    producer = Producer({"bootstrap.servers": either, "transactional.id": name, "transaction.timeout.ms": 60_000})
    producer.init_transactions(CALL_S)
    consumer = Consumer(
        {
            "bootstrap.servers": either,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([name])
    processed, attempts = 0, 0
    while processed < INPUTS:
        messages = consumer.consume(BATCH, CALL_S / 10)
        if not messages:
            continue
        attempts += 1
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None
            producer.produce(f"{name}-out", b"%d" % (number_of(message) * 2))
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CALL_S)
        if attempts % ABORTED_EVERY == 1:
            producer.abort_transaction(CALL_S)
            for message in reversed(messages):
                consumer.seek(TopicPartition(name, message.partition() or 0, message.offset() or 0))
        else:
            producer.commit_transaction(CALL_S)
            processed += len(messages)
    committed = consumer.committed([TopicPartition(name, index) for index in range(PARTITIONS)], CALL_S)
    consumer.close()
    assert attempts > INPUTS // BATCH, "some were aborted"
    assert [part.offset for part in committed] == [INPUTS // PARTITIONS] * PARTITIONS
    assert sorted(committed_values(either, f"{name}-out", INPUTS)) == [number * 2 for number in range(INPUTS)]


def test_second_producer_of_librdkafka_fences_the_first_and_aborts_its_transaction(either: str, name: str) -> None:
    settings = {"bootstrap.servers": either, "transactional.id": name}
    first, second = Producer(settings), Producer(settings)
    first.init_transactions(CALL_S)
    first.begin_transaction()
    first.produce(f"{name}-out", b"1", partition=0)
    assert first.flush(CALL_S) == 0
    second.init_transactions(CALL_S)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(CALL_S)
    assert refused.value.args[0].fatal()
    second.begin_transaction()
    second.produce(f"{name}-out", b"2", partition=0)
    second.commit_transaction(CALL_S)
    assert committed_values(either, f"{name}-out", 1) == [2]


def test_transactions_of_aiokafka_are_committed_with_their_offsets_or_aborted(either: str, name: str) -> None:
    async def run() -> tuple[int | None, list[int]]:
        producer = AIOKafkaProducer(bootstrap_servers=either, transactional_id=name)
        await producer.start()
        try:
            for batch in range(4):
                await producer.begin_transaction()
                for number in range(5):
                    await producer.send(f"{name}-out", b"%d" % (batch * 5 + number), partition=number % PARTITIONS)
                await producer.send_offsets_to_transaction({AioPartition(name, 0): batch}, name)
                if batch % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()
        reader = AIOKafkaConsumer(
            f"{name}-out",
            bootstrap_servers=either,
            group_id=name,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await reader.start()
        try:
            offset = await reader.committed(AioPartition(name, 0))
            found = [int((await asyncio.wait_for(reader.getone(), CALL_S)).value or b"") for _ in range(10)]
        finally:
            await reader.stop()
        return offset, found

    offset, found = asyncio.run(run())
    assert offset == 2
    assert sorted(found) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


def test_transactions_of_kafka_python_are_committed_with_their_offsets_or_aborted(either: str, name: str) -> None:
    producer = KafkaProducer(bootstrap_servers=either, transactional_id=name)
    producer.init_transactions()
    for batch in range(4):
        producer.begin_transaction()
        for number in range(5):
            producer.send(f"{name}-out", b"%d" % (batch * 5 + number), partition=number % PARTITIONS)
        offsets = {PythonPartition(name, 0): OffsetAndMetadata(batch, "", -1)}
        producer.send_offsets_to_transaction(offsets, name)
        if batch % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    reader = KafkaConsumer(
        f"{name}-out",
        bootstrap_servers=either,
        group_id=name,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=READ_WITHIN_MS,
    )
    found = [int(next(reader).value) for _ in range(10)]
    offset = reader.committed(PythonPartition(name, 0))
    reader.close()
    assert offset == 2
    assert sorted(found) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
