"""confluent-kafka (librdkafka) as producer and consumer of one partition."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.interop.expected_records import Sent

DEADLINE_S = 120.0


def produce(bootstrap: str, topic: str, sent: Sequence[Sent], codec: str, **options: object) -> list[int]:
    """Send in order with acks=all; the offsets at which they were acknowledged (none with acks=0)."""
    offsets: list[int] = []
    problems: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            problems.append(str(error))
        elif (offset := message.offset()) is not None:
            offsets.append(offset)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "compression.type": codec, **options})
    for record in sent:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=0,
            on_delivery=on_delivery,
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert problems == []
    return offsets


def consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        read: list[Sent] = []
        give_up_s = time.monotonic() + DEADLINE_S
        while len(read) < count and time.monotonic() < give_up_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            assert message.error() is None, message.error()
            kind, timestamp_ms = message.timestamp()
            assert kind == TIMESTAMP_CREATE_TIME
            read.append(Sent(message.key(), message.value(), _headers(message), timestamp_ms))
        return read
    finally:
        consumer.close()


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    # Its stubs allow other forms for headers that are sent; received headers are a list of pairs.
    headers = message.headers() or []
    assert isinstance(headers, list)
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers)
