"""The rows that a stateful operator drops since they are late, as a side output.

Spark drops them silently and counts them (`numRowsDroppedByWatermark`).  Which they are is decided before a batch runs:
the log of offsets in the checkpoint (`LoggedBatch`) has the batch's range and the watermark that the operator compares
with.  So inside of `foreachBatch` the range is read a second time, and the rows below that watermark are kept, before
the batch is committed; a batch that runs again keeps the same rows again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.model.identifiers import indexes_by_topic
from ottla.spark.errors import BadCheckpoint, SparkOptionError
from ottla.spark.options.offset_spec import to_dict
from ottla.spark.registration import register_source
from ottla.spark.source.stream_plan import StreamOffsets, first_offsets, from_checkpoint

VERSION: Final = "v1"
_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """An entry of the log of offsets in a query's checkpoint.

    Spark writes the entry of a batch before it runs it, and the batch is the same whenever it runs again.  An entry is
    lines: the version of the form, the batch's metadata (`batchWatermarkMs`), and the end offset of each source, `-`
    for one that has none.  A stateful operator drops rows by the watermark of the entry *before* (0 for the first
    batch), and evicts by the batch's own; batches without data have entries, too.

    `ends`: of each source, in the order of the query; None where it has no offset.
    """

    watermark_ms: int
    ends: tuple[StreamOffsets | None, ...]


def parse_entry(text: str, name: str) -> LoggedBatch:
    """Raises `BadCheckpoint`; `name` is for its message."""
    version, _, rest = text.partition("\n")
    if version.strip() != VERSION:
        raise BadCheckpoint(f"{name} has the form {version.strip()[:20]!r}, and not {VERSION}", hint=_HINT)
    metadata, *offsets = rest.strip("\n").split("\n")
    try:
        watermark_ms = int(json.loads(metadata)["batchWatermarkMs"])
        ends = tuple(None if line == _NO_OFFSET else _ottla_offsets(json.loads(line)) for line in offsets)
    except (ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"{name} cannot be read: {error!r}", hint=_HINT) from None
    return LoggedBatch(watermark_ms, ends)


_HINT: Final = "late rows need a checkpoint of Spark 4 whose sources are format('ottla')"


def read_entry(spark: SparkSession, checkpoint: str, batch_id: int) -> LoggedBatch:
    """The entry of a batch that runs or has run.  Raises `BadCheckpoint`."""
    path = f"{checkpoint.rstrip('/')}/offsets/{batch_id}"
    try:
        rows = spark.read.text(path, wholetext=True).collect()
    except AnalysisException as error:
        raise BadCheckpoint(
            f"{path} cannot be read: {error.getCondition()}", hint="give the query's own checkpointLocation"
        ) from error
    if len(rows) != 1:
        raise BadCheckpoint(f"{path} is {len(rows)} files", hint="give the query's own checkpointLocation")
    return parse_entry(rows[0]["value"], path)


def _ottla_offsets(found: Any) -> StreamOffsets | None:
    if not isinstance(found, dict):
        raise TypeError(f"{str(found)[:80]} are no offsets of a topic")
    return from_checkpoint(found)


BatchFunction: TypeAlias = Callable[[DataFrame, int], None]
Prepare: TypeAlias = Callable[[DataFrame], DataFrame]
# Adds what the operator compares with its watermark, as the column `_ENDS`; may give several rows for one.
Lateness: TypeAlias = Callable[[DataFrame], DataFrame]

_ENDS: Final = "_late_ends"
_ALLOW_MULTIPLE: Final = "spark.sql.streaming.statefulOperator.allowMultiple"
# Of the source's options: those that say what is read of the topics.
_RANGE_OPTIONS: Final = frozenset(
    name.lower()
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "maxOffsetsPerPartition",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "groupId",
    )
)


def drops_rows(time: str) -> Lateness:
    """The rows that `dedup` and joins drop: their event time is not after the watermark."""
    return lambda rows: rows.withColumn(_ENDS, F.col(time))


def drops_windows(time: str, size: str, slide: str | None = None) -> Lateness:
    """The rows that `windowed` drops: their window ends not after the watermark.

    A row of overlapping windows is late for each that has ended; `window` says which.
    """

    def lateness(rows: DataFrame) -> DataFrame:
        window: Column = F.window(time, size) if slide is None else F.window(time, size, slide)
        return rows.select("*", window.alias("window")).withColumn(_ENDS, F.col("window.end"))

    return lateness


def drops_sessions(time: str, gap: str) -> Lateness:
    """The rows that `sessions` drops: a session of this row alone ends not after the watermark."""
    return lambda rows: rows.withColumn(_ENDS, F.expr(f"`{time}` + INTERVAL {gap}"))


class LateRows:
    """Gives the rows that a query's operator drops to `keep`, batch by batch.

        late = LateRows(
            {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "page-views"},
            prepare=views_of,
            drops=drops_windows("at", "5 minutes"),
            keep=lambda rows, batch_id: rows.write.format("ottla")...,
            checkpoint="checkpoints/views",
        )
        counts = windowed(late.stream(spark), "at", "5 minutes", by="page", delay="10 minutes").count()
        counts.writeStream.foreachBatch(late.each_batch(process)).option("checkpointLocation", "checkpoints/views")

    source      the options of the stream
    prepare     makes rows with an event time of the source's columns, row by row: the same rows each time it is asked
    drops       `drops_rows`, `drops_windows` or `drops_sessions`, with the arguments of the operator
    keep        called with the late rows of each batch that has any, and the batch's number
    checkpoint  the query's checkpointLocation
    input       which of the query's sources it is, from 0 on from left to right: of a join there are two, and one
                `LateRows` for each (`left.each_batch(right.each_batch(process))`)

    It is about the first stateful operator above the source (what follows it, `top_k` for example, has no late rows
    of its own).  `keep` runs before the batch is committed and, if the batch runs again, again with the
    same rows.  Each batch's range is read twice.
    Spark counts what its operator drops: rows for `dedup` and joins; for windows and sessions the groups into which a
    batch's rows were aggregated before they reached it.
    """

    def __init__(
        self,
        source: Mapping[str, str],
        *,
        prepare: Prepare,
        drops: Lateness,
        keep: BatchFunction,
        checkpoint: str,
        input: int = 0,
    ) -> None:
        self._source = dict(source)
        self._prepare = prepare
        self._drops = drops
        self._keep = keep
        self._checkpoint = str(checkpoint)
        self._input = input

    def stream(self, spark: SparkSession) -> DataFrame:
        """The stream of prepared rows, to be aggregated."""
        register_source(spark)
        return self._prepare(spark.readStream.format("ottla").options(**self._source).load())

    def each_batch(self, process: BatchFunction) -> BatchFunction:
        """A function for `foreachBatch`: late rows are kept, and `process` gets the operator's output."""

        def keep_and_process(batch: DataFrame, batch_id: int) -> None:
            late = self.of_batch(batch.sparkSession, batch_id)
            if late is not None:
                late = late.persist()
                try:
                    if not late.isEmpty():
                        self._keep(late, batch_id)
                finally:
                    late.unpersist()
            process(batch, batch_id)

        return keep_and_process

    def of_batch(self, spark: SparkSession, batch_id: int) -> DataFrame | None:
        """The rows that the operator drops in a batch that runs or has run; None when it has no rows at all.

        Raises `BadCheckpoint`, `SparkOptionError`.
        """
        if spark.conf.get(_ALLOW_MULTIPLE, "true") != "true":
            raise SparkOptionError(
                f"{_ALLOW_MULTIPLE} is false: operators then drop by another watermark", hint="leave it at true"
            )
        entry = read_entry(spark, self._checkpoint, batch_id)
        before = None if batch_id == 0 else read_entry(spark, self._checkpoint, batch_id - 1)
        if self._input >= len(entry.ends):
            raise SparkOptionError(
                f"input {self._input} of a query with {len(entry.ends)} sources", hint="count from 0"
            )
        end, known = entry.ends[self._input], None if before is None else before.ends[self._input]
        if end is None:
            return None
        rows = self._read(spark, known, end)
        if rows is None:
            return None
        watermark_ms = 0 if before is None else before.watermark_ms
        marked = self._drops(self._prepare(rows))
        return marked.where(F.col(_ENDS) <= F.timestamp_millis(F.lit(watermark_ms))).drop(_ENDS)

    def _read(self, spark: SparkSession, known: StreamOffsets | None, end: StreamOffsets) -> DataFrame | None:
        first, unknown = first_offsets(known, end)
        if unknown:
            raise BadCheckpoint(
                f"the checkpoint does not say where {min(unknown)} begins", hint="it is of an earlier version of ottla"
            )
        places = sorted(place for place in end.next_offsets if first[place] < end.next_offsets[place])
        if not places:
            return None
        options = {name: value for name, value in self._source.items() if name.lower() not in _RANGE_OPTIONS}
        options |= {
            "assign": json.dumps(dict(indexes_by_topic(places))),
            "startingOffsets": json.dumps(to_dict({place: first[place] for place in places})),
            "endingOffsets": json.dumps(to_dict({place: end.next_offsets[place] for place in places})),
        }
        return spark.read.format("ottla").options(**options).load()
