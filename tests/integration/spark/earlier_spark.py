"""What the source does under a Spark that lacks a feature: `tests/integration/spark_versions` runs it under each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.spark import streams
from ottla.spark.schemas import from_registry
from ottla.spark.spark_features import SparkFeature
from ottla.testing import Namespace, Record, produce
from tests.integration.spark.conftest import Read, ReadStream
from tests.integration.spark.needs import lacks
from tests.integration.spark.peer import Peer
from tests.integration.spark.test_spark_stream import Drain, numbered
from tests.integration.spark.test_spark_streams import DAY_MS, MINUTE_MS, prepared, run, source_of

pytestmark = [pytest.mark.spark]


@pytest.fixture
def drain(read_stream: ReadStream, tmp_path: Path) -> Drain:
    return Drain(read_stream, tmp_path)


@lacks(SparkFeature.READ_LIMITS)
def test_a_limit_is_refused_with_the_version_that_takes_it(read_stream: ReadStream, topic: str) -> None:
    with pytest.raises(Exception, match=r"'maxOffsetsPerTrigger' needs Spark 4\.2 or newer: Spark 4\.\d+\.\d+ passes"):
        read_stream(subscribe=topic, maxOffsetsPerTrigger="40").load()


@lacks(SparkFeature.READ_LIMITS)
def test_available_now_reads_everything_once_in_one_batch(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(70) + numbered(30, partition=1, first=70))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    batches, _ = drain.run(**options)
    assert sorted(int(value) for batch in batches for value in batch) == list(range(100))
    assert [len(batch) for batch in batches] == [100]
    assert drain.run(**options)[0] == []


@lacks(SparkFeature.READ_LIMITS)
def test_a_group_gets_the_offsets_of_a_run_with_available_now_at_the_start_of_the_next(
    drain: Drain, peer: Peer, topic: str
) -> None:
    peer.produce(topic, numbered(5) + numbered(3, partition=1, first=5))
    options = {"subscribe": topic, "groupId": f"group-{topic}", "startingOffsets": "group"}
    for _ in range(2):
        drain.run(**options)
    with Cluster(peer.bootstrap) as cluster:
        committed = GroupAdmin(cluster).committed(f"group-{topic}")
    assert {place.partition: each.offset for place, each in committed.items()} == {0: 5, 1: 3}


def view(member: int, minute: int) -> Record:
    value = {"at_ms": DAY_MS + minute * MINUTE_MS, "member": member, "page": "/jobs"}
    return Record(json.dumps(value).encode(), key=b"m%d" % member)


VIEWS = [(1, 0), (2, 1), (1, 3), (1, 3), (1, 6), (2, 64)]


def windows(rows: DataFrame) -> DataFrame:
    counts = streams.windowed(rows, "at", "5 minutes", by="page").count()
    return counts.select(F.unix_millis("window.start").alias("start"), "count")


def sessions(rows: DataFrame) -> DataFrame:
    found = streams.sessions(rows, "at", "10 minutes", by="member").agg(F.count("*").alias("count"))
    return found.select(F.unix_millis("session_window.start").alias("start"), "count")


@lacks(SparkFeature.READ_LIMITS)
@pytest.mark.parametrize(
    ("operator", "expected"),
    [(windows, {(0, 3): 1, (5, 1): 1, (60, 1): 1}), (sessions, {(0, 3): 1, (1, 1): 1, (64, 1): 1})],
)
@pytest.mark.usefixtures("few_partitions")
def test_what_waits_for_a_time_to_be_over_comes_with_the_next_run_of_available_now(
    spark: SparkSession,
    namespace: Namespace,
    tmp_path: Path,
    operator: Callable[[DataFrame], DataFrame],
    expected: dict[tuple[int, int], int],
) -> None:
    topic = namespace.topic("views", partitions=2)
    found: list[Row] = []
    late_rows: list[Row] = []

    def run_once(*more: Record) -> None:
        produce(topic, more)
        late = streams.LateRows(
            source_of(topic),
            prepare=prepared,
            drops=streams.drops_rows("at"),
            keep=lambda rows, batch_id: late_rows.extend(rows.collect()),
            checkpoint=str(tmp_path / "views"),
        )
        once = streams.dedup(late.stream(spark), ["member", "page", "at_ms"], time="at", delay="1 minute")
        each_batch = late.each_batch(lambda rows, batch_id: found.extend(rows.collect()))
        run(operator(once).writeStream.foreachBatch(each_batch), tmp_path / "views")

    # One batch has everything, and no time is over yet.
    run_once(*(view(*each) for each in VIEWS), view(3, 1_000))
    assert (found, late_rows) == ([], [])
    run_once(view(3, 1_001))
    assert Counter(((row["start"] - DAY_MS) // MINUTE_MS, row["count"]) for row in found) == expected
    # Rows are late by the time of the run before.
    assert late_rows == []
    run_once(view(1, 2), view(3, 1_002))
    assert len(found) == len(expected)
    assert [(row["member"], (row["at_ms"] - DAY_MS) // MINUTE_MS) for row in late_rows] == [(1, 2)]


@lacks(SparkFeature.ARROW_FUNCTIONS)
def test_columns_of_a_registrys_schema_are_refused_with_the_version_that_has_them() -> None:
    with pytest.raises(Exception, match=r"from_registry needs Spark 4\.1 or newer: Spark 4\.0\.\d+ has no functions"):
        from_registry("value", "http://127.0.0.1:1", subject="orders-value")


@lacks(SparkFeature.PUSHED_FILTERS)
def test_pushed_conditions_are_refused_with_the_version_that_takes_them(read: Read, topic: str) -> None:
    with pytest.raises(Exception, match=r"'pushFilters' needs Spark 4\.1 or newer"):
        read(subscribe=topic, pushFilters="true")


@lacks(SparkFeature.ARROW_STREAM_SINKS)
def test_rows_of_a_stream_are_written_with_all_their_columns(
    read_stream: ReadStream, peer: Peer, topic: str, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    peer.create_topic(copy, 2)
    peer.produce(topic, numbered(4) + numbered(3, partition=1, first=4))
    rows = read_stream(subscribe=topic, startingOffsets="earliest", includeHeaders="true").load().drop("topic")
    writer = rows.writeStream.format("ottla").options(
        **{"kafka.bootstrap.servers": peer.bootstrap, "topic": copy, "includeTimestamp": "true"}
    )
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    written = [(each.partition, each.value, each.timestamp_ms) for each in peer.consume(copy, 7)]
    assert written == [(each.partition, each.value, each.timestamp_ms) for each in peer.consume(topic, 7)]
