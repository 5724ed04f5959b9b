"""What a reader of committed records gets from a topic, by librdkafka."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.integration.spark.peer import TIMEOUT_S


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """Up to the last stable offset of each partition, which must be the end of all that was written, in order of
    partitions and offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        values: dict[int, list[bytes]] = {partition: [] for partition in partitions}
        waiting = set(partitions)
        while waiting:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"no end of {waiting} after {values}"
            partition = message.partition()
            assert partition is not None
            if message.error():
                waiting.discard(partition)
            else:
                values[partition].append(message.value() or b"")
        return [value for partition in partitions for value in values[partition]]
    finally:
        consumer.close()
