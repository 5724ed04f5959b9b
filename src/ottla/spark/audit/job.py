"""The job that compares all tiers: from the topic of counts to a table and a topic of results.

Spark keeps the newest message of each counter and sums them up by window; what is left is small, and is compared by the
rules of `ottla.audit.comparison`.  Only lines that are new or have changed are written: a window that late records
reached is written again, and the newest line of a topic, window and tier counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.audit.comparison import TierCount, TierLine, compare_sums
from ottla.audit.count import AUDIT_TOPIC
from ottla.audit.results import RESULTS_TOPIC, newest, result_fields, result_key, result_to_json
from ottla.audit.topic import ensure_topic, read_values, store
from ottla.client.cluster import Cluster
from ottla.client.offsets import log_ranges
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import HOUR_MS
from ottla.model.windows import Window, check_window_ms
from ottla.spark.audit.count_messages import summed_windows
from ottla.spark.audit.loaded_table import LoadedTable
from ottla.spark.lake.tables import append_once
from ottla.spark.lake.target import LakeTarget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP_ID: Final = "ottla-audit"
_NUMBER: Final = pa.int64()
RESULTS_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("window_start", pa.timestamp("us", tz="UTC")),
        pa.field("window_ms", _NUMBER),
        pa.field("tier", pa.string()),
        pa.field("records", _NUMBER),
        pa.field("expected_records", _NUMBER),
        pa.field("missing_records", _NUMBER),
        pa.field("surplus_records", _NUMBER),
        pa.field("late_records", _NUMBER),
        pa.field("late_ms", _NUMBER),
        pa.field("completeness", pa.float64()),
        pa.field("compared_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class AuditRun:
    """`lines`: every topic, window and tier.  `changed`: those of them that were written."""

    lines: tuple[TierLine, ...]
    changed: tuple[TierLine, ...]


def run_audit(
    spark: SparkSession,
    bootstrap: str,
    target: LakeTarget | None = None,
    *,
    tables: Sequence[LoadedTable] = (),
    window_ms: int = HOUR_MS,
    audit_topic: str = AUDIT_TOPIC,
    results_topic: str = RESULTS_TOPIC,
) -> AuditRun:
    """Compare what all tiers have counted by now; write what has changed to the table `target` and to `results_topic`.

    clicks = LoadedTable(parse_target("s3://lake/clicks"))
    run_audit(spark, "localhost:9092", parse_target("s3://lake/audit"), tables=[clicks])

    What loads have committed to `tables` is told first, as tier `lake`.
    It may be killed and run again at any point: the table takes the lines of one state of the counts once, and a line
    that the topic has twice is the same line.  Raises ClientError, LakeError, and ConfigError where a tier counts by
    windows that are no parts of `window_ms`.
    """
    check_window_ms(window_ms)
    with Cluster(bootstrap) as cluster:
        for table in tables:
            table.tell(cluster, audit_topic)
        ensure_topic(cluster, audit_topic)
        partitions = [TopicPartition(audit_topic, each) for each in cluster.partitions(audit_topic)]
        ends = {partition: offsets.stop for partition, offsets in log_ranges(cluster, partitions).items()}
        lines = compare_sums(_sums(spark, bootstrap, ends, window_ms))
        known = newest(read_values(cluster, results_topic, {}))
        changed = [line for line in lines if known.get(result_key(line)) != line]
        if changed:
            compared_ms = cluster.clock.now_ms()
            if target is not None:
                # Ends only grow, so they number the states of the counts.
                version = sum(ends.values())
                app_id = f"{APP_ID}/{cluster.info.cluster_id}/{results_topic}/{window_ms}"
                append_once(target, _table(changed, compared_ms), app_id=app_id, version=version)
            store(cluster, [(result_key(line), result_to_json(line, compared_ms)) for line in changed], results_topic)
    return AuditRun(tuple(lines), tuple(changed))


def _sums(
    spark: SparkSession, bootstrap: str, ends: dict[TopicPartition, int], window_ms: int
) -> dict[tuple[str, Window], dict[str, TierCount]]:
    sums: dict[tuple[str, Window], dict[str, TierCount]] = {}
    if not any(ends.values()):
        return sums
    for row in summed_windows(spark, bootstrap, ends, window_ms).collect():
        if row["unfit_ms"] is not None:
            raise ConfigError(
                f"tier {row['tier']} counts {row['topic']} by windows of {row['unfit_ms']} ms, "
                f"which are no parts of windows of {window_ms} ms",
                hint="compare by a multiple of every counter's windows",
            )
        tiers = sums.setdefault((row["topic"], Window(row["start_ms"], window_ms)), {})
        tiers[row["tier"]] = TierCount(row["records"], row["late_records"], row["last_seen_ms"])
    return sums


def _table(lines: list[TierLine], compared_ms: int) -> pa.Table:
    rows = [result_fields(line) | {"compared_at": compared_ms * 1_000} for line in lines]
    for row, line in zip(rows, lines, strict=True):
        row["window_start"] = line.window.start_ms * 1_000
        del row["window_start_ms"]
    return pa.Table.from_pylist(rows, schema=RESULTS_SCHEMA)
