"""`df.write.format("ottla")` and `writeStream`, read back by librdkafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.eventually import eventually
from tests.integration.spark.conftest import Read, ReadStream
from tests.integration.spark.peer import Message, Peer

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def write(frame: DataFrame, peer: Peer, **options: str) -> None:
    (
        frame.write.format("ottla")
        .option("kafka.bootstrap.servers", peer.bootstrap)
        .options(**options)
        .mode("append")
        .save()
    )


def failure(frame: DataFrame, peer: Peer, **options: str) -> str:
    with pytest.raises(PySparkException) as caught:
        write(frame, peer, **options)
    return str(caught.value)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_another_client_reads_every_field_that_was_written(
    spark: SparkSession, peer: Peer, topic: str, codec: str
) -> None:
    rows = [
        (
            None if index % 5 == 0 else b"key-%d" % index,
            None if index % 7 == 0 else b"x%d" % index * (index % 60),
            [("a", b"1"), ("b", None)] if index % 3 == 0 else ([] if index % 3 == 1 else None),
            index % 2,
        )
        for index in range(200)
    ]
    frame = spark.createDataFrame(
        rows, "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int"
    ).repartition(1)
    write(frame, peer, **{"topic": topic, "kafka.compression.type": codec})
    written = [
        (message.key, message.value, message.headers or [], message.partition) for message in peer.consume(topic, 200)
    ]
    expected = [(key, value, headers or [], partition) for key, value, headers, partition in rows]
    assert sorted(written, key=str) == sorted(expected, key=str)


def test_keys_go_to_the_partitions_where_other_producers_put_them(spark: SparkSession, peer: Peer, topic: str) -> None:
    keys = [b"key-%d" % index for index in range(100)]
    theirs = peer.produce(topic, [Message(key, b"") for key in keys])
    ours = f"{topic}-ours"
    peer.create_topic(ours, 2)
    write(spark.createDataFrame([(key, b"") for key in keys], "key binary, value binary"), peer, topic=ours)
    assert {message.key: message.partition for message in peer.consume(ours, 100)} == {
        message.key: message.partition for message in theirs
    }


def test_rows_of_one_task_keep_their_order_in_a_partition(spark: SparkSession, peer: Peer, topic: str) -> None:
    frame = spark.range(5000).selectExpr("CAST(id AS STRING) AS value", "0 AS partition").coalesce(1)
    write(frame, peer, **{"topic": topic, "kafka.batch.size": "2048"})
    assert [int(message.value or b"") for message in peer.consume(topic, 5000)] == list(range(5000))


def test_every_row_can_name_its_topic(spark: SparkSession, peer: Peer, topic: str) -> None:
    other = f"{topic}-other"
    peer.create_topic(other, 1)
    rows = [(f"{index}", other if index % 3 == 0 else topic) for index in range(30)]
    write(spark.createDataFrame(rows, "value string, topic string"), peer)
    assert sorted(int(message.value or b"") for message in peer.consume(other, 10)) == list(range(0, 30, 3))
    assert len(peer.consume(topic, 20)) == 20


def test_timestamps_are_kept_when_the_option_is_set(spark: SparkSession, peer: Peer, topic: str) -> None:
    frame = spark.sql("SELECT 'x' AS value, TIMESTAMP '2011-06-12 00:00:00.123 UTC' AS timestamp")
    write(frame, peer, topic=topic, includeTimestamp="true")
    (message,) = peer.consume(topic, 1)
    assert message.timestamp_ms == 1_307_836_800_123


def test_a_topic_read_and_written_back_is_the_same(read: Read, peer: Peer, topic: str) -> None:
    copy = f"{topic}-copy"
    peer.create_topic(copy, 2)
    stored = peer.produce(topic, [Message(b"%d" % index, b"v", [("h", b"")]) for index in range(50)])
    write(read(subscribe=topic, includeHeaders="true").drop("topic"), peer, topic=copy, includeTimestamp="true")
    assert peer.consume(copy, 50) == stored


def test_a_record_that_the_broker_refuses_fails_the_job_and_is_explained(
    spark: SparkSession, peer: Peer, topic: str
) -> None:
    frame = spark.sql("SELECT repeat('x', 2000000) AS value, 1 AS partition")
    message = failure(frame, peer, topic=topic)
    assert f"{topic}-1" in message
    assert "max.message.bytes" in message


def test_a_partition_that_does_not_exist_is_refused(spark: SparkSession, peer: Peer, topic: str) -> None:
    assert "'partition' is 7" in failure(spark.sql("SELECT 'x' AS value, 7 AS partition"), peer, topic=topic)


@pytest.mark.parametrize(
    ("query", "options", "named"),
    [
        ("SELECT 1 AS id", {"topic": "t"}, "no column 'value'"),
        ("SELECT 1 AS value", {"topic": "t"}, "column 'value' is int"),
        ("SELECT 'x' AS value", {}, "neither the option 'topic' nor a column"),
        ("SELECT 'x' AS value", {"topic": "t", "kafka.acks": "2"}, "'kafka.acks' cannot be '2'"),
        (
            "SELECT 'x' AS value",
            {"topic": "t", "kafka.compresion.type": "lz4"},
            "did you mean 'kafka.compression.type'",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_named(
    spark: SparkSession, peer: Peer, query: str, options: dict[str, str], named: str
) -> None:
    assert named in failure(spark.sql(query), peer, **options)


@pytest.mark.parametrize("acks", ["0", "1"])
def test_rows_are_stored_with_other_acks_too(spark: SparkSession, peer: Peer, topic: str, acks: str) -> None:
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    write(frame, peer, **{"topic": topic, "kafka.acks": acks, "kafka.linger.ms": "5"})
    # Without acknowledgements rows may come after the job's end.
    eventually(lambda: peer.count(topic), lambda count: count == 100)
    assert sorted(int(message.value or b"") for message in peer.consume(topic, 100)) == list(range(100))


def test_keys_that_are_ignored_spread_over_the_partitions(spark: SparkSession, peer: Peer, topic: str) -> None:
    frame = spark.range(200).selectExpr("'same' AS key", "repeat('x', 100) AS value").coalesce(1)
    write(frame, peer, **{"topic": topic, "kafka.partitioner.ignore.keys": "true", "kafka.batch.size": "1024"})
    assert {message.partition for message in peer.consume(topic, 200)} == {0, 1}


def test_an_unreachable_cluster_is_reported_within_the_configured_time(spark: SparkSession) -> None:
    # No process listens on this port: it is reserved and never bound.
    nowhere = {"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "1500"}
    writer = spark.sql("SELECT 'x' AS value").write.format("ottla").options(**nowhere).mode("append")
    with pytest.raises(PySparkException, match="did not succeed in time: cannot connect") as caught:
        writer.save()
    assert "hint: is the broker running, and is the address right" in str(caught.value)


def test_a_stream_is_written_once_over_restarts(
    read_stream: ReadStream, peer: Peer, topic: str, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    peer.create_topic(copy, 2)

    def run() -> None:
        stream = read_stream(subscribe=topic, startingOffsets="earliest").load().select("key", "value")
        writer = stream.writeStream.format("ottla").option("kafka.bootstrap.servers", peer.bootstrap)
        writer = writer.option("topic", copy).option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    peer.produce(topic, [Message(b"%d" % index, b"first") for index in range(20)])
    run()
    peer.produce(topic, [Message(b"%d" % index, b"second") for index in range(10)])
    run()
    run()
    values = [message.value for message in peer.consume(copy, 30)]
    assert (values.count(b"first"), values.count(b"second")) == (20, 10)
