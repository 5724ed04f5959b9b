from __future__ import annotations

import pytest

from ottla.client.fetching.fetch_requests import FetchedPartition, FetchLimits, fetch_raw
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    IsolationLevel,
    OffsetAnswer,
    list_offsets,
    log_ranges,
)
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import OffsetOutOfRange, UnknownTopic
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.record import Record, decode_batch
from tests.integration.conftest import NewTopicName


def produce(cluster: Cluster, partition: TopicPartition, *batches: bytearray) -> None:
    with RawProducer(cluster) as producer:
        for batch in batches:
            producer.send(partition, batch)
        assert {result.error for result in producer.flush()} == {None}


def records_in(fetched: FetchedPartition) -> list[Record]:
    return [record for batch in fetched.batches() for record in decode_batch(batch)]


def numbered(first: int, count: int, size_bytes: int = 10) -> bytearray:
    return build_batch([Record(0, 1000 + n, b"%d" % n, b"v" * size_bytes) for n in range(first, first + count)])


@pytest.mark.parametrize("codec", list(Codec))
def test_fetch_raw_gives_the_batches_as_they_were_produced(
    cluster: Cluster, new_topic: NewTopicName, codec: Codec
) -> None:
    topic = new_topic()
    records = [
        Record(0, 5000, b"key", b"value" * 50, (("h", b"1"), ("empty", b""), ("null", None))),
        Record(1, 4000, None, b""),
        Record(2, 6000, b"", None),
    ]
    produce(cluster, TopicPartition(topic, 0), build_batch(records, codec))
    fetched = fetch_raw(cluster, topic, 0, 0, check_crc=True)
    assert records_in(fetched) == records
    assert (fetched.next_offset, fetched.high_watermark, fetched.log_start_offset) == (3, 3, 0)


def test_fetch_raw_gives_the_whole_batch_that_holds_the_offset(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic()
    produce(cluster, TopicPartition(topic, 0), numbered(0, 10), numbered(10, 10))
    fetched = fetch_raw(cluster, topic, 0, 13)
    assert [record.offset for record in records_in(fetched)] == list(range(10, 20))
    assert (fetched.fetch_offset, fetched.next_offset) == (13, 20)


def test_fetch_raw_drops_the_batch_that_the_limit_truncated(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic()
    produce(cluster, TopicPartition(topic, 0), *(numbered(n * 10, 10, 100) for n in range(4)))
    size_bytes = len(fetch_raw(cluster, topic, 0, 0).records)
    fetched = fetch_raw(cluster, topic, 0, 0, max_bytes=size_bytes - 10)
    assert len(records_in(fetched)) == 30
    assert fetched.next_offset == 30


def test_fetch_raw_gives_a_first_batch_larger_than_the_limit(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic()
    produce(cluster, TopicPartition(topic, 0), numbered(0, 1, 300_000), numbered(1, 1))
    fetched = fetch_raw(cluster, topic, 0, 0, max_bytes=1000)
    assert len(records_in(fetched)[0].value or b"") == 300_000


def test_fetch_raw_is_empty_at_the_end_and_refuses_offsets_beyond(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic()
    produce(cluster, TopicPartition(topic, 0), numbered(0, 5))
    at_end = fetch_raw(cluster, topic, 0, 5, max_wait_ms=10)
    assert (len(at_end.records), at_end.next_offset) == (0, 5)
    with pytest.raises(OffsetOutOfRange) as caught:
        fetch_raw(cluster, topic, 0, 6)
    assert (caught.value.offset, caught.value.partition) == (6, TopicPartition(topic, 0))


def test_fetch_raw_names_a_topic_or_partition_that_is_not_there(cluster: Cluster, new_topic: NewTopicName) -> None:
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        fetch_raw(cluster, "no-such-topic", 0, 0)
    with pytest.raises(UnknownTopic, match="no partition 4"):
        fetch_raw(cluster, new_topic(2), 4, 0)


@pytest.mark.parametrize("partition_max_bytes", [200, 5_000, 1 << 20])
def test_fetcher_reads_all_partitions_to_their_ends_each_record_once(
    cluster: Cluster, new_topic: NewTopicName, partition_max_bytes: int
) -> None:
    topic = new_topic(3)
    for number in range(3):
        produce(cluster, TopicPartition(topic, number), *(numbered(n * 7, 7, 50) for n in range(40)))
    ranges = log_ranges(cluster, [TopicPartition(topic, number) for number in range(3)])
    seen: dict[TopicPartition, list[int]] = {partition: [] for partition in ranges}
    limits = FetchLimits(partition_max_bytes=partition_max_bytes)
    starts = {partition: readable.start for partition, readable in ranges.items()}
    ends = {partition: readable.stop for partition, readable in ranges.items()}
    with Fetcher(cluster, starts, ends, limits=limits) as fetcher:
        for fetched in fetcher:
            seen[fetched.partition] += [record.offset for record in records_in(fetched)]
        assert fetcher.is_finished
    assert seen == {partition: list(range(280)) for partition in ranges}


def test_fetcher_reads_records_that_are_produced_meanwhile(cluster: Cluster, new_topic: NewTopicName) -> None:
    partition = TopicPartition(new_topic(), 0)
    offsets: list[int] = []
    with Fetcher(cluster, {partition: 0}) as fetcher:
        assert fetcher.poll(10) == []
        for n in range(3):
            produce(cluster, partition, numbered(n * 5, 5))
            while len(offsets) < (n + 1) * 5:
                offsets += [record.offset for fetched in fetcher.poll(5_000) for record in records_in(fetched)]
    assert offsets == list(range(15))


def test_fetcher_drops_fetches_under_way_when_it_seeks(cluster: Cluster, new_topic: NewTopicName) -> None:
    partition = TopicPartition(new_topic(), 0)
    produce(cluster, partition, *(numbered(n, 1) for n in range(10)))
    limits = FetchLimits(partition_max_bytes=1, max_bytes=1)
    with Fetcher(cluster, {partition: 0}, limits=limits) as fetcher:
        (first,) = fetcher.poll(5_000)
        fetcher.seek(partition, 7)
        (second,) = fetcher.poll(5_000)
    assert (first.next_offset, second.fetch_offset) == (1, 7)


def test_fetcher_skips_an_unreadable_partition_and_continues_with_the_others(
    cluster: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic(2)
    good, bad = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(cluster, good, numbered(0, 3))
    with Fetcher(cluster, {good: 0, bad: 99}, {good: 3}) as fetcher:
        fetched, caught = [], None
        while caught is None:
            try:
                fetched += fetcher.poll(5_000)
            except OffsetOutOfRange as error:
                caught = error
        while good in fetcher.positions:
            fetched += fetcher.poll(5_000)
        assert caught.partition == bad
        assert [each.next_offset for each in fetched] == [3]
        assert fetcher.is_finished


def test_list_offsets_answers_every_kind_of_query(cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic(2)
    filled, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(cluster, filled, numbered(0, 10), build_batch([Record(0, 9000, None, b"late")]), numbered(20, 5))

    def ask(timestamp: int) -> dict[TopicPartition, OffsetAnswer]:
        return list_offsets(cluster, {filled: timestamp, empty: timestamp})

    assert {key: answer.offset for key, answer in ask(EARLIEST).items()} == {filled: 0, empty: 0}
    assert {key: answer.offset for key, answer in ask(LATEST).items()} == {filled: 16, empty: 0}
    assert [answer[:2] for answer in ask(MAX_TIMESTAMP).values()] == [(10, 9000), (-1, -1)]
    assert [answer[:2] for answer in ask(1004).values()] == [(4, 1004), (-1, -1)]
    assert [answer[:2] for answer in ask(9001).values()] == [(-1, -1), (-1, -1)]
    committed = list_offsets(cluster, {filled: LATEST}, isolation=IsolationLevel.READ_COMMITTED)
    assert committed[filled].offset == 16
    assert log_ranges(cluster, [filled]) == {filled: range(16)}


def test_list_offsets_names_a_topic_that_is_not_there(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopic):
        list_offsets(cluster, {TopicPartition("no-such-topic", 0): LATEST})
