"""The rows that Spark's operators drop, exactly: compared with Spark's own count of each batch."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ottla.spark import streams
from ottla.spark.spark_features import SparkFeature
from ottla.spark.streams.late_rows import Lateness
from ottla.testing import Namespace, Record, Topic, produce
from tests.integration.spark.needs import needs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("few_partitions"),
    needs(SparkFeature.READ_LIMITS),
]

MINUTE_MS = 60_000
# 2011-06-12 00:00 UTC.
DAY_MS = 1_307_836_800_000
FAR_MS = DAY_MS + 100_000 * MINUTE_MS


@pytest.fixture
def events(namespace: Namespace) -> Topic:
    return namespace.topic("events", partitions=3)


class Numbered:
    """Events with a number each, in any partition."""

    def __init__(self, topic: Topic, chance: random.Random) -> None:
        self.count = 0
        self._topic = topic
        self._chance = chance

    def produce(self, *times_ms: int) -> None:
        records = []
        for at_ms in times_ms:
            value = {"at": at_ms, "n": self.count, "page": f"/{self._chance.randrange(3)}"}
            records.append(Record(json.dumps(value), partition=self._chance.randrange(3)))
            self.count += 1
        produce(self._topic, records)

    def produce_disordered(self, count: int, from_minute: int) -> None:
        """Some of the last ten minutes, and some much earlier."""
        backs = [self._chance.choice([self._chance.uniform(0, 10), self._chance.uniform(0, 200)]) for _ in range(count)]
        self.produce(*(DAY_MS + int((from_minute - back) * MINUTE_MS) for back in backs))


def prepared(rows: DataFrame) -> DataFrame:
    fields = F.from_json(F.col("value").cast("string"), "at bigint, n bigint, page string")
    return rows.select(fields.alias("f"), "partition", "offset").select(
        F.timestamp_millis("f.at").alias("at"), "f.n", "f.page", "partition", "offset"
    )


class Job:
    """A query with a side output, that is restarted from its checkpoint for each batch."""

    def __init__(
        self,
        spark: SparkSession,
        topic: Topic,
        checkpoint: Path,
        drops: Lateness,
        aggregate: Callable[[DataFrame], DataFrame],
    ) -> None:
        self.late: dict[int, list[Row]] = {}
        self.output: dict[int, list[Row]] = {}
        self.dropped: dict[int, int] = {}
        self.fails_in: int | None = None
        self._spark = spark
        self._aggregate = aggregate
        self._checkpoint = str(checkpoint)
        source = {
            "kafka.bootstrap.servers": topic.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "60",
        }
        self._late = streams.LateRows(
            source, prepare=prepared, drops=drops, keep=self._keep, checkpoint=self._checkpoint
        )

    def _keep(self, rows: DataFrame, batch_id: int) -> None:
        self.late[batch_id] = rows.collect()

    def _process(self, rows: DataFrame, batch_id: int) -> None:
        if batch_id == self.fails_in:
            self.fails_in = None
            raise ConnectionError("the database is down")
        self.output[batch_id] = rows.collect()

    def run(self) -> None:
        writer = self._aggregate(self._late.stream(self._spark)).writeStream
        query = (
            writer.foreachBatch(self._late.each_batch(self._process))
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            for progress in query.recentProgress:
                dropped = sum(each.numRowsDroppedByWatermark for each in progress.stateOperators[-1:])
                self.dropped[progress.batchId] = self.dropped.get(progress.batchId, 0) + dropped
            query.stop()

    @property
    def late_rows(self) -> list[Row]:
        return [row for rows in self.late.values() for row in rows]

    @property
    def output_rows(self) -> list[Row]:
        return [row for rows in self.output.values() for row in rows]

    def late_counts(self, of: Callable[[Row], Any]) -> dict[int, int]:
        return {batch_id: len({of(row) for row in rows}) for batch_id, rows in self.late.items()}

    def dropped_counts(self) -> dict[int, int]:
        return {batch_id: count for batch_id, count in self.dropped.items() if count}


def test_late_rows_of_windows_are_those_that_spark_drops(spark: SparkSession, events: Topic, tmp_path: Path) -> None:
    job = Job(
        spark,
        events,
        tmp_path / "checkpoint",
        streams.drops_windows("at", "5 minutes"),
        lambda rows: streams.windowed(rows, "at", "5 minutes", by="page", delay="10 minutes").count(),
    )
    numbered = Numbered(events, random.Random(5))
    # The first batch drops what ended before 1970.
    numbered.produce(-10 * MINUTE_MS, -1, 0)
    numbered.produce_disordered(100, 300)
    job.run()
    assert {row["n"] for row in job.late[0]} == {0, 1}
    for minute in (360, 420):
        numbered.produce_disordered(80, minute)
        # The boundary: one window ends exactly at the watermark, one after it.
        numbered.produce(DAY_MS + (minute - 15) * MINUTE_MS - 1, DAY_MS + (minute - 15) * MINUTE_MS)
        job.run()
    # Two events that close every window: the second reports the windows that the first has closed.
    numbered.produce(FAR_MS)
    job.run()
    numbered.produce(FAR_MS + 1)
    job.run()

    assert len(job.dropped_counts()) > 3, "too few batches with late rows"
    # Spark counts the groups in which a batch's rows reach the operator.
    assert job.late_counts(lambda row: (row["page"], row["window"])) == job.dropped_counts()
    on_time = sum(row["count"] for row in job.output_rows)
    open_still = 2
    assert on_time + len(job.late_rows) + open_still == numbered.count
    assert len({row["n"] for row in job.late_rows}) == len(job.late_rows)


def test_late_rows_of_dedup_are_the_rows_that_spark_drops_also_when_a_batch_runs_again(
    spark: SparkSession, events: Topic, tmp_path: Path
) -> None:
    job = Job(
        spark,
        events,
        tmp_path / "checkpoint",
        streams.drops_rows("at"),
        lambda rows: streams.dedup(rows, "n", time="at", delay="10 minutes"),
    )
    numbered = Numbered(events, random.Random(7))
    numbered.produce(-1, 0, 1)
    numbered.produce_disordered(57, 300)
    job.run()
    assert {row["n"] for row in job.late[0]} == {0, 1}
    numbered.produce_disordered(60, 360)
    job.fails_in = max(job.output) + 1
    with pytest.raises(StreamingQueryException, match="the database is down"):
        job.run()
    before = dict(job.late)
    job.run()
    assert before == {batch_id: job.late[batch_id] for batch_id in before}, "a batch that runs again keeps other rows"
    numbered.produce_disordered(130, 420)
    job.run()

    assert len(job.dropped_counts()) > 3, "too few batches with late rows"
    assert {batch_id: len(rows) for batch_id, rows in job.late.items()} == job.dropped_counts()
    seen = [row["n"] for row in (*job.output_rows, *job.late_rows)]
    assert sorted(seen) == list(range(numbered.count))


def test_late_rows_of_sessions_and_overlapping_windows_are_those_that_spark_drops(
    spark: SparkSession, events: Topic, tmp_path: Path
) -> None:
    sessions = Job(
        spark,
        events,
        tmp_path / "sessions",
        streams.drops_sessions("at", "7 minutes"),
        lambda rows: streams.sessions(rows, "at", "7 minutes", by="page", delay="10 minutes").count(),
    )
    sliding = Job(
        spark,
        events,
        tmp_path / "sliding",
        streams.drops_windows("at", "10 minutes", "5 minutes"),
        lambda rows: streams.windowed(
            rows, "at", "10 minutes", slide="5 minutes", by="page", delay="10 minutes"
        ).count(),
    )
    numbered = Numbered(events, random.Random(11))
    numbered.produce_disordered(120, 300)
    numbered.produce_disordered(60, 360)
    numbered.produce(FAR_MS)
    numbered.produce(FAR_MS + 1)
    for job in (sessions, sliding):
        job.run()
        assert job.dropped_counts(), "no batch with late rows"
    # Each row has a different time, so each is a separate group.
    assert sessions.late_counts(lambda row: row["n"]) == sessions.dropped_counts()
    assert sliding.late_counts(lambda row: (row["page"], row["window"])) == sliding.dropped_counts()
    # A row is in two windows, and late for none, one or both.
    on_time = sum(row["count"] for row in sliding.output_rows)
    assert on_time + len(sliding.late_rows) + 2 * 2 == 2 * numbered.count


def test_late_rows_of_a_join_are_those_of_both_sides(spark: SparkSession, namespace: Namespace, tmp_path: Path) -> None:
    left, right = namespace.topic("left", partitions=3), namespace.topic("right", partitions=3)
    checkpoint = str(tmp_path / "checkpoint")
    kept: dict[str, list[Row]] = {"left": [], "right": []}
    joined: list[Row] = []

    def late_of(topic: Topic, side: str, number: int) -> streams.LateRows:
        source = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return streams.LateRows(
            {**source, "maxOffsetsPerTrigger": "30"},
            prepare=lambda rows: prepared(rows).select("n", F.col("at").alias(f"{side}_at"), F.lit(side).alias(side)),
            drops=streams.drops_rows(f"{side}_at"),
            keep=lambda rows, batch_id: kept[side].extend(rows.collect()),
            checkpoint=checkpoint,
            input=number,
        )

    chance = random.Random(3)
    numbered = [Numbered(left, chance), Numbered(right, chance)]
    for minute in (300, 360, 420):
        for each in numbered:
            each.produce_disordered(30, minute)
    sides = late_of(left, "left", 0), late_of(right, "right", 1)
    rows = streams.join_within(
        sides[0].stream(spark),
        sides[1].stream(spark),
        "n",
        times=("left_at", "right_at"),
        after="1000 minutes",
        before="1000 minutes",
        delays=("10 minutes", "10 minutes"),
    )
    each_batch = sides[0].each_batch(sides[1].each_batch(lambda found, batch_id: joined.extend(found.collect())))
    writer = rows.writeStream.foreachBatch(each_batch).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    dropped = sum(each.stateOperators[0].numRowsDroppedByWatermark for each in query.recentProgress)
    assert kept["left"]
    assert kept["right"]
    assert len(kept["left"]) + len(kept["right"]) == dropped
    # A number is joined unless one side of it was late.
    late = {row["n"] for rows in kept.values() for row in rows}
    assert sorted(row["n"] for row in joined) == sorted(set(range(90)) - late)
