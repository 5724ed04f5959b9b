"""The job that compares all tiers: from the topic of counts to a table and a topic of results.

Spark keeps the newest message of each counter and sums them up by window; what is left is small, and is compared by the
rules of `ottla.audit.comparison`.  Only lines that are new or have changed are written: a window that late records
reached is written again, and the newest line of a topic, window and tier counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from ottla.audit.comparison import COMPARED_MS, TierCount, TierLine, compare_sums, unfit_text
from ottla.audit.results import newest, result_fields, result_key, result_to_json
from ottla.audit.topic import ensure_topic, store
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import HOUR_MS
from ottla.model.own_names import AUDIT_RESULTS_TOPIC, AUDIT_TOPIC
from ottla.model.windows import Window, check_window_ms
from ottla.spark.audit.count_messages import summed_windows
from ottla.spark.audit.loaded_table import LoadedTable
from ottla.spark.errors import LakeError
from ottla.spark.lake.tables import append_once
from ottla.spark.lake.target import LakeTarget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP_ID: Final = "ottla-audit"
_NUMBER: Final = pa.int64()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_1_MS: Final = -62_135_596_800_000
_YEAR_9999_MS: Final = 253_370_764_800_000
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
    """`lines`: every topic, window and tier.  `changed`: those of them that were new to the topic of results.

    `left_out`: by topic, why it could not be compared.
    """

    lines: tuple[TierLine, ...]
    changed: tuple[TierLine, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def run_audit(
    spark: SparkSession,
    bootstrap: str,
    target: LakeTarget | None = None,
    *,
    tables: Sequence[LoadedTable] = (),
    window_ms: int = HOUR_MS,
    audit_topic: str = AUDIT_TOPIC,
    results_topic: str = AUDIT_RESULTS_TOPIC,
) -> AuditRun:
    """Compare what all tiers have counted by now; write the changes to the table `target` and to `results_topic`.

    clicks = LoadedTable(parse_target("s3://lake/clicks"))
    run_audit(spark, "localhost:9092", parse_target("s3://lake/audit"), tables=[clicks])

    The counts that loads have committed to `tables` are published first, as tier `lake`.
    It may be killed and run again at any point: the table takes the lines of one state of the counts once, and a line
    that the topic has twice is the same line.  A topic that a tier counts by windows that do not fit into
    `window_ms` is left out.  Raises ClientError and LakeError.
    """
    check_window_ms(window_ms)
    with Cluster(bootstrap) as cluster:
        for table in tables:
            table.publish_counts(cluster, audit_topic)
        ensure_topic(cluster, audit_topic)
        ends = {partition: offsets.stop for partition, offsets in TopicLog(cluster, audit_topic).ranges().items()}
        sums, left_out = _sums(spark, bootstrap, ends, window_ms)
        lines = compare_sums(sums, seen_since_ms=cluster.clock.now_ms() - COMPARED_MS)
        known = newest(each.value for each in TopicLog(cluster, results_topic).read())
        changed = [line for line in lines if known.get(result_key(line)) != line]
        compared_ms = cluster.clock.now_ms()
        if target is not None:
            # The table may be newer than the topic of results, or another one than that of the last run.
            in_table = _newest_of(target, lines, window_ms)
            for_table = [line for line in lines if in_table.get(result_key(line)) != line]
            if for_table:
                # Ends only grow while the topic is the same one, so they number the states of its counts.
                (topic,) = cluster.refresh([audit_topic])
                app_id = (
                    f"{APP_ID}/{cluster.info.cluster_id}/{audit_topic}/{topic.topic_id}/{results_topic}/{window_ms}"
                )
                append_once(target, _table(for_table, compared_ms), app_id=app_id, version=sum(ends.values()))
        if changed:
            store(cluster, [(result_key(line), result_to_json(line, compared_ms)) for line in changed], results_topic)
    return AuditRun(tuple(lines), tuple(changed), left_out)


_Sums: TypeAlias = dict[tuple[str, Window], dict[str, TierCount]]


def _sums(
    spark: SparkSession, bootstrap: str, ends: dict[TopicPartition, int], window_ms: int
) -> tuple[_Sums, dict[str, str]]:
    """What can be compared, and by topic why the rest cannot."""
    sums: _Sums = {}
    left_out: dict[str, str] = {}
    if not any(ends.values()):
        return sums, left_out
    for row in summed_windows(spark, bootstrap, ends, window_ms).collect():
        if row["unfit_ms"] is not None:
            left_out[row["topic"]] = unfit_text(row["tier"], row["topic"], row["unfit_ms"], window_ms)
            continue
        tiers = sums.setdefault((row["topic"], Window(row["start_ms"], window_ms)), {})
        seen_ms = row["last_seen_ms"], row["first_seen_ms"]
        tiers[row["tier"]] = TierCount(row["records"], row["late_records"], *seen_ms)
    return {place: tiers for place, tiers in sums.items() if place[0] not in left_out}, left_out


def _newest_of(target: LakeTarget, lines: Sequence[TierLine], window_ms: int) -> dict[bytes, TierLine]:
    """The table's newest line of each key, from the first of these windows on."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not lines:
        return {}
    first_ms = min(line.window.start_ms for line in lines)
    # A producer's times may be outside of the range of a datetime.
    first = _EPOCH + timedelta(milliseconds=max(first_ms, _YEAR_1_MS)) if first_ms < _YEAR_9999_MS else _EPOCH
    columns = [name for name in RESULTS_SCHEMA.names if name != "completeness"]
    try:
        if not DeltaTable.is_deltatable(target.url, target.storage_options):
            return {}
        table = DeltaTable(target.url, storage_options=target.storage_options)
        filters = [("window_start", ">=", first), ("window_ms", "=", window_ms)]
        rows = table.to_pyarrow_table(columns=columns, filters=filters).sort_by("compared_at")
    except (DeltaError, OSError, ValueError, KeyError) as error:
        raise LakeError(f"the results in {target.url} cannot be read: {error}") from error
    starts_ms = [us // 1_000 for us in rows.column("window_start").cast(pa.int64()).to_pylist()]
    found: dict[bytes, TierLine] = {}
    for row, start_ms in zip(rows.drop_columns(["window_start", "compared_at"]).to_pylist(), starts_ms, strict=True):
        window = Window(start_ms, row.pop("window_ms"))
        line = TierLine(window=window, **row)
        found[result_key(line)] = line
    return found


def _table(lines: list[TierLine], compared_ms: int) -> pa.Table:
    rows = [result_fields(line) | {"compared_at": compared_ms * 1_000} for line in lines]
    for row, line in zip(rows, lines, strict=True):
        row["window_start"] = line.window.start_ms * 1_000
        del row["window_start_ms"]
    return pa.Table.from_pylist(rows, schema=RESULTS_SCHEMA)
