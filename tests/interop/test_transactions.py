"""Transactions of librdkafka, kafka-python, aiokafka and Java: what read_committed consumers get, and on which
connection their calls come.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from ottla.cli.transaction import command
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.model.errors import OttlaError
from ottla.protocol.api import ApiKey
from ottla.testing.broker import RunningBroker
from tests.interop.fetch_tap import FetchTap
from tests.peers.java_tool import PRODUCER_PERFORMANCE, TRANSACTIONAL_COPIER, TRANSACTIONS, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

WITHIN_S: Final = 60.0
TRANSACTIONS_COUNT: Final = 6
RECORDS: Final = 3
# Every second transaction is aborted, and after the last one comes a plain record.
COMMITTED: Final = [
    b"%d-%d" % (number, place) for number in range(0, TRANSACTIONS_COUNT, 2) for place in range(RECORDS)
]
LAST: Final = b"last"


def produce_by_confluent(bootstrap: str, topic: str, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(WITHIN_S)
    for number in range(TRANSACTIONS_COUNT):
        producer.begin_transaction()
        for place in range(RECORDS):
            producer.produce(topic, value=b"%d-%d" % (number, place), partition=0)
        # Else an abort leaves them unsent.
        assert producer.flush(WITHIN_S) == 0
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(WITHIN_S)


def produce_by_kafka_python(bootstrap: str, topic: str, transactional_id: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    for number in range(TRANSACTIONS_COUNT):
        producer.begin_transaction()
        sent = [producer.send(topic, value=b"%d-%d" % (number, place), partition=0) for place in range(RECORDS)]
        for each in sent:
            each.get(WITHIN_S)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    producer.close()


def produce_by_aiokafka(bootstrap: str, topic: str, transactional_id: str) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        async with asyncio.timeout(WITHIN_S):
            await producer.start()
            for number in range(TRANSACTIONS_COUNT):
                await producer.begin_transaction()
                for place in range(RECORDS):
                    await producer.send_and_wait(topic, b"%d-%d" % (number, place), partition=0)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
            await producer.stop()

    asyncio.run(produce())


def consume_by_confluent(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
    read: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while LAST not in read:
            message = consumer.poll(WITHIN_S)
            assert message is not None, read
            assert message.error() is None, message.error()
            read.append(message.value() or b"")
    finally:
        consumer.close()
    return read


def consume_by_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", consumer_timeout_ms=WITHIN_S * 1000
    )
    read: list[bytes] = []
    try:
        consumer.assign([KafkaPythonPartition(topic, 0)])
        consumer.seek_to_beginning()
        for record in consumer:
            read.append(record.value)
            if record.value == LAST:
                break
    finally:
        consumer.close()
    return read


def consume_by_aiokafka(bootstrap: str, topic: str) -> list[bytes]:
    async def consume() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        read: list[bytes] = []
        async with asyncio.timeout(WITHIN_S):
            await consumer.start()
            while LAST not in read:
                read.append((await consumer.getone()).value)
            await consumer.stop()
        return read

    return asyncio.run(consume())


PRODUCERS: Final[dict[str, Callable[[str, str, str], None]]] = {
    "confluent": produce_by_confluent,
    "kafka-python": produce_by_kafka_python,
    "aiokafka": produce_by_aiokafka,
}
CONSUMERS: Final[dict[str, Callable[[str, str], list[bytes]]]] = {
    "confluent": consume_by_confluent,
    "kafka-python": consume_by_kafka_python,
    "aiokafka": consume_by_aiokafka,
}


@pytest.mark.parametrize("client", PRODUCERS)
def test_committed_consumer_gets_what_was_committed_in_its_order(bootstrap: str, topic: str, client: str) -> None:
    PRODUCERS[client](bootstrap, topic, f"loop-{uuid.uuid4().hex[:8]}")
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, value=LAST, partition=0)
    assert plain.flush(WITHIN_S) == 0
    assert CONSUMERS[client](bootstrap, topic) == [*COMMITTED, LAST]


def test_committed_consumer_waits_for_the_end_of_a_transaction(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"open-{topic}"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, value=b"in it", partition=0)
    assert producer.flush(WITHIN_S) == 0
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, value=LAST, partition=0)
    assert plain.flush(WITHIN_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), WITHIN_S)
        assert high == 0, "the end that it may read"
    finally:
        consumer.close()
    producer.commit_transaction(WITHIN_S)
    assert consume_by_confluent(bootstrap, topic) == [b"in it", LAST]


def test_next_producer_of_an_id_fences_the_former_and_aborts_its_transaction(bootstrap: str, topic: str) -> None:
    name = f"fenced-{topic}"
    former = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    former.init_transactions(WITHIN_S)
    former.begin_transaction()
    former.produce(topic, value=b"lost", partition=0)
    assert former.flush(WITHIN_S) == 0
    following = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    following.init_transactions(WITHIN_S)
    following.begin_transaction()
    following.produce(topic, value=LAST, partition=0)
    following.commit_transaction(WITHIN_S)
    with pytest.raises(KafkaException) as refused:
        former.commit_transaction(WITHIN_S)
    assert refused.value.args[0].fatal()
    assert consume_by_confluent(bootstrap, topic) == [LAST]


def ottla(bootstrap: str, verb: str, *arguments: str) -> Result:
    return CliRunner().invoke(command, [verb, "--bootstrap-server", bootstrap, *arguments])


def test_command_shows_an_open_transaction_and_does_not_end_what_a_coordinator_has(bootstrap: str, topic: str) -> None:
    name = f"shown-{topic}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, value=b"in it", partition=0)
    assert producer.flush(WITHIN_S) == 0
    listed = ottla(bootstrap, "list", "--state", "Ongoing", "--json")
    assert name in [json.loads(line)["transactional_id"] for line in listed.stdout.splitlines()], listed.output
    assert f"  {topic}-0" in ottla(bootstrap, "describe", name).stdout.splitlines()
    # As young as it is it would be a suspect; its coordinator has it.
    young = ("--topic", topic, "--max-timeout-minutes", "0")
    assert ottla(bootstrap, "find-hanging", *young, "--json").stdout == ""
    refused = ottla(bootstrap, "abort", *young, "--partition", "0", "--start-offset", "0")
    assert isinstance(refused.exception, OttlaError)
    assert "no transaction that starts at offset 0 hangs" in str(refused.exception)
    assert isinstance(ottla(bootstrap, "describe", "unknown").exception, OttlaError)
    producer.abort_transaction(WITHIN_S)


@pytest.fixture
def tap() -> Iterator[FetchTap]:
    with FetchTap() as tap:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{tap.port}"}
        with RunningBroker(settings=settings) as broker:
            tap.connect_to(broker.host, broker.port)
            yield tap


def test_no_client_alternates_between_connections_to_its_coordinator(tap: FetchTap) -> None:
    """A late end of a transaction is fenced by the order of connections (docs/decisions/0018)."""
    bootstrap = f"127.0.0.1:{tap.port}"
    for client, produce in PRODUCERS.items():
        with Cluster(bootstrap) as cluster:
            Admin(cluster).create_topic(client, 1)
        tap.connections_of.clear()
        produce(bootstrap, client, client)
        of_transactions = tap.connections_of[ApiKey.ADD_PARTITIONS_TO_TXN] | tap.connections_of[ApiKey.END_TXN]
        assert len(of_transactions) == 1, (client, tap.connections_of)


def test_java_producer_commits_and_its_tool_shows_the_transactional_id(bootstrap: str, topic: str) -> None:
    name = f"java-{topic}"
    load = ("--num-records", "200", "--record-size", "10", "--throughput", "-1", "--transactional-id", name)
    properties = ("--producer-props", f"bootstrap.servers={bootstrap}", "max.block.ms=50000")
    try:
        done = run_tool(PRODUCER_PERFORMANCE, "--topic", topic, *load, *properties, timeout=WITHIN_S * 2)
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.returncode == 0, done.stderr
    assert "200 records sent" in done.stdout
    listed = run_tool(TRANSACTIONS, "--bootstrap-server", bootstrap, "list")
    assert re.search(rf"{re.escape(name)}\s+\d+\s+\d+\s+CompleteCommit", listed.stdout), listed.stdout + listed.stderr
    described = run_tool(TRANSACTIONS, "--bootstrap-server", bootstrap, "describe", "--transactional-id", name)
    assert "CompleteCommit" in described.stdout, described.stdout + described.stderr


def test_java_copier_that_aborts_at_random_copies_each_record_once(bootstrap: str, topic: str) -> None:
    output, group = f"{topic}-copy", f"copier-{topic}"
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(output, 1)
    values = [b"%d" % number for number in range(300)] + [LAST]
    plain = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        plain.produce(topic, value=value, partition=0)
    assert plain.flush(WITHIN_S) == 0
    places = ("--input-topic", topic, "--input-partition", "0", "--output-topic", output, "--consumer-group", group)
    # Each transaction is aborted with a third's chance: of twenty one is, nearly always.
    transactions = ("--transactional-id", group, "--transaction-size", "15", "--enable-random-aborts")
    try:
        done = run_tool(TRANSACTIONAL_COPIER, "--broker-list", bootstrap, *places, *transactions, timeout=WITHIN_S * 2)
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.returncode == 0, done.stderr
    assert consume_by_confluent(bootstrap, output) == values
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], WITHIN_S)
    finally:
        consumer.close()
    assert committed.offset == len(values)
