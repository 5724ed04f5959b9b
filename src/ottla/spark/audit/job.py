"""The job that compares all tiers: from the topic of counts to a table and a topic of results.

Spark keeps the newest message of each counter and sums them up by window; what is left is small, and is compared by the
rules of `ottla.audit.comparison`.  Only lines that are new or have changed are written: a window that late records
reached is written again, and the newest line of a topic, window and tier counts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F

from ottla.audit.comparison import COMPARED_MS, TierCount, TierLine, compare_sums, unfit_text
from ottla.audit.count import Count, from_json
from ottla.audit.topic import ensure_topic, store
from ottla.client.topic_log import TopicLog
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import HOUR_MS
from ottla.model.own_names import AUDIT_RESULTS_TOPIC, AUDIT_TOPIC
from ottla.model.windows import Window, check_window_ms
from ottla.spark.audit.table_counts import LoadedTable
from ottla.spark.errors import LakeError
from ottla.spark.lake.delta_appends import append_once
from ottla.spark.lake.target import LakeTarget
from ottla.spark.options.connection import connection_of
from ottla.spark.registration import register_source
from ottla.spark.source.cluster_view import open_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NUMBERS: Final = ("records", "missing_records", "surplus_records", "late_records", "late_ms")


def result_key(line: TierLine) -> bytes:
    return f"{line.tier}/{line.topic}/{line.window.start_ms}/{line.window.size_ms}".encode()


def result_to_json(line: TierLine, compared_ms: int) -> bytes:
    return json.dumps(line.fields() | {"compared_ms": compared_ms}, separators=(",", ":")).encode()


def result_from_json(data: bytes) -> tuple[TierLine, int]:
    """The line, and when it was compared.  Raises WireError."""
    try:
        found = json.loads(data)
        texts = [found["topic"], found["tier"]]
        numbers = [found[name] for name in ("window_start_ms", "window_ms", "compared_ms", *_NUMBERS)]
        expected = found["expected_records"]
        if not all(isinstance(each, str) for each in texts) or not all(type(each) is int for each in numbers):
            raise WireError("a result of the audit has a field of a wrong type")
        if expected is not None and type(expected) is not int:
            raise WireError("a result's expected_records is no number")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError(f"a result of the audit cannot be read: {error!r}") from None
    topic, tier = texts
    start_ms, size_ms, compared_ms, records, *others = numbers
    return TierLine(topic, Window(start_ms, size_ms), tier, records, expected, *others), compared_ms


def newest(values: Iterable[bytes | None]) -> dict[bytes, TierLine]:
    """The newest line of each key; what is no result is left out."""
    found: dict[bytes, tuple[int, TierLine]] = {}
    for value in values:
        try:
            line, compared_ms = result_from_json(value or b"")
        except WireError:
            continue
        key = result_key(line)
        if key not in found or found[key][0] <= compared_ms:
            found[key] = compared_ms, line
    return {key: line for key, (_, line) in found.items()}


COUNTS_SCHEMA: Final = pa.schema(
    [
        ("tier", pa.string()),
        ("instance", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("start_ms", pa.int64()),
        ("window_ms", pa.int64()),
        ("sequence", pa.int64()),
        ("records", pa.int64()),
        ("late_records", pa.int64()),
        ("last_seen_ms", pa.int64()),
    ]
)
_COUNTS_DDL: Final = (
    "tier string, instance string, topic string, topic_id string, start_ms long, window_ms long, sequence long, "
    "records long, late_records long, last_seen_ms long"
)
_COUNTER: Final = ("tier", "instance", "topic", "topic_id", "start_ms", "window_ms")
_NEWEST: Final = ("sequence", "records", "late_records", "last_seen_ms")


def summed_windows(
    spark: SparkSession, source: Mapping[str, str], ends: Mapping[TopicPartition, int], window_ms: int
) -> DataFrame:
    """A row for each topic, window of `window_ms` and tier: what its counters' newest messages before `ends` come to.

    Columns: topic, start_ms, tier, records, late_records, last_seen_ms and first_seen_ms
    (the newest and the oldest of its counters' last ones); `unfit_ms`: the size of a counter's windows
    that are no parts of these, else null.  `source`: the options of the connection.
    """
    register_source(spark)
    topics = {partition.topic for partition in ends}
    offsets: dict[str, dict[str, int]] = defaultdict(dict)
    for partition, end in ends.items():
        offsets[partition.topic][str(partition.partition)] = end
    messages = (
        spark.read.format("ottla")
        .schema("value binary")
        .options(**source)
        .option("subscribe", ",".join(sorted(topics)))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", json.dumps(offsets))
        .load()
    )
    counts = messages.mapInArrow(parsed_counts, _COUNTS_DDL)
    # By the order of the columns, like `CountBook`: two messages of one sequence must not depend on the reading order.
    newest = counts.groupBy(*_COUNTER).agg(F.max(F.struct(*_NEWEST)).alias("newest"))
    start_ms = F.col("start_ms") - F.pmod(F.col("start_ms"), F.lit(window_ms))
    unfit_ms = F.when(F.lit(window_ms) % F.col("window_ms") != 0, F.col("window_ms"))
    return newest.groupBy("topic", start_ms.alias("start_ms"), "tier").agg(
        F.sum("newest.records").alias("records"),
        F.sum("newest.late_records").alias("late_records"),
        F.max("newest.last_seen_ms").alias("last_seen_ms"),
        F.min("newest.last_seen_ms").alias("first_seen_ms"),
        F.max(unfit_ms).alias("unfit_ms"),
    )


def parsed_counts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The counts in a column `value`; reports and invalid messages are left out."""
    for batch in batches:
        rows = [_row(value) for value in batch.column("value").to_pylist()]
        yield pa.RecordBatch.from_pylist([row for row in rows if row is not None], schema=COUNTS_SCHEMA)


def _row(value: bytes | None) -> dict[str, object] | None:
    try:
        message = from_json(value or b"")
    except WireError:
        return None
    if not isinstance(message, Count):
        return None
    key = message.key
    return {
        "tier": key.tier,
        "instance": str(key.instance),
        "topic": key.topic,
        "topic_id": str(key.topic_id),
        "start_ms": key.window.start_ms,
        "window_ms": key.window.size_ms,
        "sequence": message.sequence,
        "records": message.records,
        "late_records": message.late_records,
        "last_seen_ms": message.last_seen_ms,
    }


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
    options: Mapping[str, str] | None = None,
) -> AuditRun:
    """Compare what all tiers have counted by now; write the changes to the table `target` and to `results_topic`.

    clicks = LoadedTable(parse_target("s3://lake/clicks"))
    run_audit(spark, "localhost:9092", parse_target("s3://lake/audit"), tables=[clicks])

    The counts that loads have committed to `tables` are published first, as tier `lake`.  `options` are further options
    of the source, those of security among them.
    It may be killed and run again at any point: the table takes the lines of one state of the counts once, and a line
    that the topic has twice is the same line.  A topic that a tier counts by windows that do not fit into
    `window_ms` is left out.  Raises ClientError and LakeError.
    """
    check_window_ms(window_ms)
    with open_cluster(connection_of(bootstrap, options or {}, APP_ID)) as cluster:
        for table in tables:
            table.publish_counts(cluster, audit_topic)
        ensure_topic(cluster, audit_topic)
        ends = {partition: offsets.stop for partition, offsets in TopicLog(cluster, audit_topic).ranges().items()}
        source = {**(options or {}), "kafka.bootstrap.servers": bootstrap}
        sums, left_out = _sums(spark, source, ends, window_ms)
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
    spark: SparkSession, source: Mapping[str, str], ends: dict[TopicPartition, int], window_ms: int
) -> tuple[_Sums, dict[str, str]]:
    """What can be compared, and by topic why the rest cannot."""
    sums: _Sums = {}
    left_out: dict[str, str] = {}
    if not any(ends.values()):
        return sums, left_out
    for row in summed_windows(spark, source, ends, window_ms).collect():
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
    rows = [line.fields() | {"compared_at": compared_ms * 1_000} for line in lines]
    for row, line in zip(rows, lines, strict=True):
        row["window_start"] = line.window.start_ms * 1_000
        del row["window_start_ms"]
    return pa.Table.from_pylist(rows, schema=RESULTS_SCHEMA)
