"""Consumers of several clients set messages aside; a letter is stored before the consumer continues."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer

from ottla import ConsumerConnector
from ottla.client.admin.configs import ConfigResource, ResourceType, describe_configs
from ottla.client.fetching.messages import Message
from ottla.client.streams.errors import PoisonMessage
from ottla.client.wire.cluster import Cluster
from ottla.dead_letters import DeadLetter, DeadLetters, letter_of
from ottla.dead_letters.topics import ROOM_BYTES
from ottla.testing import Namespace, Record, Topic, consume_all, produce
from ottla.testing.broker import RunningBroker

RECORDS = [
    Record(b'{"order": 1}', key=b"a", timestamp_ms=1_000, partition=0),
    Record(b"<html>", key=None, headers=[("trace", b"\xff"), ("trace", None)], timestamp_ms=2_000, partition=1),
    Record(None, key=b"", timestamp_ms=3_000, partition=1),
]


@pytest.fixture
def topic(namespace: Namespace) -> Topic:
    made = namespace.topic("orders", partitions=2, configs={"max.message.bytes": "2000000", "retention.ms": "-1"})
    produce(made, RECORDS)
    return made


def by_confluent(topic: Topic) -> Iterator[object]:
    consumer = Consumer(
        {"bootstrap.servers": topic.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        for _ in RECORDS:
            while (message := consumer.poll(1)) is None:
                pass
            yield message
    finally:
        consumer.close()


def by_kafka_python(topic: Topic) -> Iterator[object]:
    consumer = KafkaConsumer(str(topic), bootstrap_servers=topic.bootstrap, auto_offset_reset="earliest")
    try:
        for _ in RECORDS:
            yield next(consumer)
    finally:
        consumer.close()


def by_ottla(topic: Topic) -> Iterator[object]:
    with ConsumerConnector(topic.bootstrap, group=uuid.uuid4().hex, auto_offset_reset="earliest") as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        for _ in RECORDS:
            yield next(stream)


def letters_in(topic: str, namespace: Namespace, count: int) -> list[DeadLetter]:
    found = consume_all(topic, count=count, bootstrap=namespace.bootstrap)
    return [letter_of(message) for message in found]


@pytest.mark.interop
@pytest.mark.parametrize("consume", [by_confluent, by_kafka_python, by_ottla])
def test_messages_of_this_client_are_set_aside_as_they_were_read(
    consume: Callable[[Topic], Iterator[object]], topic: Topic, namespace: Namespace, cluster: Cluster
) -> None:
    with DeadLetters(topic.bootstrap, stage="INDEX") as dead_letters:
        for message in consume(topic):
            with dead_letters.guard(message):
                raise KeyError("no such index")
    found = {letter.origin.timestamp_ms: letter for letter in letters_in(f"{topic}.dead-letter", namespace, 3)}
    topic_id = cluster.topic(topic).topic_id
    for offset, record in zip((0, 0, 1), RECORDS, strict=True):
        letter = found[record.timestamp_ms]
        assert (letter.key, letter.value) == (record.key, record.value)
        assert letter.headers == (() if record.timestamp_ms != 2_000 else (("trace", b"\xff"), ("trace", None)))
        assert (letter.error_class, letter.error_message, letter.stage) == ("KeyError", "'no such index'", "INDEX")
        origin = letter.origin
        assert (origin.topic, origin.topic_id) == (topic, topic_id)
        assert origin.cluster_id == cluster.info.cluster_id
        assert (origin.partition, origin.offset) == (record.partition, offset)


def test_message_whose_deserializer_failed_is_set_aside_with_the_bytes_that_were_read(
    topic: Topic, namespace: Namespace
) -> None:
    with (
        DeadLetters(topic.bootstrap) as dead_letters,
        ConsumerConnector(
            topic.bootstrap, group=uuid.uuid4().hex, auto_offset_reset="earliest", value_deserializer=json.loads
        ) as connector,
    ):
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        seen = 0
        while seen < len(RECORDS):
            try:
                next(stream)
            except PoisonMessage as poison:
                dead_letters.put(poison, poison.cause)
                stream.skip()
            seen += 1
    [letter] = letters_in(f"{topic}.dead-letter", namespace, 1)
    assert (letter.value, letter.headers) == (b"<html>", (("trace", b"\xff"), ("trace", None)))
    assert letter.error_class == "json.decoder.JSONDecodeError"
    assert (letter.origin.partition, letter.origin.offset, letter.origin.timestamp_ms) == (1, 0, 2_000)


def test_errors_that_are_not_the_messages_fault_are_raised(topic: Topic) -> None:
    [message, *_] = consume_all(topic)
    with DeadLetters(topic.bootstrap) as dead_letters:
        with pytest.raises(ConnectionError), dead_letters.guard(message, catch=ValueError):
            raise ConnectionError("the database is down")
        with pytest.raises(KeyboardInterrupt), dead_letters.guard(message):
            raise KeyboardInterrupt
    assert f"{topic}.dead-letter" not in topics_of(topic.bootstrap)


def topics_of(bootstrap: str) -> list[str]:
    with Cluster(bootstrap) as cluster:
        return [each.name for each in cluster.refresh(None)]


def test_topic_of_dead_letters_keeps_them_and_has_room_for_the_largest_record(topic: Topic, cluster: Cluster) -> None:
    largest = b"x" * 1_900_000
    produce(topic, [Record(largest, partition=0)])
    message = consume_all(topic, count=4)[1]
    assert message.value == largest
    with DeadLetters(topic.bootstrap) as dead_letters:
        receipt = dead_letters.put(message, ValueError("y" * 10_000))
    assert (receipt.topic, receipt.partition) == (f"{topic}.dead-letter", 0)
    assert len(cluster.topic(receipt.topic).partitions) == 2
    configs = describe_configs(cluster, ConfigResource(ResourceType.TOPIC, receipt.topic), None)
    assert configs["retention.ms"].value == "-1"
    assert configs["max.message.bytes"].value == str(2_000_000 + ROOM_BYTES)


def test_letter_that_cannot_be_stored_is_an_error_before_anything_is_committed(
    broker: RunningBroker, namespace: Namespace
) -> None:
    topic = namespace.topic("orders")
    small = namespace.topic("small", configs={"max.message.bytes": "100"})
    produce(topic, [b"x" * 1_000])
    [message] = consume_all(topic)
    with (
        DeadLetters(broker.bootstrap, topic=small) as dead_letters,
        pytest.raises(Exception, match="MESSAGE_TOO_LARGE"),
    ):
        dead_letters.put(message, "no")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message("t", 0, 1, 2, b"k", {"order": 1}), "the value of t-0, offset 1, is dict"),
        (b"bytes", "not of bytes"),
    ],
)
def test_object_that_is_no_message_is_refused(broker: RunningBroker, message: object, problem: str) -> None:
    with DeadLetters(broker.bootstrap) as dead_letters, pytest.raises(TypeError, match=problem):
        dead_letters.put(message, "no")
