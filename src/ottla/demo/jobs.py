"""A process of the demo: all jobs on Spark in one session, written as a user writes them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import ottla.spark
from ottla.audit import AuditTopic, CompletenessRules, Count, TierLine, commit_counts, completeness_of
from ottla.audit.count import BROKER
from ottla.audit.waiting import NotComplete, wait_until_complete
from ottla.client.wire.cluster import Cluster
from ottla.demo.checking import (
    AUDIT,
    DEAD_LETTERS,
    DELAY_MS,
    EVENTS,
    GAP_MS,
    LATE_VIEWS,
    SESSIONS,
    TABLE,
    TOP_PAGES,
    TOP_PAGES_COUNT,
    TOP_PAGES_MS,
    lake_files,
)
from ottla.demo.events import PAGE_VIEWS, TOPICS
from ottla.demo.processes import JobsDone, Report, StageStarted, Task, run_task
from ottla.model.limits import DAY_MS, HOUR_MS
from ottla.model.windows import Window
from ottla.runtime.clock import SystemClock
from ottla.spark import streams
from ottla.spark.audit import run_audit
from ottla.spark.audit.table_counts import table_counts
from ottla.spark.dead_letters import DeadLetters
from ottla.spark.lake import Loader
from ottla.spark.lake.delta_appends import append_once
from ottla.spark.lake.target import parse_target

# Two cores are enough; more would not make the demo faster.
MASTER: Final = "local[2]"
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    # Hours are text, even when they look like a date.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
# A run of a minute does not repay the cost of compiling well and collecting in parallel.
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Spark's sockets have names of 43 characters in the directory for temporary files; a whole path may have 104 (macOS).
SOCKET_DIRECTORY_MAX: Final = 104 - 43 - 1
# Of the events some three fifths are page views: so their stream has four batches.
BATCHES_OF_ALL_EVENTS: Final = 6
# The broker counts in a process of low priority.
COUNTED_WITHIN_MS: Final = 60_000

# A value's document, null where it is not JSON.
DOCUMENT: Final = "try_parse_json(CAST(value AS STRING))"
PROBLEM: Final = "the value is not JSON"


@dataclass(frozen=True, slots=True)
class Jobs:
    spark: SparkSession
    task: Task

    def load(self) -> tuple[int, int]:
        """All topics into one table, by topic and hour, with counts for the audit; returns its rows and files."""
        loaded = Loader(self.spark, self.task.bootstrap, list(TOPICS), self._table(EVENTS), tells_audit=True).load()
        return loaded.rows_count, loaded.files_count

    def set_aside(self) -> int:
        """Malformed events become dead letters, in their topics and a table; returns the count of the others."""
        rows = self._read(*TOPICS, includeHeaders="true")
        letters = DeadLetters(self.task.bootstrap, error="error", table=self._table(DEAD_LETTERS), stage="PARSE")
        # By batch: one that runs again counts once.
        well_formed: dict[int, int] = {}

        def count(good: DataFrame, batch_id: int) -> None:
            well_formed[batch_id] = good.count()

        with_error = rows.selectExpr("*", f"CASE WHEN {DOCUMENT} IS NULL THEN '{PROBLEM}' END AS error")
        self._run(DEAD_LETTERS, with_error.writeStream.foreachBatch(letters.each_batch(count)))
        return sum(well_formed.values())

    def find_top_pages(self) -> None:
        """In several batches: so what is late for its window is late here, and goes to a table of its own."""
        size, views_per_batch = f"{TOP_PAGES_MS} milliseconds", max(1, self.task.events_count // BATCHES_OF_ALL_EVENTS)
        late = streams.LateRows(
            self._source(PAGE_VIEWS, maxOffsetsPerTrigger=str(views_per_batch)),
            prepare=page_views,
            drops=streams.drops_windows("at", size),
            keep=lambda rows, batch_id: self._append(LATE_VIEWS, rows.select("at", "member", "page"), batch_id),
            checkpoint=self._checkpoint(TOP_PAGES),
        )
        views = late.stream(self.spark)
        counts = streams.windowed(views, "at", size, by="page", delay=f"{DELAY_MS} milliseconds").count()
        top = streams.top_k(counts, TOP_PAGES_COUNT)

        def keep(found: DataFrame, batch_id: int) -> None:
            rows = found.selectExpr("window.start AS window_start", "rank", "page", "count AS views")
            self._append(TOP_PAGES, rows, batch_id)

        self._run(TOP_PAGES, top.writeStream.foreachBatch(late.each_batch(keep)))

    def find_sessions(self) -> None:
        """In one batch, for which nothing is late."""
        views, gap, delay = page_views(self._read(PAGE_VIEWS)), f"{GAP_MS} milliseconds", f"{DELAY_MS} milliseconds"
        found = streams.sessions(views, "at", gap, by="member", delay=delay).count()
        rows = found.selectExpr(
            "member", "session_window.start AS began_at", "session_window.end AS ended_at", "count AS views"
        )
        self._run(SESSIONS, rows.writeStream.foreachBatch(partial(self._append, SESSIONS)))

    def drop_one_row(self) -> None:
        """Remove the last row from the table's largest file, without the table's knowledge: the audit must find it."""
        _, file = lake_files(self._table(EVENTS))[0]
        rows = pq.ParquetFile(file).read()
        pq.write_table(rows.slice(0, rows.num_rows - 1), file)

    def audit(self) -> tuple[list[TierLine], dict[str, int], dict[str, list[int]]]:
        """Compare all tiers.  Returns `lines`, `duplicates` and `complete_hours` of `JobsDone`."""
        duplicates = self._publish_table_counts()
        self._wait_for_broker()
        found = run_audit(self.spark, self.task.bootstrap, parse_target(self._table(AUDIT)), window_ms=HOUR_MS)
        lines = [line for line in found.lines if line.topic in TOPICS]
        return lines, duplicates, self._complete_hours()

    def _publish_table_counts(self) -> dict[str, int]:
        """A tier of its own for the table's rows, read back from its files; returns the duplicates of each topic."""
        events = self._table(EVENTS)
        files = (str(file) for _, file in lake_files(events))
        rows = self.spark.read.option("basePath", str(events)).parquet(*files)
        counted = table_counts(rows, window_ms=HOUR_MS).collect()
        now_ms = SystemClock().now_ms()
        counts: list[Count] = []
        for name in TOPICS:
            records = {row["window_start_ms"]: row["records"] for row in counted if row["topic"] == name}
            counts += commit_counts(TABLE, f"{events} {now_ms}", name, records, now_ms, window_ms=HOUR_MS)
        with AuditTopic(self.task.bootstrap) as topic:
            topic.publish(counts)
        return {name: sum(row["duplicates"] for row in counted if row["topic"] == name) for name in TOPICS}

    def _wait_for_broker(self) -> None:
        """As a batch job waits.  Records that are still missing after the timeout appear in the comparison."""
        rules = CompletenessRules(BROKER, HOUR_MS, threshold=1.0, delay_ms=0)
        day_end_ms = self.task.day_start_ms + DAY_MS
        with suppress(NotComplete), Cluster(self.task.bootstrap) as cluster:
            for name in TOPICS:
                wait_until_complete(cluster, name, day_end_ms, rules, timeout_ms=COUNTED_WITHIN_MS, poll_ms=200)

    def _complete_hours(self) -> dict[str, list[int]]:
        day_start_ms = self.task.day_start_ms
        rules = CompletenessRules(TABLE, HOUR_MS, threshold=1.0, delay_ms=0)
        with AuditTopic(self.task.bootstrap) as topic:
            snapshot = topic.read()
        now_ms = SystemClock().now_ms()
        states = {name: completeness_of(snapshot, name, rules, now_ms) for name in TOPICS}
        hours = [Window(start_ms, HOUR_MS) for start_ms in range(day_start_ms, day_start_ms + DAY_MS, HOUR_MS)]
        return {name: [hour.start_ms for hour in hours if state.is_complete(hour)] for name, state in states.items()}

    def _source(self, *topics: str, **more: str) -> dict[str, str]:
        """Options of the source for everything that the topics have."""
        where = {"kafka.bootstrap.servers": self.task.bootstrap, "subscribe": ",".join(topics)}
        return where | {"startingOffsets": "earliest"} | more

    def _read(self, *topics: str, **more: str) -> DataFrame:
        return self.spark.readStream.format("ottla").options(**self._source(*topics, **more)).load()

    def _table(self, name: str) -> Path:
        return Path(self.task.lake) / name

    def _checkpoint(self, name: str) -> str:
        return f"{self.task.checkpoints}/{name}"

    def _append(self, name: str, rows: DataFrame, batch_id: int) -> None:
        """Append the rows of a batch to a table; once, also when the batch runs again."""
        append_once(parse_target(self._table(name)), rows.toArrow(), app_id=name, version=batch_id)

    def _run(self, name: str, writer: DataStreamWriter) -> None:
        """Run a stream from its checkpoint through everything that is there."""
        query = writer.option("checkpointLocation", self._checkpoint(name)).trigger(availableNow=True).start()
        query.awaitTermination()


def page_views(rows: DataFrame) -> DataFrame:
    """Columns at (a timestamp), member, page; of well-formed page views."""
    documents = rows.selectExpr(f"{DOCUMENT} AS event").where("event IS NOT NULL")
    return documents.selectExpr(
        "timestamp_millis(variant_get(event, '$.at_ms', 'bigint')) AS at",
        "variant_get(event, '$.member', 'bigint') AS member",
        "variant_get(event, '$.page', 'string') AS page",
    )


def run_jobs(task: Task, report: Report) -> None:
    clock = SystemClock()

    def start(stage: str) -> None:
        report(StageStarted(stage, clock.monotonic_ms()))

    start("starts")
    spark = _session(task.scratch)
    jobs = Jobs(spark, task)
    start("loads all topics into the lake")
    loaded = jobs.load()
    start("sets malformed events aside as dead letters")
    well_formed_count = jobs.set_aside()
    start("finds the top pages of each five minutes")
    jobs.find_top_pages()
    start("finds the members' sessions")
    jobs.find_sessions()
    if task.drop_one:
        jobs.drop_one_row()
    start("audits every topic and hour")
    lines, duplicates, complete_hours = jobs.audit()
    report(JobsDone(*loaded, well_formed_count, lines, duplicates, complete_hours, clock.monotonic_ms()))
    spark.stop()


def _session(scratch: str) -> SparkSession:
    """Spark and its Java write their temporary files into `scratch`, so that none are left."""
    os.environ["SPARK_LOCAL_DIRS"] = scratch
    java_options = f"{QUICK_JAVA} -Djava.io.tmpdir={scratch} -XX:-UsePerfData"
    os.environ["JAVA_TOOL_OPTIONS"] = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java_options}".strip()
    settings = dict(SETTINGS)
    if len(scratch.encode()) > SOCKET_DIRECTORY_MAX:
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    return ottla.spark.session("a day at a small LinkedIn", master=MASTER, **settings)


if __name__ == "__main__":
    run_task(run_jobs)
