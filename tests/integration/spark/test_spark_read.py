"""`spark.read.format("ottla")` against a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.integration.spark.conftest import Read
from tests.integration.spark.peer import Message, Peer

pytestmark = [pytest.mark.spark, pytest.mark.interop]

MESSAGES = [
    Message(
        None if index % 7 == 0 else b"key-%d" % index,
        None if index % 5 == 0 else b"v%d" % index * (index % 40),
        [("trace", b"%d" % index), ("empty", b""), ("null", None)] if index % 3 == 0 else None,
    )
    for index in range(300)
]


def values(frame: DataFrame) -> list[bytes | None]:
    return sorted(
        (None if row["value"] is None else bytes(row["value"]) for row in frame.select("value").collect()), key=str
    )


def numbered(count: int, partition: int = 0, first: int = 0) -> list[Message]:
    return [Message(None, b"%d" % index, partition=partition) for index in range(first, first + count)]


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return str(caught.value)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_is_as_another_client_wrote_it(read: Read, peer: Peer, topic: str, codec: str) -> None:
    stored = peer.produce(topic, MESSAGES, codec)
    rows = read(subscribe=topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [
        Message(
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            None
            if row["headers"] is None
            else [
                (header["key"], None if header["value"] is None else bytes(header["value"]))
                for header in row["headers"]
            ],
            row["partition"],
            row["offset"],
        )
        for row in rows
    ] == [message._replace(timestamp_ms=0) for message in stored]
    assert {row["topic"] for row in rows} == {topic}
    assert {row["timestampType"] for row in rows} == {0}


def test_names_and_types_are_those_of_the_official_connector(read: Read, topic: str) -> None:
    frame = read(subscribe=topic, includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert frame.count() == 0
    assert "headers" not in read(subscribe=topic).columns


def test_timestamps_are_the_producers(read: Read, peer: Peer, topic: str) -> None:
    moment = datetime(2011, 6, 12, 9, 30, 15, 123_000, tzinfo=UTC)
    peer.produce(topic, [Message(None, b"x", partition=0, timestamp_ms=int(moment.timestamp() * 1000))])
    (row,) = read(subscribe=topic).selectExpr("CAST(timestamp AS STRING) AS text").collect()
    assert row["text"] == "2011-06-12 09:30:15.123"


def test_a_topic_with_log_append_time_has_that_timestamp_type(read: Read, peer: Peer, topic: str) -> None:
    stamped = f"{topic}-stamped"
    peer.create_topic(stamped, 1, message_timestamp_type="LogAppendTime")
    peer.produce(stamped, [Message(None, b"x", timestamp_ms=1000)])
    (row,) = read(subscribe=stamped).selectExpr("timestampType", "year(timestamp) > 2011 AS is_now").collect()
    assert (row["timestampType"], row["is_now"]) == (1, True)


def test_a_narrow_schema_brings_only_its_columns_in_its_order(read: Read, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(3))
    frame = read("offset bigint, value binary", subscribe=topic)
    assert [(row[0], bytes(row[1])) for row in frame.orderBy("offset").collect()] == [(0, b"0"), (1, b"1"), (2, b"2")]


@pytest.mark.parametrize(("schema", "named"), [("value string", "'value' is string"), ("colour int", "'colour'")])
def test_a_schema_that_records_do_not_have_is_refused(read: Read, topic: str, schema: str, named: str) -> None:
    with pytest.raises(PySparkException, match=named):
        read(schema, subscribe=topic).collect()


def test_offsets_bound_the_read(read: Read, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(10) + numbered(10, partition=1, first=100))
    bounded = read(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 4, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 2}}),
    )
    assert values(bounded) == sorted([b"%d" % index for index in range(4, 10)] + [b"100", b"101"], key=str)


def test_timestamps_bound_the_read(read: Read, peer: Peer, topic: str) -> None:
    peer.produce(
        topic, [Message(None, b"%d" % hour, partition=0, timestamp_ms=hour * 3_600_000) for hour in range(1, 9)]
    )
    bounded = read(assign=json.dumps({topic: [0]}), startingTimestamp="7200000", endingTimestamp="18000000")
    assert values(bounded) == [b"2", b"3", b"4"]
    late = read(assign=json.dumps({topic: [0]}), endingTimestamp="999999999999")
    assert len(values(late)) == 8
    assert "'startingTimestamp'" in failure(read(assign=json.dumps({topic: [0]}), startingTimestamp="999999999999"))


def test_topics_are_found_by_pattern_and_partitions_by_assignment(read: Read, peer: Peer, topic: str) -> None:
    peer.create_topic(f"{topic}-b", 1)
    peer.produce(topic, numbered(2) + numbered(2, partition=1, first=10))
    peer.produce(f"{topic}-b", numbered(1, first=20))
    assert values(read(subscribePattern=f"{topic}.*")) == [b"0", b"1", b"10", b"11", b"20"]
    assert values(read(subscribe=f"{topic},{topic}-b")) == [b"0", b"1", b"10", b"11", b"20"]
    assert values(read(assign=json.dumps({topic: [1]}))) == [b"10", b"11"]


def test_more_tasks_than_partitions_read_every_record_once(read: Read, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(1000) + numbered(500, partition=1, first=1000))
    frame = read(subscribe=topic, minPartitions="5")
    assert frame.rdd.getNumPartitions() >= 5
    assert values(frame) == sorted((b"%d" % index for index in range(1500)), key=str)


def test_records_larger_than_a_fetch_are_read(read: Read, peer: Peer, topic: str) -> None:
    large = [Message(None, bytes([index]) * 300_000, partition=0) for index in range(5)]
    peer.produce(topic, large)
    small_fetches = read(**{"subscribe": topic, "kafka.max.partition.fetch.bytes": "1000"})
    assert values(small_fetches) == sorted((message.value for message in large), key=str)


def test_deleted_records_stop_a_read_that_names_them(read: Read, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(10))
    peer.delete_records_before(topic, 0, 6)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 2, "1": -2}})}
    assert "offset 2 of" in failure(read(**options))
    assert values(read(**options, failOnDataLoss="false")) == [b"6", b"7", b"8", b"9"]


def test_committed_reads_leave_out_aborted_transactions(read: Read, peer: Peer, topic: str) -> None:
    peer.produce_transactions(topic, [(b"a", True), (b"b", False), (b"c", True), (b"d", False), (b"e", True)])
    assert values(read(subscribe=topic)) == [b"a", b"b", b"c", b"d", b"e"]
    committed = read(**{"subscribe": topic, "kafka.isolation.level": "read_committed"})
    assert values(committed) == [b"a", b"c", b"e"]


def test_a_missing_topic_is_named(read: Read) -> None:
    assert "no-such-topic" in failure(read(subscribe="no-such-topic"))


def test_a_bad_option_is_named_with_a_hint(read: Read, topic: str) -> None:
    with pytest.raises(PySparkException, match="did you mean 'startingOffsets'"):
        read(subscribe=topic, startingOfsets="earliest").collect()


def test_offsets_of_other_partitions_are_refused(read: Read, topic: str) -> None:
    missing = read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}}))
    assert f"does not name {topic}-1" in failure(missing)
    unknown = read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0, "2": 0}}))
    assert f"names {topic}-2" in failure(unknown)
