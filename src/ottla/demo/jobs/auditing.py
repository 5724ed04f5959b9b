"""The audit: a tier of its own for what a table really has, and the comparison of all tiers."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from ottla.audit import AuditTopic, CompletenessRules, Count, TierLine, commit_counts, completeness_of
from ottla.audit.count import BROKER
from ottla.audit.waiting import NotComplete, wait_until_complete
from ottla.client.wire.cluster import Cluster
from ottla.demo.jobs.site import Site
from ottla.demo.lake import AUDIT, EVENTS, TABLE, lake_files
from ottla.demo.services import TOPICS
from ottla.model.limits import DAY_MS, HOUR_MS
from ottla.model.windows import Window
from ottla.runtime.clock import SystemClock
from ottla.spark.audit import run_audit
from ottla.spark.audit.table_counts import table_counts

# The broker counts in a process of low priority.
COUNTED_WITHIN_MS: Final = 60_000


class Audited(NamedTuple):
    """`lines`: each topic, hour and tier.  `duplicates`: by topic, rows of the table beyond the first of a record.

    `complete_hours`: the starts of the day's hours of which the table has every record, by topic.
    """

    lines: list[TierLine]
    duplicates: dict[str, int]
    complete_hours: dict[str, list[int]]


def audit(spark: SparkSession, site: Site, day_start_ms: int) -> Audited:
    duplicates = _tell_table(spark, site)
    _wait_for_broker(site, day_start_ms + DAY_MS)
    found = run_audit(spark, site.bootstrap, site.table(AUDIT), window_ms=HOUR_MS)
    lines = [line for line in found.lines if line.topic in TOPICS]
    return Audited(lines, duplicates, _complete_hours(site, day_start_ms))


def _tell_table(spark: SparkSession, site: Site) -> dict[str, int]:
    events = site.lake / EVENTS
    rows = spark.read.option("basePath", str(events)).parquet(*(str(file.path) for file in lake_files(events)))
    counted = table_counts(rows, window_ms=HOUR_MS).collect()
    now_ms = SystemClock().now_ms()
    counts: list[Count] = []
    for name in TOPICS:
        records = {row["window_start_ms"]: row["records"] for row in counted if row["topic"] == name}
        counts += commit_counts(TABLE, f"{events} {now_ms}", name, records, now_ms, window_ms=HOUR_MS)
    with AuditTopic(site.bootstrap) as topic:
        topic.publish(counts)
    return {name: sum(row["duplicates"] for row in counted if row["topic"] == name) for name in TOPICS}


def _wait_for_broker(site: Site, day_end_ms: int) -> None:
    """As a batch job waits.  What is missing after all that time the comparison shows."""
    rules = CompletenessRules(BROKER, HOUR_MS, threshold=1.0, delay_ms=0)
    with Cluster(site.bootstrap) as cluster:
        for name in TOPICS:
            try:
                wait_until_complete(cluster, name, day_end_ms, rules, timeout_ms=COUNTED_WITHIN_MS, poll_ms=200)
            except NotComplete:
                return


def _complete_hours(site: Site, day_start_ms: int) -> dict[str, list[int]]:
    rules = CompletenessRules(TABLE, HOUR_MS, threshold=1.0, delay_ms=0)
    with AuditTopic(site.bootstrap) as topic:
        book = topic.read()
    now_ms = SystemClock().now_ms()
    states = {name: completeness_of(book, name, rules, now_ms) for name in TOPICS}
    hours = [Window(start_ms, HOUR_MS) for start_ms in range(day_start_ms, day_start_ms + DAY_MS, HOUR_MS)]
    return {name: [hour.start_ms for hour in hours if state.is_complete(hour)] for name, state in states.items()}
