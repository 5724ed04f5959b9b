"""Options of the source against real brokers: groups, lost offsets, limits, conditions, transactions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.lost_offsets import UNKNOWN_END, read_lost_offsets
from ottla.model.identifiers import TopicPartition
from ottla.spark.spark_features import SparkFeature
from tests.integration.spark.conftest import Read, ReadStream
from tests.integration.spark.needs import needs
from tests.integration.spark.peer import Message, Peer
from tests.integration.spark.test_spark_stream import Drain, numbered

pytestmark = [pytest.mark.spark, pytest.mark.interop]
# Behaviour that depends only on Spark and the plan is not tested with every broker.
only_ottla = pytest.mark.parametrize("peer", ["ottla"], indirect=True)


@pytest.fixture
def drain(read_stream: ReadStream, tmp_path: Path) -> Drain:
    return Drain(read_stream, tmp_path)


def values(batches: list[list[bytes]]) -> list[int]:
    return sorted(int(value) for batch in batches for value in batch)


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


def committed(peer: Peer, group: str) -> dict[TopicPartition, int]:
    with Cluster(peer.bootstrap) as cluster:
        return {place: each.offset for place, each in GroupAdmin(cluster).committed(group).items()}


@needs(SparkFeature.READ_LIMITS)
def test_a_group_shows_the_progress_of_a_stream_and_others_start_there(
    drain: Drain, read_stream: ReadStream, read: Read, peer: Peer, topic: str, tmp_path: Path
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    peer.produce(topic, numbered(5) + numbered(3, partition=1, first=5))
    options = {"subscribe": topic, "groupId": group, "startingOffsets": "group"}
    assert values(drain.run(**options, maxOffsetsPerTrigger="4")[0]) == list(range(8)), "without a commit: earliest"
    assert committed(peer, group) == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 3}
    peer.produce(topic, numbered(2, first=8))
    elsewhere = Drain(read_stream, tmp_path / "another checkpoint")
    assert values(elsewhere.run(**options)[0]) == [8, 9]
    peer.produce(topic, numbered(1, first=10))
    assert [bytes(row["value"]) for row in read(**options).collect()] == [b"10"]
    assert values(drain.run(**options)[0]) == [8, 9, 10], "a checkpoint's own offsets count, not the group's"


def test_lost_offsets_are_recorded_before_the_stream_continues(drain: Drain, peer: Peer, topic: str) -> None:
    losses = f"ledger-{topic}"
    options = {"subscribe": topic, "startingOffsets": "earliest", "onDataLoss": "record", "lostOffsetsTopic": losses}
    peer.produce(topic, numbered(4))
    drain.run(**options)
    assert read_lost_offsets(peer.bootstrap, losses) == []
    peer.produce(topic, numbered(6, first=4))
    peer.delete_records_before(topic, 0, 7)
    assert values(drain.run(**options)[0]) == [7, 8, 9]
    (entry,) = read_lost_offsets(peer.bootstrap, losses)
    old_id = peer.topic_id(topic)
    assert (entry.lost.place, entry.lost.topic_id) == (TopicPartition(topic, 0), old_id)
    assert (entry.lost.first_offset, entry.lost.end_offset, entry.reader) == (4, 7, "ottla-spark")
    assert "the log has 7 to 10" in entry.lost.reason
    peer.delete_topic(topic)
    peer.create_topic(topic, 2)
    peer.produce(topic, numbered(20, first=50))
    assert values(drain.run(**options)[0]) == list(range(50, 70))
    recreated = [each.lost for each in read_lost_offsets(peer.bootstrap, losses)[1:]]
    assert [(lost.partition, lost.first_offset, lost.end_offset) for lost in recreated] == [
        (0, 10, UNKNOWN_END),
        (1, 0, UNKNOWN_END),
    ]
    assert {lost.topic_id for lost in recreated} == {old_id}


@needs(SparkFeature.READ_LIMITS)
def test_a_limit_by_bytes_divides_a_backlog(drain: Drain, peer: Peer, topic: str) -> None:
    for first in range(0, 100, 10):
        peer.produce(topic, [Message(None, b"%05d" % index * 200, partition=0) for index in range(first, first + 10)])
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxBytesPerTrigger": "30000"}
    batches, _ = drain.run(**options)
    assert [int(value[:5]) for batch in batches for value in batch] == list(range(100))
    assert {len(batch) for batch in batches[:-1]} <= set(range(25, 31)), "about 1,000 bytes a record, and a little more"


def test_a_late_timestamp_is_an_error_or_the_end(read: Read, peer: Peer, topic: str) -> None:
    peer.produce(topic, [Message(None, b"old", partition=0, timestamp_ms=1_000)])
    peer.produce(topic, [Message(None, b"new", partition=1, timestamp_ms=9_000)])
    late = {"subscribe": topic, "startingTimestamp": "5000"}
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy"):
        read(**late).collect()
    rows = read(**late, startingOffsetsByTimestampStrategy="latest").collect()
    assert [bytes(row["value"]) for row in rows] == [b"new"]


@only_ottla
def test_tasks_are_no_larger_than_configured(read: Read, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(100) + numbered(7, partition=1, first=100))
    assert read(subscribe=topic).rdd.getNumPartitions() == 1, "small ranges share a task"
    frame = read("value binary", subscribe=topic, maxRecordsPerPartition="10")
    sizes = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert sum(sizes) == 107
    assert max(sizes) <= 10


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# In tasks of five records.
CONDITIONS = {
    "partition = 1": 4,
    "partition IN (0, 1) AND offset >= 15": 2,
    "offset < 3 AND partition = 0": 1,
    # Records 9 to 18 of each partition, and the last one, which is earlier.
    "timestamp >= TIMESTAMP '1970-01-01 00:00:10Z'": 6,
    "timestamp < TIMESTAMP '1970-01-01 00:00:02Z'": 8,
    "topic = 'another'": 1,
    "value = X'35'": 8,
}


@only_ottla
@needs(SparkFeature.PUSHED_FILTERS)
def test_conditions_shorten_the_read_and_change_no_result(read: Read, peer: Peer, topic: str, pushing: None) -> None:
    for partition in (0, 1):
        messages = numbered(20, partition=partition)
        early = [each._replace(timestamp_ms=1_000 * (index + 1)) for index, each in enumerate(messages[:9])]
        late = [each._replace(timestamp_ms=10_000 + index) for index, each in enumerate(messages[9:19])]
        peer.produce(topic, early + late)
        peer.produce(topic, [messages[19]._replace(timestamp_ms=500)])
    options = {"subscribe": topic, "maxRecordsPerPartition": "5"}
    everything = read(subscribe=topic).cache()
    for condition, tasks in CONDITIONS.items():
        pushed = read(**options, pushFilters="true").where(condition)
        assert pushed.rdd.getNumPartitions() == tasks, condition
        assert places(pushed) == places(everything.where(condition)), condition


@only_ottla
@needs(SparkFeature.PUSHED_FILTERS)
def test_filters_are_pushed_only_while_spark_allows_it(read: Read, topic: str) -> None:
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        read(subscribe=topic, pushFilters="true").collect()


@pytest.mark.parametrize("peer", ["apache-kafka"], indirect=True)
def test_a_stream_of_committed_records_waits_for_open_transactions(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce_transactions(topic, [(b"1", True), (b"2", False), (b"3", True), (b"4", False)])
    options = {"subscribe": topic, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    assert values(drain.run(**options)[0]) == [1, 3]
    peer.produce_transactions(topic, [(b"5", True)])
    assert values(drain.run(**options)[0]) == [5]


def test_partitions_can_be_assigned_to_a_stream_and_given_up(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(3) + numbered(3, partition=1, first=10))
    both = {"assign": json.dumps({topic: [0, 1]}), "startingOffsets": "earliest"}
    assert values(drain.run(**both)[0]) == [0, 1, 2, 10, 11, 12]
    peer.produce(topic, numbered(2, first=3) + numbered(2, partition=1, first=13))
    assert values(drain.run(assign=json.dumps({topic: [1]}))[0]) == [13, 14]


def test_topics_that_match_later_join_a_stream_and_deleted_ones_stop_it(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(2))
    options = {"subscribePattern": f"{topic}.*", "startingOffsets": "earliest"}
    assert values(drain.run(**options)[0]) == [0, 1]
    peer.create_topic(f"{topic}-more", 1)
    peer.produce(f"{topic}-more", numbered(2, first=5))
    assert values(drain.run(**options)[0]) == [5, 6]
    peer.delete_topic(f"{topic}-more")
    with pytest.raises(StreamingQueryException, match=f"of {topic}-more-0 are gone: read by the query, and deleted"):
        drain.run(**options)
    assert values(drain.run(**options, failOnDataLoss="false")[0]) == []
