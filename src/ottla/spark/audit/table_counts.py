"""Counts taken from a table itself, record by record, to compare with those that its loads have committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ottla.model.limits import HOUR_MS
from ottla.model.windows import check_window_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What names a record.  Tables of our loads have the topic's id, too.
RECORD_COLUMNS: Final = ("topic", "partition", "offset")


def table_counts(
    table: DataFrame,
    *,
    window_ms: int = HOUR_MS,
    event_time: str = "timestamp",
    record_columns: Sequence[str] = RECORD_COLUMNS,
) -> DataFrame:
    """Records by topic and event-time window, and how many of them are in the table more than once.

    table_counts(spark.read.format("delta").load("/lake/clicks")).show()

    Columns: topic, window_start_ms, records (different ones), duplicates (rows beyond the first of a record).
    `event_time` is a column of type timestamp; `record_columns` together name a record.
    """
    check_window_ms(window_ms)
    time_ms = F.unix_millis(F.col(event_time))
    rows = table.groupBy(*record_columns, (time_ms - F.pmod(time_ms, F.lit(window_ms))).alias("window_start_ms"))
    counted = rows.agg(F.count(F.lit(1)).alias("copies"))
    return counted.groupBy("topic", "window_start_ms").agg(
        F.count(F.lit(1)).alias("records"), (F.sum("copies") - F.count(F.lit(1))).alias("duplicates")
    )
