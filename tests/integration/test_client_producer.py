from __future__ import annotations

import uuid

import pytest

from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import LATEST, list_offsets
from ottla.client.producing.partitioner import partition_of_key
from ottla.client.producing.produce_requests import DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.record_producer import Batching, RecordProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, UnknownTopic
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import read_header
from ottla.records.record import Record, decode_batch
from ottla.runtime.clock import SystemClock
from tests.integration.conftest import NewTopicName


def batch_of(count: int, size_bytes: int = 10, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([Record(0, 1000, None, bytes(size_bytes))] * count, codec)


def values_of(cluster: Cluster, partition: TopicPartition) -> list[bytes | None]:
    end = list_offsets(cluster, {partition: LATEST})[partition].offset
    values: list[bytes | None] = []
    while len(values) < end:
        fetched = fetch_raw(cluster, *partition, len(values), check_crc=True)
        values += [record.value for batch in fetched.batches() for record in decode_batch(batch)]
    return values


def test_producer_returns_base_offsets_in_the_order_of_sending(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic(3)
    with RawProducer(cluster) as producer:
        for tag in range(60):
            producer.send(TopicPartition(topic, tag % 3), batch_of(4), tag)
        results = producer.flush()
        assert producer.pending_count == 0
    assert sorted(str(result.tag) for result in results) == sorted(str(tag) for tag in range(60))
    for number in range(3):
        mine = [result for result in results if result.partition.partition == number]
        assert [result.base_offset for result in mine] == list(range(0, 80, 4))
        assert {result.status for result in mine} == {DeliveryStatus.ACKNOWLEDGED}


def test_producer_marks_its_batches_so_that_the_broker_recognises_duplicates(
    cluster: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    with RawProducer(cluster) as producer:
        for _ in range(3):
            producer.send(TopicPartition(topic, 0), batch_of(5))
        producer.flush()
        producer_id = producer.identity.producer_id
    headers = [read_header(batch) for batch in fetch_raw(cluster, topic, 0, 0, check_crc=True).batches()]
    assert [(header.producer_id, header.base_sequence) for header in headers] == [
        (producer_id, 0),
        (producer_id, 5),
        (producer_id, 10),
    ]


def test_producer_continues_after_a_batch_that_is_too_large(cluster: Cluster, new_topic: NewTopicName) -> None:
    partition = TopicPartition(new_topic(max_message_bytes="5000"), 0)
    with RawProducer(cluster) as producer:
        for tag, size_bytes in enumerate((10, 6000, 20, 30, 6000, 40)):
            producer.send(partition, batch_of(1, size_bytes), tag)
        results = {result.tag: result for result in producer.flush()}
    assert [results[tag].status is DeliveryStatus.ACKNOWLEDGED for tag in range(6)] == [
        True,
        False,
        True,
        True,
        False,
        True,
    ]
    refusal = results[1].error
    assert isinstance(refusal, BrokerRefused)
    assert refusal.code is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal.hint is not None
    assert [len(value or b"") for value in values_of(cluster, partition)] == [10, 20, 30, 40]


def test_producer_continues_when_its_first_batch_is_refused(cluster: Cluster, new_topic: NewTopicName) -> None:
    partition = TopicPartition(new_topic(max_message_bytes="5000"), 0)
    with RawProducer(cluster) as producer:
        for tag, size_bytes in enumerate((6000, 10, 20, 6000, 30)):
            producer.send(partition, batch_of(1, size_bytes), tag)
        stored = [result.tag for result in producer.flush() if result.status is DeliveryStatus.ACKNOWLEDGED]
    assert stored == [1, 2, 4]
    assert [len(value or b"") for value in values_of(cluster, partition)] == [10, 20, 30]


@pytest.mark.parametrize("acks", [1, 0])
def test_producer_without_idempotence_stores_with_the_configured_acks(
    cluster: Cluster, new_topic: NewTopicName, acks: int
) -> None:
    partition = TopicPartition(new_topic(), 0)
    with RawProducer(cluster, ProducerOptions(acks=acks)) as producer:
        for _ in range(10):
            producer.send(partition, batch_of(2))
        results = producer.flush()
        assert producer.identity.producer_id == -1
    assert {result.status for result in results} == {DeliveryStatus.SENT if acks == 0 else DeliveryStatus.ACKNOWLEDGED}
    assert {result.base_offset >= 0 for result in results} == {acks == 1}
    # With acks 0 no response shows when they are stored: a fetch waits for them.
    with Fetcher(cluster, {partition: 0}, {partition: 20}) as fetcher:
        stored = [record for each in fetcher for batch in each.batches() for record in decode_batch(batch)]
    assert len(stored) == 20


def test_producer_returns_the_append_time_when_the_topic_uses_it(cluster: Cluster, new_topic: NewTopicName) -> None:
    partition = TopicPartition(new_topic(message_timestamp_type="LogAppendTime"), 0)
    with RawProducer(cluster) as producer:
        producer.send(partition, batch_of(2))
        (result,) = producer.flush()
    (batch,) = fetch_raw(cluster, *partition, 0, check_crc=True).batches()
    assert result.log_append_time_ms > 1000
    assert {record.timestamp_ms for record in decode_batch(batch)} == {result.log_append_time_ms}


def test_producer_refuses_batches_for_a_partition_that_is_not_there(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic()
    with RawProducer(cluster) as producer:
        producer.send(TopicPartition(topic, 5), batch_of(1), "lost")
        producer.send(TopicPartition(topic, 0), batch_of(1), "kept")
        results = {result.tag: result for result in producer.flush()}
    assert results["lost"].status is DeliveryStatus.REFUSED
    assert isinstance(results["lost"].error, UnknownTopic)
    assert results["kept"].status is DeliveryStatus.ACKNOWLEDGED


def test_record_producer_makes_the_topic_and_puts_keys_where_java_puts_them(cluster: Cluster) -> None:
    topic = f"auto-{uuid.uuid4().hex[:8]}"
    keys = [b"key-%d" % n for n in range(50)]
    with RecordProducer(cluster, batching=Batching(batch_bytes=500, codec=Codec.ZSTD)) as producer:
        cluster.topic(topic, allow_auto_topic_creation=True)
        for key in keys:
            producer.add(topic, key, b"value of " + key, timestamp_ms=SystemClock().now_ms())
        assert {result.status for result in producer.flush()} == {DeliveryStatus.ACKNOWLEDGED}
    partitions_count = len(cluster.partitions(topic))
    found = {partition: values_of(cluster, TopicPartition(topic, partition)) for partition in range(partitions_count)}
    for key in keys:
        assert b"value of " + key in found[partition_of_key(key, partitions_count)]
    assert sum(len(values) for values in found.values()) == 50


def test_record_producer_spreads_records_without_keys_over_the_partitions(
    cluster: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic(4)
    with RecordProducer(cluster, batching=Batching(batch_bytes=200)) as producer:
        for number in range(100):
            producer.add(topic, None, b"%d" % number, timestamp_ms=1000)
        producer.flush()
    counts = [len(values_of(cluster, TopicPartition(topic, partition))) for partition in range(4)]
    assert sum(counts) == 100
    assert min(counts) > 10
