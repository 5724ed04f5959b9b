"""kafka-python as producer and consumer of one partition.  It sends no header without a value."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.interop.expected_records import Sent

DEADLINE_S = 120.0


def produce(bootstrap: str, topic: str, sent: Sequence[Sent], codec: str, **options: object) -> list[int]:
    """Send in order with acks=all; the offsets at which they were acknowledged."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
        **options,
    )
    try:
        futures = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp_ms,
            )
            for record in sent
        ]
        producer.flush(DEADLINE_S)
        return [future.get(DEADLINE_S).offset for future in futures]
    finally:
        producer.close()


def consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, check_crcs=True)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        read: list[Sent] = []
        give_up_s = time.monotonic() + DEADLINE_S
        while len(read) < count and time.monotonic() < give_up_s:
            for records in consumer.poll(timeout_ms=500).values():
                read += [Sent(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        return read
    finally:
        consumer.close()
