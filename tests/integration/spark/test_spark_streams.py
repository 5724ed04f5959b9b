"""Windows, sessions, joins and tables that change, on the demo's own events, with results counted by Python."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.demo.events import CLICKS, PAGE_VIEWS, events_of
from ottla.model.errors import ConfigError
from ottla.spark import streams
from ottla.spark.errors import SparkOptionError
from ottla.spark.spark_features import INSTALLED, SparkFeature
from ottla.spark.streams.jobs import JobFailed, JobSettings, JobTotals, load_job, run_job
from ottla.testing import Namespace, Record, Topic, produce
from tests.integration.spark.needs import needs

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("few_partitions")]

MINUTE_MS = 60_000
# 2011-06-12 00:00 UTC.
DAY_MS = 1_307_836_800_000
# After the last event; the second of two closes what the first leaves open.
NEXT_WEEK_MS = DAY_MS + 7 * 24 * 60 * MINUTE_MS
EVENTS_COUNT = 3_000
FIELDS = "at_ms bigint, member bigint, page string"


class Seen(NamedTuple):
    """A page view or a click of the demo."""

    at_ms: int
    member: int
    page: str


def of_the_demo(topic: str) -> list[tuple[bytes, bytes]]:
    return [
        (event.key, event.value) for event in events_of("web-1", EVENTS_COUNT, 20110612, DAY_MS) if event.topic == topic
    ]


def late_and_repeated(records: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Some morning events arrive in the evening, and some noon events arrive then a second time."""
    most = len(records) * 4 // 5
    sent = [*records[:50], *records[80:most], *records[50:80], *records[600:620], *records[most:]]
    # Each tenth is sent twice, at once.
    return [each for at, each in enumerate(sent) for _ in range(2 if at % 10 == 9 else 1)]


def seen_in(records: list[tuple[bytes, bytes]]) -> list[Seen]:
    """The well-formed events."""
    found = []
    for _, value in records:
        try:
            event = json.loads(value)
        except ValueError:
            continue
        found.append(Seen(event["at_ms"], event["member"], event["page"]))
    return found


def filled(namespace: Namespace, name: str, records: list[tuple[bytes, bytes]]) -> Topic:
    topic = namespace.topic(name, partitions=2)
    produce(topic, [Record(value, key=key) for key, value in records], timeout_ms=60_000)
    return topic


def ends() -> list[tuple[bytes, bytes]]:
    """Events that close every window, in both partitions of a topic and both sides of a join."""
    return [
        (b"m%d" % member, json.dumps({"at_ms": NEXT_WEEK_MS, "member": -member, "page": "/end"}).encode())
        for member in range(1, 9)
    ]


def source_of(topic: Topic, **options: str) -> dict[str, str]:
    source = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return {**source, **options}


def prepared(rows: DataFrame) -> DataFrame:
    event = F.from_json(F.col("value").cast("string"), FIELDS)
    return (
        rows.select(event.alias("event"), "topic", "partition", "offset")
        .where("event.at_ms IS NOT NULL AND event.page IS NOT NULL")
        .select(F.timestamp_millis("event.at_ms").alias("at"), "event.*", "topic", "partition", "offset")
    )


def run(writer: DataStreamWriter, checkpoint: Path) -> Sequence[StreamingQueryProgress]:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query.recentProgress


def on_time_of(sent: list[tuple[bytes, bytes]], late_rows: list[Row]) -> list[Seen]:
    """The events that were on time, without duplicates."""
    dropped = Counter(Seen(row["at_ms"], row["member"], row["page"]) for row in late_rows)
    return [seen for seen, count in Counter(seen_in(sent)).items() if count > dropped[seen]]


@needs(SparkFeature.READ_LIMITS)
def test_top_pages_of_five_minutes_are_those_of_all_that_was_on_time_and_sent_once(
    spark: SparkSession, namespace: Namespace, tmp_path: Path
) -> None:
    sent_records = late_and_repeated(of_the_demo(PAGE_VIEWS))
    topic = filled(namespace, "views", [*sent_records, *ends()])
    late_rows: list[Row] = []
    top_rows: list[Row] = []
    checkpoint = tmp_path / "checkpoint"
    late = streams.LateRows(
        source_of(topic, maxOffsetsPerTrigger="500"),
        prepare=prepared,
        drops=streams.drops_rows("at"),
        keep=lambda rows, batch_id: late_rows.extend(rows.collect()),
        checkpoint=str(checkpoint),
    )
    once = streams.dedup(late.stream(spark), ["member", "page", "at_ms"], time="at", delay="10 minutes")
    counts = streams.windowed(once, "at", "5 minutes", by="page").count()
    top = streams.top_k(counts, 3).withColumn("start", F.unix_millis("window.start"))
    each_batch = late.each_batch(lambda rows, batch_id: top_rows.extend(rows.collect()))
    run(top.writeStream.foreachBatch(each_batch), checkpoint)

    assert len(late_rows) > 40, "late events were in time"
    on_time = on_time_of(sent_records, late_rows)
    pages: dict[int, Counter[str]] = defaultdict(Counter)
    for seen in on_time:
        pages[seen.at_ms // (5 * MINUTE_MS) * 5 * MINUTE_MS][seen.page] += 1
    expected = {
        (start, rank, page, count)
        for start, found in pages.items()
        for rank, (page, count) in enumerate(sorted(found.items(), key=lambda each: (-each[1], each[0]))[:3], 1)
    }
    found_rows = [(row["start"], row["rank"], row["page"], row["count"]) for row in top_rows]
    assert len(found_rows) == len(set(found_rows))
    assert set(found_rows) == expected


@needs(SparkFeature.READ_LIMITS)
def test_sessions_are_those_of_all_that_was_on_time_and_sent_once(
    spark: SparkSession, namespace: Namespace, tmp_path: Path
) -> None:
    sent_records = late_and_repeated(of_the_demo(PAGE_VIEWS))
    topic = filled(namespace, "views", [*sent_records, *ends()])
    gap_ms = 240 * MINUTE_MS
    late_rows: list[Row] = []
    sessions: list[Row] = []
    checkpoint = tmp_path / "checkpoint"
    late = streams.LateRows(
        source_of(topic, maxOffsetsPerTrigger="800"),
        prepare=prepared,
        drops=streams.drops_rows("at"),
        keep=lambda rows, batch_id: late_rows.extend(rows.collect()),
        checkpoint=str(checkpoint),
    )
    once = streams.dedup(late.stream(spark), ["member", "page", "at_ms"], time="at", delay="10 minutes")
    found = streams.sessions(once, "at", "240 minutes", by="member").agg(F.count("*").alias("views"))
    found = found.select("member", F.unix_millis("session_window.start").alias("start"), "views")
    each_batch = late.each_batch(lambda batch, batch_id: sessions.extend(batch.collect()))
    progress = run(found.writeStream.foreachBatch(each_batch), checkpoint)

    assert len(late_rows) > 40, "late events were in time"
    # Nothing is dropped by the sessions that was on time for `dedup`.
    assert len(late_rows) == sum(each.numRowsDroppedByWatermark for one in progress for each in one.stateOperators)
    times: dict[int, list[int]] = defaultdict(list)
    for seen in on_time_of(sent_records, late_rows):
        times[seen.member].append(seen.at_ms)
    expected: Counter[tuple[int, int, int]] = Counter()
    for member, moments in times.items():
        start = last = None
        count = 0
        for at_ms in sorted(moments):
            if start is None or last is None or at_ms >= last + gap_ms:
                if start is not None:
                    expected[member, start, count] += 1
                start, count = at_ms, 0
            last, count = at_ms, count + 1
        assert start is not None
        expected[member, start, count] += 1
    assert Counter((row["member"], row["start"], row["views"]) for row in sessions) == expected
    assert any(count > 1 for _, _, count in expected)


def test_clicks_are_joined_with_earlier_impressions(spark: SparkSession, namespace: Namespace, tmp_path: Path) -> None:
    views, clicks = of_the_demo(PAGE_VIEWS), of_the_demo(CLICKS)
    shown_topic = filled(namespace, "shown", [*views, *ends()])
    clicks_topic = filled(namespace, "clicks", [*clicks, *clicks[:50], *ends()])

    def side(topic: Topic, time: str) -> DataFrame:
        read = spark.readStream.format("ottla").options(**source_of(topic)).load()
        kept = prepared(read).select("member", "page", F.col("at_ms").alias(f"{time}_ms"), F.col("at").alias(time))
        return kept.withWatermark(time, "10 minutes")

    joined: list[Row] = []
    once = streams.dedup(side(clicks_topic, "clicked"), ["member", "page", "clicked_ms"])
    pairs = streams.join_within(
        side(shown_topic, "shown"),
        once,
        ["member", "page"],
        times=("shown", "clicked"),
        after="30 minutes",
        how="left_outer",
    )

    def join() -> None:
        run(pairs.writeStream.foreachBatch(lambda batch, batch_id: joined.extend(batch.collect())), tmp_path / "joined")

    join()
    if SparkFeature.READ_LIMITS not in INSTALLED:
        # One batch was everything: what has no partner comes with the next one.
        assert all(row["clicked_ms"] is not None for row in joined)
        for topic in (shown_topic, clicks_topic):
            produce(topic, [Record(value, key=key) for key, value in ends()])
        join()
    clicked: dict[tuple[int, str], set[int]] = defaultdict(set)
    for click in seen_in(clicks):
        clicked[click.member, click.page].add(click.at_ms)
    wanted: Counter[tuple[int, str, int, int | None]] = Counter()
    for view in seen_in(views):
        close: list[int | None] = [
            at for at in clicked[view.member, view.page] if view.at_ms <= at <= view.at_ms + 30 * MINUTE_MS
        ]
        for at in close or [None]:
            wanted[view.member, view.page, view.at_ms, at] += 1
    told = Counter(
        (row["member"], row["page"], row["shown_ms"], row["clicked_ms"]) for row in joined if row["member"] > 0
    )
    assert told == wanted
    assert sum(at is not None for *_, at in wanted) > 100


def test_update_and_delete_in_a_table_are_seen_by_the_next_batch(
    spark: SparkSession, namespace: Namespace, tmp_path: Path
) -> None:
    logins = namespace.topic("logins")
    members = namespace.topic("members", partitions=2, configs={"cleanup.policy": "compact"})
    produce(members, [("ada", "fi"), ("bob", "se"), ("eve", "no")])
    table = streams.ChangingTable(
        members.bootstrap,
        members,
        lambda rows: rows.select(
            F.col("key").cast("string").alias("who"), F.col("value").cast("string").alias("country")
        ),
    )
    found: list[tuple[str, str | None]] = []

    def process(batch: DataFrame, now: DataFrame, batch_id: int) -> None:
        joined = batch.join(now, "who", "left_outer").select("who", "country").collect()
        found.extend((row["who"], row["country"]) for row in joined)

    rows = spark.readStream.format("ottla").options(**source_of(logins)).load()
    writer = rows.select(F.col("value").cast("string").alias("who")).writeStream.foreachBatch(table.each_batch(process))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def logged_in() -> list[tuple[str, str | None]]:
        found.clear()
        produce(logins, ["ada", "bob", "eve"])
        query.processAllAvailable()
        return sorted(found)

    try:
        assert logged_in() == [("ada", "fi"), ("bob", "se"), ("eve", "no")]
        produce(members, [("ada", "dk")])
        assert logged_in() == [("ada", "dk"), ("bob", "se"), ("eve", "no")]
        produce(members, [("bob", None)])
        assert logged_in() == [("ada", "dk"), ("bob", None), ("eve", "no")]
        assert logged_in() == [("ada", "dk"), ("bob", None), ("eve", "no")]
        produce(members, [("bob", "is"), ("bob", None), ("bob", "fo")])
        assert logged_in() == [("ada", "dk"), ("bob", "fo"), ("eve", "no")]
    finally:
        query.stop()
    # A recreated topic is read from its start.
    namespace.close()
    produce(namespace.topic("members"), [("eve", "sv")])
    assert table.now(spark).collect() == [Row(who="eve", country="sv")]


def test_table_whose_rows_were_lost_is_read_again_at_once(spark: SparkSession, namespace: Namespace) -> None:
    members = namespace.topic("members", configs={"cleanup.policy": "compact"})
    produce(members, [("ada", "fi")])
    table = streams.ChangingTable(members.bootstrap, members)
    found: list[dict[bytes, bytes]] = []
    each_batch = table.each_batch(
        lambda batch, now, batch_id: found.append({bytes(row["key"]): bytes(row["value"]) for row in now.collect()})
    )
    each_batch(spark.range(1), 0)
    lose_kept_rows(spark)
    each_batch(spark.range(1), 1)
    produce(members, [("bob", "se")])
    lose_kept_rows(spark)
    each_batch(spark.range(1), 2)
    assert found == [{b"ada": b"fi"}, {b"ada": b"fi"}, {b"ada": b"fi", b"bob": b"se"}]


def test_table_is_read_again_after_a_batch_that_failed(spark: SparkSession, namespace: Namespace) -> None:
    members = namespace.topic("members", configs={"cleanup.policy": "compact"})
    produce(members, [("ada", "fi")])
    table = streams.ChangingTable(members.bootstrap, members)

    def unlucky(batch: DataFrame, now: DataFrame, batch_id: int) -> None:
        lose_kept_rows(spark)
        now.collect()

    with pytest.raises(Exception, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
        table.each_batch(unlucky)(spark.range(1), 0)
    found: list[Row] = []
    table.each_batch(lambda batch, now, batch_id: found.extend(now.collect()))(spark.range(1), 0)
    assert [row["key"] for row in found] == [b"ada"]


def lose_kept_rows(spark: SparkSession) -> None:
    """As when an executor dies."""
    for kept in kept_rows(spark):
        kept.unpersist(True)


def test_table_keeps_its_rows_once_however_often_it_changes(spark: SparkSession, namespace: Namespace) -> None:
    members = namespace.topic("members", configs={"cleanup.policy": "compact"})
    table = streams.ChangingTable(members.bootstrap, members)
    each_batch = table.each_batch(lambda batch, now, batch_id: None)
    produce(members, [("ada", "fi")])
    each_batch(spark.range(1), 0)
    count = len(kept_rows(spark))
    for number in range(3):
        produce(members, [("ada", str(number))])
        each_batch(spark.range(1), number)
        # Rows of another test's table may be dropped meanwhile: Spark drops what is garbage.
        assert len(kept_rows(spark)) <= count
    # A caller that requests the rows keeps them.
    before = table.now(spark)
    produce(members, [("ada", "no")])
    assert [bytes(row["value"]) for row in table.now(spark).collect()] == [b"no"]
    assert [bytes(row["value"]) for row in before.collect()] == [b"2"]


def kept_rows(spark: SparkSession) -> list[Any]:
    return list(spark.sparkContext._jsc.getPersistentRDDs().values())


def test_rows_that_are_read_twice_are_there_once_by_their_places(
    spark: SparkSession, namespace: Namespace, tmp_path: Path
) -> None:
    topic = namespace.topic("replayed", partitions=2)
    # Records with equal values are separate rows.
    produce(topic, [Record(b"%d" % (number % 2), partition=number % 2) for number in range(6)])
    rows, again = (spark.readStream.format("ottla").options(**source_of(topic)).load() for _ in range(2))
    once = streams.dedup(rows.unionByName(again), time="timestamp", delay="10 minutes")
    found: list[Row] = []
    writer = once.select("partition", "offset").writeStream
    run(writer.foreachBatch(lambda batch, batch_id: found.extend(batch.collect())), tmp_path / "checkpoint")
    assert sorted(tuple(row) for row in found) == [(partition, offset) for partition in (0, 1) for offset in range(3)]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda rows: streams.top_k(rows, 0), "k is 1 or more"),
        (lambda rows: streams.sessions(rows, "at", "5 minutes", by=()), "a session needs columns to group by"),
        (lambda rows: streams.dedup(rows, time="at"), "time and delay go together"),
        (
            lambda rows: streams.join_within(rows, rows, "id", times=("at", "at"), after="1 minute"),
            "both sides have at",
        ),
    ],
)
def test_invalid_arguments_are_refused(spark: SparkSession, call: Callable[[DataFrame], Any], problem: str) -> None:
    with pytest.raises(SparkOptionError, match=problem):
        call(spark.range(1).withColumn("at", F.now()))


def test_job_from_a_file_runs_continues_and_reports_why_it_fails(
    spark: SparkSession, namespace: Namespace, tmp_path: Path
) -> None:
    topic = namespace.topic("numbers")
    produce(topic, ["1", "2"])
    file = tmp_path / "job.py"
    file.write_text(
        """
from pyspark.sql.functions import col, udf

def parsed(text):
    return int(text)

def numbers(spark, job):
    rows = spark.readStream.format("ottla").option("kafka.bootstrap.servers", job.bootstrap)
    rows = rows.option("subscribe", job.options["topic"]).option("startingOffsets", "earliest").load()
    number = udf(parsed, "int")(col("value").cast("string"))
    return rows.select(number.alias("number")).writeStream.format("parquet").option("path", job.options["out"])

def nothing(spark, job):
    return None
"""
    )
    out = tmp_path / "out"
    settings = JobSettings(topic.bootstrap, str(tmp_path / "checkpoint"), {"topic": topic, "out": str(out)})
    told: list[JobTotals] = []

    def run_once(name: str = "numbers") -> JobTotals:
        return run_job(spark, load_job(f"{file}:{name}"), settings, {"availableNow": True}, told.append)

    totals = run_once()
    assert (totals.batches, totals.rows) == (1, 2)
    produce(topic, ["3"])
    assert run_once().rows == 1
    assert sorted(row["number"] for row in spark.read.parquet(str(out)).collect()) == [1, 2, 3]
    produce(topic, ["four"])
    with pytest.raises(JobFailed, match="invalid literal"):
        run_once()
    with pytest.raises(ConfigError, match="NoneType"):
        run_once("nothing")
    with pytest.raises(ConfigError, match="no function 'number'") as missing:
        load_job(f"{file}:number")
    assert missing.value.hint == "did you mean numbers?"
    with pytest.raises(ConfigError, match="names no job"):
        load_job("job.py")
