"""Joins: of two streams where their event times are close, and of a stream with a table that changes.

A compacted topic is such a table: the newest record of each key, as it is when a batch starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.client.fetching.offsets import log_ranges
from ottla.model.identifiers import TopicPartition
from ottla.spark.checkpointed_rows import CheckpointedRows, retry_lost_rows
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.connection import connection_of
from ottla.spark.options.offset_spec import to_dict
from ottla.spark.registration import register_source
from ottla.spark.source.cluster_view import open_cluster

Prepare: TypeAlias = Callable[[DataFrame], DataFrame]
TableFunction: TypeAlias = Callable[[DataFrame, DataFrame, int], None]

_RECORD: Final = ("value", "timestamp", "partition", "offset")


class ChangingTable:
    """The newest record of each key of a topic; a record with a null value deletes its key.

        members = ChangingTable("localhost:9092", "members", member_of)

        def process(views, members, batch_id):
            views.join(members, "member", "left_outer").write...

        views.writeStream.foreachBatch(members.each_batch(process))

    `prepare` makes the table's rows of records (columns key, value, timestamp, partition, offset); deleted keys are not
    in them.  `options` are further options of the source, those of security among them.

    Each batch sees everything that the topic had when it started: so an update or a delete is seen by the next batch.
    The rows are kept by Spark's executors, and only what is new is read.  When an executor died with rows of it the
    batch is run again at once; then, after a batch that failed, and in another Spark application, the topic is read
    from its start.  A batch that runs again may see a newer table than before; the table that a batch gets is for that
    batch only.  Keys keep their partition: do not add partitions to such a topic.
    """

    def __init__(
        self, bootstrap: str, topic: str, prepare: Prepare | None = None, *, options: Mapping[str, str] | None = None
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._prepare: Prepare = prepare or (lambda rows: rows)
        self._options = dict(options or {})
        self._topic_id: UUID | None = None
        self._next_offsets: dict[TopicPartition, int] = {}
        # The newest record of each key, deleted ones too until the next batch.
        self._newest: CheckpointedRows | None = None
        # Whether others than the batch that it was made for may read it.
        self._is_given_out = False
        self._application = ""

    def each_batch(self, process: TableFunction) -> Callable[[DataFrame, int], None]:
        """A function for `foreachBatch`: `process(batch, table, batch_id)`."""

        def once(batch: DataFrame, batch_id: int) -> None:
            try:
                process(batch, self._table(batch.sparkSession), batch_id)
            except BaseException:
                # Perhaps since rows of the table are lost.
                self._forget()
                raise

        return lambda batch, batch_id: retry_lost_rows(lambda: once(batch, batch_id))

    def now(self, spark: SparkSession) -> DataFrame:
        """The table as it is now; it stays as it is when the topic changes.  Raises the client's errors."""
        try:
            table = self._table(spark)
        except BaseException:
            self._forget()
            raise
        self._is_given_out = True
        return table

    def _forget(self) -> None:
        self._newest, self._next_offsets = None, {}

    def _table(self, spark: SparkSession) -> DataFrame:
        former = self._newest
        if self._application != spark.sparkContext.applicationId:
            # The executors that kept it are gone.
            self._forget()
            former, self._application = None, spark.sparkContext.applicationId
        with open_cluster(connection_of(self._bootstrap, self._options)) as cluster:
            topic = cluster.topic(self._topic)
            logs = log_ranges(cluster, [TopicPartition(self._topic, number) for number in topic.partitions])
        if topic.topic_id != self._topic_id or any(
            not log.start <= self._next_offsets.get(place, log.start) <= log.stop for place, log in logs.items()
        ):
            # Another topic, or one that has lost what was not read yet: from its start.
            self._forget()
        self._topic_id = topic.topic_id
        first = {place: self._next_offsets.get(place, log.start) for place, log in logs.items()}
        ends = {place: log.stop for place, log in logs.items()}
        if self._newest is None or first != ends:
            self._newest = self._merged(spark, first, ends)
            self._next_offsets = ends
            if former is not None and not self._is_given_out:
                former.release()
            self._is_given_out = False
        return self._prepare(self._newest.rows.where(F.col("value").isNotNull()))

    def _merged(
        self, spark: SparkSession, first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> CheckpointedRows:
        register_source(spark)
        assign = {self._topic: sorted(place.partition for place in ends)}
        options = {
            **self._options,
            "kafka.bootstrap.servers": self._bootstrap,
            "assign": json.dumps(assign),
            "startingOffsets": json.dumps(to_dict(first)),
            "endingOffsets": json.dumps(to_dict(ends)),
        }
        rows = spark.read.format("ottla").options(**options).load().select("key", *_RECORD)
        if self._newest is not None:
            rows = self._newest.rows.where(F.col("value").isNotNull()).unionByName(rows)
        newest = (
            rows.where(F.col("key").isNotNull())
            .groupBy("key")
            .agg(F.max_by(F.struct(*_RECORD), "offset").alias("_record"))
        )
        # Its own rows, so that the plan does not grow by each batch.
        return CheckpointedRows(newest.select("key", "_record.*"))


How: TypeAlias = Literal["inner", "left_outer", "right_outer", "full_outer", "left_semi"]
_RIGHT: str = "_right_{}"


def join_within(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    *,
    times: tuple[str, str],
    after: str,
    before: str = "0 seconds",
    delays: tuple[str, str] | None = None,
    how: How = "inner",
) -> DataFrame:
    """Rows of both with equal `on`, where the right one's time is from `before` before to `after` after the left one's.

        streams.join_within(
            impressions, clicks, "impression_id", times=("shown_at", "clicked_at"),
            after="10 minutes", delays=("5 minutes", "5 minutes"), how="left_outer",
        )

    times   the event times of the left and of the right rows
    delays  how late rows of each may be; None: both have watermarks.  They bound the state, and decide when a row
            without a partner is emitted (outer joins)

    Both inclusive.  The columns are those of the left and the others of the right; besides `on` no name is in both.
    Spark's watermark is that of the input which is behind (`spark.sql.streaming.multipleWatermarkPolicy`).
    """
    keys = [on] if isinstance(on, str) else list(on)
    left_time, right_time = times
    twice = sorted(set(left.columns) & set(right.columns) - set(keys))
    if twice:
        raise SparkOptionError(f"both sides have {', '.join(twice)}", hint="rename them on one side")
    if delays is not None:
        left, right = left.withWatermark(left_time, delays[0]), right.withWatermark(right_time, delays[1])
    for key in keys:
        right = right.withColumnRenamed(key, _RIGHT.format(key))
    is_close = F.expr(
        f"`{right_time}` >= `{left_time}` - INTERVAL {before} AND `{right_time}` <= `{left_time}` + INTERVAL {after}"
    )
    condition = is_close
    for key in keys:
        condition = condition & (F.col(key) == F.col(_RIGHT.format(key)))
    joined = left.join(right, condition, how)
    if how == "left_semi":
        return joined
    for key in keys:
        # Of a right row without a partner the left key is null.
        joined = joined.withColumn(key, F.coalesce(key, _RIGHT.format(key))).drop(_RIGHT.format(key))
    return joined
