"""Rows that fail go to a topic and a table before their batch is committed, and come back once."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import SparkConf
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ottla.client.wire.cluster import Cluster
from ottla.dead_letters import DeadLetter, Origin, Replay, Replayed, letter_of
from ottla.model.identifiers import uuid_to_text
from ottla.spark import dead_letters as route
from ottla.spark.checkpointed_rows import ATTEMPTS_MAX
from ottla.spark.dead_letters import DeadLetters, attempt
from ottla.spark.errors import SparkOptionError
from ottla.spark.lake.delta_appends import append_once
from ottla.testing import Namespace, Record, Topic, consume_all, produce
from ottla.testing.broker import RunningBroker

pytestmark = pytest.mark.spark

# 2011-06-12 00:00 UTC.
DAY_MS = 1_307_836_800_000
GOOD = [Record(json.dumps({"order": number}).encode(), key=b"k%d" % number) for number in range(6)]
BAD = [
    Record(b"<html>", key=None, headers=[("trace", b"\xff"), ("trace", None)], partition=0, timestamp_ms=DAY_MS),
    Record(b'{"order": "many"}', key=b"", partition=1, timestamp_ms=DAY_MS + 1),
    Record(None, key=b"gone", partition=1, timestamp_ms=DAY_MS + 2),
    Record(b"\xc3\x28" + b"x" * 700_000, key=b"large", partition=1, timestamp_ms=DAY_MS + 3),
]


def order_of(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise ValueError("no value")
    found: dict[str, Any] = json.loads(value)
    return found


@pytest.fixture
def orders(namespace: Namespace) -> Topic:
    topic = namespace.topic("orders", partitions=2, configs={"retention.ms": "-1"})
    produce(topic, [*GOOD, *BAD])
    return topic


def parsed(spark: SparkSession, topic: Topic) -> DataFrame:
    source = spark.readStream.format("ottla").option("kafka.bootstrap.servers", topic.bootstrap)
    rows = source.option("subscribe", topic).option("startingOffsets", "earliest").option("includeHeaders", "true")
    return rows.load().withColumn("parsed", attempt(order_of, "order bigint")("value"))


def run(rows: DataFrame, each_batch: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    writer = rows.writeStream.foreachBatch(each_batch).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def letters_of(topic: Topic) -> list[DeadLetter]:
    return [letter_of(message) for message in consume_all(f"{topic}.dead-letter", bootstrap=topic.bootstrap)]


def test_failing_rows_are_letters_in_topic_and_table_once_the_batch_is_committed(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "dead", tmp_path / "checkpoint"
    processed: list[Row] = []
    dead_letters = DeadLetters(orders.bootstrap, error="parsed.error", table=table, stage="PARSE")
    seen_before: list[int] = []

    def process(good: DataFrame, batch_id: int) -> None:
        # Failed rows are stored before anything else is done.
        seen_before.append(len(letters_of(orders)))
        processed.extend(good.select("parsed.result.order").collect())
        if len(seen_before) == 1:
            raise ConnectionError("the database is down")

    with pytest.raises(StreamingQueryException, match="the database is down"):
        run(parsed(spark, orders), dead_letters.each_batch(process), checkpoint)
    processed.clear()
    run(parsed(spark, orders), dead_letters.each_batch(process), checkpoint)
    assert sorted(row["order"] for row in processed) == list(range(6))
    assert seen_before == [4, 8]

    with Cluster(orders.bootstrap) as cluster:
        topic_id, cluster_id = cluster.topic(orders).topic_id, cluster.info.cluster_id or ""
    by_place = {(message.partition, message.offset): message for message in consume_all(orders)}
    letters = letters_of(orders)
    # The batch was run twice, so its letters are there twice, with the same origins.
    assert set(Counter(letter.origin for letter in letters).values()) == {2}
    for letter in letters:
        message = by_place[letter.origin.partition, letter.origin.offset]
        place = (message.partition, message.offset, message.timestamp_ms)
        assert letter.origin == Origin(cluster_id, orders, topic_id, *place)
        assert (letter.key, letter.value, letter.headers) == (message.key, message.value, message.headers)
        assert letter.stage == "PARSE"
    assert {letter.error_class for letter in letters} == {
        "json.decoder.JSONDecodeError",
        "UnicodeDecodeError",
        "pyspark.errors.exceptions.base.PySparkTypeError",
        "ValueError",
    }

    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert len(rows) == 4
    first = next(row for row in rows if row["value"] == b"<html>")
    assert (first["topic_id"], first["partition"]) == (uuid_to_text(topic_id), 0)
    assert first["timestamp"].timestamp() * 1000 == DAY_MS
    assert first["headers"] == [{"key": "trace", "value": b"\xff"}, {"key": "trace", "value": None}]
    assert first["error_class"] == "json.decoder.JSONDecodeError"
    assert {(row["partition"], row["offset"]) for row in rows} == {
        (letter.origin.partition, letter.origin.offset) for letter in letters
    }

    with Cluster(orders.bootstrap) as cluster:
        assert Replay(cluster, f"{orders}.dead-letter").run() == Replayed(put_back=4, were_back=4)
    assert len(consume_all(orders)) == 14


def test_many_letters_are_in_the_table_once_when_a_batch_ends_between_its_commits(
    spark: SparkSession, orders: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "ROWS_OF_COMMIT", 1)
    append = append_once
    left = 2

    def dying(*arguments: Any, **named: Any) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise ConnectionError("killed")
        return append(*arguments, **named)

    dead_letters = DeadLetters(orders.bootstrap, error="parsed.error", table=tmp_path / "dead", has_topic=False)
    rows = parsed(spark, orders)
    each_batch = dead_letters.each_batch(lambda good, batch_id: None)
    with monkeypatch.context() as patch:
        patch.setattr(route, "append_once", dying)
        with pytest.raises(StreamingQueryException, match="killed"):
            run(rows, each_batch, tmp_path / "checkpoint")
    assert DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().num_rows == 2
    run(rows, each_batch, tmp_path / "checkpoint")
    found = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert Counter(row["error_class"] for row in found).total() == 4
    assert len({(row["partition"], row["offset"]) for row in found}) == 4


def test_letter_that_only_the_second_run_of_a_batch_produces_is_in_the_table(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    """A look-up failed, and then fails for other rows: the parts of the first run are not those of the second."""
    rows = spark.read.format("ottla").option("kafka.bootstrap.servers", orders.bootstrap).option("subscribe", orders)
    loaded = rows.option("includeHeaders", "true").load()
    table = tmp_path / "dead"

    def write(offset: int) -> None:
        error = F.when(F.col("offset") == offset, F.lit("away"))
        DeadLetters(orders.bootstrap, error=error, table=table, has_topic=False).write(loaded, "look-up", 7)

    for offset in (0, 1, 1, 0):
        write(offset)
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in found) == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("losses", [1, 3])
def test_batch_that_loses_its_blocks_is_divided_again_and_no_row_is_in_neither_part(
    spark: SparkSession, orders: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    """All rows are good while the bad ones are set aside, and bad afterwards."""
    fails = str(tmp_path / "fails")

    def looked_up(value: bytes | None) -> int:
        if os.path.exists(fails):
            raise TimeoutError("the database is away")
        return 1

    source = spark.read.format("ottla").option("kafka.bootstrap.servers", orders.bootstrap).option("subscribe", orders)
    rows = source.option("includeHeaders", "true").load().withColumn("found", attempt(looked_up, "int")("value"))
    dead_letters = DeadLetters(orders.bootstrap, error="found.error")
    processed: list[Row] = []
    each_batch = dead_letters.each_batch(lambda good, batch_id: processed.extend(good.collect()))
    write = DeadLetters._write
    left = losses

    def write_and_lose(*arguments: Any) -> None:
        nonlocal left
        write(*arguments)
        Path(fails).touch()
        left -= 1
        if left >= 0:
            lose_kept_rows(spark)

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "_write", write_and_lose)
        if losses < ATTEMPTS_MAX:
            each_batch(rows, 0)
        else:
            with pytest.raises(Exception, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
                each_batch(rows, 0)
    assert processed == []
    # The first time nothing is bad; each further time all are.
    assert len(letters_of(orders)) == 10 * min(losses, ATTEMPTS_MAX - 1)


def test_speculation_is_refused_only_when_the_batch_is_kept(
    spark: SparkSession, orders: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = SparkConf(loadDefaults=False).set("spark.speculation", "TRUE")
    monkeypatch.setattr(spark.sparkContext, "_conf", conf)
    source = spark.read.format("ottla").option("kafka.bootstrap.servers", orders.bootstrap).option("subscribe", orders)
    rows = source.option("includeHeaders", "true").load()
    processed: list[int] = []

    def each_batch(*, keeps_batch: bool) -> Callable[[DataFrame, int], None]:
        dead_letters = DeadLetters(orders.bootstrap, error="CAST(NULL AS STRING)", keeps_batch=keeps_batch)
        return dead_letters.each_batch(lambda good, batch_id: processed.append(good.count()))

    with pytest.raises(SparkOptionError, match=r"spark\.speculation"):
        each_batch(keeps_batch=True)(rows, 0)
    each_batch(keeps_batch=False)(rows, 0)
    assert processed == [10]


def lose_kept_rows(spark: SparkSession) -> None:
    """As when an executor dies."""
    for kept in spark.sparkContext._jsc.getPersistentRDDs().values():
        kept.unpersist(True)


def test_error_may_be_a_text_of_sql(spark: SparkSession, orders: Topic, namespace: Namespace) -> None:
    rows = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", orders.bootstrap)
        .option("subscribe", orders)
        .option("includeHeaders", "true")
        .load()
    )
    elsewhere = namespace.topic("elsewhere")
    error = F.when(F.get_json_object(F.col("value").cast("string"), "$.order").isNull(), F.lit("no order"))
    DeadLetters(orders.bootstrap, error=error, topic=elsewhere).write(rows, "orders", 1)
    letters = [letter_of(message) for message in consume_all(elsewhere)]
    assert len(letters) == 3
    assert {(letter.error_class, letter.error_message, letter.stage) for letter in letters} == {
        ("", "no order", "PROCESS")
    }


def test_rows_that_are_no_records_are_refused(spark: SparkSession, broker: RunningBroker) -> None:
    dead_letters = DeadLetters(broker.bootstrap, error="error")
    record = "'k' key"
    with pytest.raises(SparkOptionError, match="column 'key' is string"):
        dead_letters.write(spark.sql(f"SELECT {record}"), "test", 1)
    plain = "CAST('k' AS BINARY) key, CAST('v' AS BINARY) value, 't' topic, 0 partition, 0L offset, now() timestamp"
    with pytest.raises(SparkOptionError, match="includeHeaders"):
        dead_letters.write(spark.sql(f"SELECT {plain}"), "test", 1)
    headers = "CAST(NULL AS array<struct<key:string,value:binary>>) headers"
    with pytest.raises(SparkOptionError, match="the error of a row is int"):
        dead_letters.write(spark.sql(f"SELECT {plain}, {headers}, 1 error"), "test", 1)
    with pytest.raises(SparkOptionError, match="go nowhere"):
        DeadLetters(broker.bootstrap, error="error", has_topic=False)


def test_attempt_gives_a_result_or_an_error_and_never_fails(spark: SparkSession) -> None:
    def halved(number: int) -> object:
        if number == 0:
            return None
        if number == 1:
            return "one"
        if number % 2:
            raise KeyError(number)
        return {"half": number // 2, "other": None}

    rows = spark.range(5).select("id", attempt(halved, "half int, other string")("id").alias("tried")).collect()
    assert [row["tried"]["result"] for row in rows if row["id"] in (2, 4)] == [
        Row(half=1, other=None),
        Row(half=2, other=None),
    ]
    assert rows[0]["tried"] == Row(result=None, error=None)
    assert rows[1]["tried"]["error"]["class"] == "pyspark.errors.exceptions.base.PySparkTypeError"
    assert rows[3]["tried"] == Row(result=None, error=Row(**{"class": "KeyError", "message": "3"}))
