"""Records in and out by librdkafka, which finds leaders and coordinators automatically."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

WITHIN_S: Final = 60.0


def metadata(bootstrap: str, topic: str | None = None) -> ClusterMetadata:
    return AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=WITHIN_S)


def make_topic(
    bootstrap: str, name: str, partitions: int = 1, replicas: int = 1, config: dict[str, str] | None = None
) -> None:
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config or {})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([new]).values():
        made.result(WITHIN_S)


def produce(bootstrap: str, topic: str, values: Iterable[str], **settings: object) -> None:
    """Every value is acknowledged when this returns, and stored once, in this order."""
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    given = {name.replace("_", "."): value for name, value in settings.items()}
    # Without idempotence a request that is sent again may arrive after later ones.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **given})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=on_delivery)
    left = producer.flush(WITHIN_S)
    assert not failed, failed
    assert left == 0


def consume(bootstrap: str, topic: str, count: int, group: str) -> list[str]:
    """So many values by a member of the group; it commits what it has read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[str] = []
        give_up_s = time.monotonic() + WITHIN_S
        while len(found) < count:
            assert time.monotonic() < give_up_s, f"{len(found)} of {count} records in {WITHIN_S:g} s"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            assert error is None or error.retriable(), error
            if error is None:
                found.append((message.value() or b"").decode())
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()
