"""A broker seen through librdkafka, which writes the data that Spark reads and reads the data that Spark writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypedDict
from uuid import UUID

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.client.wire.cluster import Cluster

TIMEOUT_S = 120
Headers = list[tuple[str, bytes | None]]


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = 0


class Peer:
    """A broker, as its own clients see it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create_topic(self, name: str, partitions_count: int, **config: str) -> None:
        # Tests write records of 1970 and 2011, which retention would delete at its first look.
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions_count, 1, config=settings)
        for done in self._admin.create_topics([topic]).values():
            done.result(TIMEOUT_S)

    def topic_id(self, name: str) -> UUID:
        with Cluster(self.bootstrap) as cluster:
            return cluster.topic(name).topic_id

    def add_partitions(self, name: str, partitions_count: int) -> None:
        for done in self._admin.create_partitions([NewPartitions(name, partitions_count)]).values():
            done.result(TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        for done in self._admin.delete_topics([name]).values():
            done.result(TIMEOUT_S)

    def delete_records_before(self, topic: str, partition: int, offset: int) -> None:
        for done in self._admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            done.result(TIMEOUT_S)

    def produce(self, topic: str, messages: list[Message], codec: str = "none") -> list[Message]:
        """As they were stored, with partitions and offsets."""
        stored: list[Message] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "compression.type": codec, "partitioner": "murmur2_random"}
        )

        def delivered(sent: Message) -> Callable[[KafkaError | None, confluent_kafka.Message], None]:
            def callback(error: KafkaError | None, answer: confluent_kafka.Message) -> None:
                assert error is None, error
                stored.append(sent._replace(**place_of(answer)))

            return callback

        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                partition=message.partition,  # -1: the partitioner chooses
                timestamp=message.timestamp_ms,  # 0: now
                headers=message.headers,  # type: ignore[arg-type]  # its stub has an invariant list
                on_delivery=delivered(message),
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert len(stored) == len(messages)
        return sorted(stored, key=lambda message: (message.partition, message.offset))

    def produce_transactions(self, topic: str, values: list[tuple[bytes, bool]]) -> None:
        """A transaction for each value, on partition 0, committed or aborted."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"tests-{topic}"})
        producer.init_transactions(TIMEOUT_S)
        for value, is_committed in values:
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            producer.flush(TIMEOUT_S)
            (producer.commit_transaction if is_committed else producer.abort_transaction)(TIMEOUT_S)

    def count(self, topic: str) -> int:
        """Records between the logs' starts and their ends."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "tests"})
        try:
            partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
            ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), TIMEOUT_S) for each in partitions]
            return sum(high - low for low, high in ends)
        finally:
            consumer.close()

    def consume(self, topic: str, count: int) -> list[Message]:
        """`count` messages of all partitions, in order of partition and offset; fails when more or fewer come."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "tests", "enable.auto.commit": False, "check.crcs": True}
        )
        try:
            partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
            wanted = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
            ends = [consumer.get_watermark_offsets(place, TIMEOUT_S) for place in wanted]
            assert sum(high - low for low, high in ends) == count
            consumer.assign(wanted)
            messages: list[Message] = []
            for _ in range(count):
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, f"{len(messages)} of {count} messages came"
                if message.error():
                    raise KafkaException(message.error())
                headers: Headers | None = message.headers()  # type: ignore[assignment]  # its stub has str values too
                messages.append(Message(message.key(), message.value(), headers, **place_of(message)))
            return sorted(messages, key=lambda message: (message.partition, message.offset))
        finally:
            consumer.close()


class Place(TypedDict):
    partition: int
    offset: int
    timestamp_ms: int


def place_of(message: confluent_kafka.Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return {"partition": partition, "offset": offset, "timestamp_ms": message.timestamp()[1]}
