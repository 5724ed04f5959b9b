"""The topic of counts as a DataFrame: the newest message of each counter, summed up by window."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from ottla.audit.count import Count, from_json
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.spark.registration import register_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    spark: SparkSession, bootstrap: str, ends: Mapping[TopicPartition, int], window_ms: int
) -> DataFrame:
    """A row for each topic, window of `window_ms` and tier: what its counters' newest messages before `ends` come to.

    Columns: topic, start_ms, tier, records, late_records, last_seen_ms and first_seen_ms
    (the newest and the oldest of its counters' last ones); `unfit_ms`: the size of a counter's windows
    that are no parts of these, else null.
    """
    register_source(spark)
    topics = {partition.topic for partition in ends}
    offsets: dict[str, dict[str, int]] = defaultdict(dict)
    for partition, end in ends.items():
        offsets[partition.topic][str(partition.partition)] = end
    messages = (
        spark.read.format("ottla")
        .schema("value binary")
        .option("kafka.bootstrap.servers", bootstrap)
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
