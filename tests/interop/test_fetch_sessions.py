"""Clients that keep fetch sessions read many partitions and name them once: the Java consumer and kafka-python."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, TopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.producing import raw_producer as our
from ottla.client.wire.cluster import Cluster
from ottla.model import identifiers
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.testing.broker import RunningBroker
from tests.interop.fetch_tap import FetchTap
from tests.peers.java_tool import CONSOLE_CONSUMER, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

PARTITIONS = 60
ROUNDS = 5


@pytest.fixture
def tap() -> Iterator[FetchTap]:
    with FetchTap() as tap:
        address = f"PLAINTEXT://127.0.0.1:{tap.port}"
        with RunningBroker(
            settings={"advertised.listeners": address, "group.initial.rebalance.delay.ms": "0"}
        ) as broker:
            tap.connect_to(broker.host, broker.port)
            yield tap


@pytest.fixture
def topic(tap: FetchTap) -> str:
    name = f"sessions-{uuid.uuid4().hex[:8]}"
    with Cluster(f"127.0.0.1:{tap.port}") as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    return name


def produce(tap: FetchTap, topic: str, round_number: int) -> set[bytes]:
    """A record for some partitions, others each time."""
    values = {index: b"%d-%d" % (round_number, index) for index in range(round_number, PARTITIONS, ROUNDS)}
    with Cluster(f"127.0.0.1:{tap.port}") as cluster, our.RawProducer(cluster) as producer:
        for index, value in values.items():
            batch = build_batch([Record(0, time.time_ns() // 1_000_000, b"k", value)])
            producer.send(identifiers.TopicPartition(topic, index), batch, 1)
        producer.flush()
    return set(values.values())


def assert_sessions(tap: FetchTap) -> None:
    """One full request opened the session; the following ones named only changed partitions."""
    opened = [each for each in tap.fetches if each.session_epoch == 0]
    followed = [each for each in tap.fetches if each.session_epoch > 0]
    assert sum(each.partitions_count for each in opened) >= PARTITIONS
    assert len(followed) >= ROUNDS - 1
    assert min(each.partitions_count for each in followed) < PARTITIONS // 2


def test_kafka_python_reads_many_partitions_by_a_session(tap: FetchTap, topic: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{tap.port}", enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        consumer.seek_to_beginning()
        expected: set[bytes] = set()
        read: list[bytes] = []
        for round_number in range(ROUNDS):
            expected |= produce(tap, topic, round_number)
            give_up_s = time.monotonic() + 20
            while len(read) < len(expected) and time.monotonic() < give_up_s:
                for records in consumer.poll(timeout_ms=200).values():
                    read += [record.value for record in records]
        assert set(read) == expected
        assert len(read) == len(expected), "something was read twice"
    finally:
        consumer.close()
    assert_sessions(tap)


def test_java_consumer_reads_many_partitions_by_a_session(tap: FetchTap, topic: str) -> None:
    expected: set[bytes] = set()
    for round_number in range(ROUNDS):
        expected |= produce(tap, topic, round_number)
    arguments = ("--bootstrap-server", f"127.0.0.1:{tap.port}", "--topic", topic, "--from-beginning")
    # Few records at a time, so that it takes many requests.
    small = ("--command-property", "max.partition.fetch.bytes=100", "--command-property", "fetch.max.bytes=100")
    try:
        done = run_tool(
            CONSOLE_CONSUMER, *arguments, *small, "--max-messages", str(len(expected)), "--timeout-ms", "20000"
        )
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split()
    assert (set(lines), len(lines)) == ({value.decode() for value in expected}, len(expected))
    assert_sessions(tap)
