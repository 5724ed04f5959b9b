"""Counts of tables: those that a Delta table's loads have committed, and those of its records themselves.

A commit is counted even if its process died: its counts are in the table's history.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ottla.audit.commits import load_counts
from ottla.audit.comparison import COMPARED_MS
from ottla.audit.topic import publish
from ottla.client.wire.cluster import Cluster
from ottla.model.limits import HOUR_MS
from ottla.model.windows import check_window_ms
from ottla.spark.errors import LakeError
from ottla.spark.lake.target import LakeTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LoadedTable:
    """`publish_counts` publishes those of the commits since the last call; the first time those of the last 28 days.

    A commit whose counts were published before, by any process, counts once.
    """

    def __init__(self, target: LakeTarget) -> None:
        self._target = target
        self._published_version = -1

    def publish_counts(self, cluster: Cluster, audit_topic: str) -> None:
        """Nothing where there is no table yet.  Raises ClientError, and LakeError for a table that cannot be read."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        url, options = self._target.url, self._target.storage_options
        try:
            if not DeltaTable.is_deltatable(url, options):
                return
            history = DeltaTable(url, storage_options=options).history()
            commits = [commit for commit in history if commit["version"] > self._published_version]
            # Older ones are not compared any more.
            since_ms = cluster.clock.now_ms() - COMPARED_MS
            recent = [commit for commit in commits if commit["timestamp"] >= since_ms]
            counts = [count for commit in recent for count in load_counts(url, commit, commit["timestamp"])]
        except (DeltaError, OSError, ValueError, KeyError) as error:
            raise LakeError(f"the loads of {url} cannot be read from its history: {error}") from error
        if counts:
            publish(cluster, counts, audit_topic)
        self._published_version = max([self._published_version, *(commit["version"] for commit in commits)])

    def tell(self, cluster: Cluster, audit_topic: str) -> None:
        """The name of `publish_counts` in earlier releases, for one more."""
        old_name = self.tell.__name__
        warnings.warn(
            f"LoadedTable.{old_name} is named publish_counts; the next release is without the old name",
            DeprecationWarning,
            stacklevel=2,
        )
        self.publish_counts(cluster, audit_topic)


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
