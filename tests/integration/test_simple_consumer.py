from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from ottla import SimpleConsumer
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.streams.errors import PoisonMessage
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import OffsetOutOfRange, UnknownTopic
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.record import Record
from tests.integration.conftest import NewTopicName


def fill(cluster: Cluster, topic: str, values: list[bytes | None], *, batch_count: int = 10) -> None:
    """Each message one second after the one before; the first at second 1."""
    with RawProducer(cluster) as producer:
        for first in range(0, len(values), batch_count):
            rows = enumerate(values[first : first + batch_count], first)
            records = [Record(n - first, 1000 * (n + 1), b"%d" % n, value) for n, value in rows]
            producer.send(TopicPartition(topic, 0), build_batch(records, Codec.ZSTD))
        assert {result.error for result in producer.flush()} == {None}


def test_simple_consumer_reads_a_partition_to_its_end(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    fill(cluster, topic, [b"v%d" % n for n in range(95)])
    offsets: list[int] = []
    with SimpleConsumer(bootstrap, topic, 0) as consumer:
        offset = consumer.earliest()
        while messages := consumer.fetch(offset, max_bytes=300, max_wait_ms=10):
            offsets += [message.offset for message in messages]
            offset = messages[-1].offset + 1
        assert offset == consumer.latest()
    assert offsets == list(range(95))


def test_simple_consumer_starts_in_the_middle_of_a_batch(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    fill(cluster, topic, [b"v%d" % n for n in range(20)])
    with SimpleConsumer(bootstrap, topic, 0) as consumer:
        first, *_ = consumer.fetch(13)
    assert (first.topic, first.partition, first.offset) == (topic, 0, 13)
    assert (first.key, first.value, first.timestamp_ms) == (b"13", b"v13", 14_000)


def test_simple_consumer_finds_offsets_before_a_time(cluster: Cluster, bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    fill(cluster, topic, [b"v"] * 100)
    with SimpleConsumer(bootstrap, topic, 0) as consumer:
        assert consumer.offsets_before("latest") == [100]
        assert consumer.offsets_before("earliest", 5) == [0]
        assert consumer.offsets_before(41_000) == [40]
        assert consumer.offsets_before(datetime.fromtimestamp(41, UTC), 5) == [40, 30, 20, 10, 0]
        assert consumer.offsets_before(10_000_000, 2) == [100, 0]
        assert consumer.offsets_before(3_000, 50) == [2, 1, 0]
        assert consumer.offset_at(40_500) == 40
        assert consumer.offset_at(10_000_000) is None


def test_simple_consumer_deserializes_and_names_the_offset_of_an_unreadable_message(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    fill(cluster, topic, [b'{"n": 1}', None, b"no json", b"3"])
    with SimpleConsumer(bootstrap, topic, 0, value_deserializer=json.loads) as consumer:
        assert [message.value for message in consumer.fetch(0)] == [{"n": 1}, None]
        with pytest.raises(PoisonMessage, match=f"{topic}-0, offset 2: .*JSONDecodeError") as caught:
            consumer.fetch(2)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 2)
        assert [message.value for message in consumer.fetch(3)] == [3]


def test_simple_consumer_refuses_invalid_offsets_and_times(bootstrap: str, new_topic: NewTopicName) -> None:
    with SimpleConsumer(bootstrap, new_topic(), 0) as consumer:
        with pytest.raises(ConfigError, match="-1 is not an offset"):
            consumer.fetch(-1)
        with pytest.raises(ConfigError, match="no time zone"):
            consumer.offset_at(datetime(2011, 6, 12))  # noqa: DTZ001 - the mistake that is refused
        with pytest.raises(OffsetOutOfRange):
            consumer.fetch(7)
    with SimpleConsumer(bootstrap, "no-such-topic", 0) as consumer, pytest.raises(UnknownTopic):
        consumer.fetch(0, timeout_ms=100)
