"""A stream that is written down as a function of a file, run from its checkpoint: what `ottla stream run` does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.model.errors import ConfigError, OttlaError
from ottla.runtime.installed import hint_for_missing
from ottla.spark.errors import BadCheckpoint, DataLoss, first_line
from ottla.spark.user_functions import load_function, trace_of

LOOK_EVERY_S: Final = 1
_MESSAGE_CHARS_MAX: Final = 2_000
# As Python's imports have it.
_NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The arguments of a job's function besides the session.

    options       the user's own
    connection    options of a source or a sink: `bootstrap`, and the file of the settings of security
    """

    bootstrap: str
    checkpoint: str
    options: Mapping[str, str] = field(default_factory=dict)
    connection: Mapping[str, str] = field(default_factory=dict)


JobFunction: TypeAlias = Callable[[SparkSession, JobSettings], DataStreamWriter]


@dataclass(slots=True)
class JobTotals:
    """Of the batches that were committed in this run.

    `late_rows` is Spark's count of what its operators dropped, `watermark` the last one, as Spark writes it.
    """

    batches: int = 0
    rows: int = 0
    late_rows: int = 0
    state_rows: int = 0
    rows_per_s: float = 0.0
    watermark: str | None = None


class JobFailed(OttlaError):
    """The stream ended with an error; committed batches stay, and a new run continues after them."""


def load_job(file_and_function: str) -> JobFunction:
    """`jobs/views.py:top_pages`.  Runs the file; raises `ConfigError` when it has no such function, or fails."""
    return load_function(file_and_function, "job")


def run_job(
    spark: SparkSession,
    function: JobFunction,
    settings: JobSettings,
    trigger: Mapping[str, Any],
    on_progress: Callable[[JobTotals], None],
) -> JobTotals:
    """Run the stream until it ends (`availableNow`), fails, or is interrupted.

    `trigger`: the arguments of `DataStreamWriter.trigger`; empty: a batch as soon as there is data.  `on_progress` is
    called at intervals.  After a KeyboardInterrupt the batch that runs is given up; it runs again the next time. Raises
    `ConfigError`, `JobFailed`.
    """
    try:
        writer = function(spark, settings)
    except OttlaError:
        raise
    except Exception as error:
        failed = JobFailed(
            f"the job's function failed: {type(error).__name__}: {first_line(error)[:_MESSAGE_CHARS_MAX]}",
            hint=_hint_of_import(str(error)) or "correct it",
        )
        failed.add_note(trace_of(error, __file__))
        raise failed from error
    if not isinstance(writer, DataStreamWriter):
        raise ConfigError(
            f"the job's function gave {type(writer).__name__}", hint="it returns df.writeStream..., not yet started"
        )
    writer = writer.option("checkpointLocation", settings.checkpoint)
    totals = JobTotals()
    last_batch = -1
    try:
        query = (writer.trigger(**trigger) if trigger else writer).start()
    except PySparkException as error:
        raise JobFailed(f"the stream does not start: {str(error)[:_MESSAGE_CHARS_MAX]}") from error
    try:
        while not query.awaitTermination(LOOK_EVERY_S):
            last_batch = _count(query, totals, last_batch)
            on_progress(totals)
    except KeyboardInterrupt:
        pass
    except StreamingQueryException as error:
        message = str(error)
        raise JobFailed(f"the stream failed: {message[:_MESSAGE_CHARS_MAX]}", hint=_hint_of(message)) from error
    finally:
        query.stop()
    _count(query, totals, last_batch)
    return totals


def _hint_of(message: str) -> str:
    """Spark gives the error of a task as text."""
    # Their traces may also name a module that was missing before, and is not the cause.
    if DataLoss.__name__ in message:
        return (
            "the checkpoint names records that are lost, so every run from it fails: set failOnDataLoss to false at "
            "the job's source, or start with another checkpoint"
        )
    if BadCheckpoint.__name__ in message:
        return "start with another checkpoint"
    if (install := _hint_of_import(message)) is not None:
        return install
    return "a new run continues from the checkpoint"


def _hint_of_import(message: str) -> str | None:
    found = _NO_MODULE.search(message)
    return None if found is None else hint_for_missing(found[1])


def _count(query: StreamingQuery, totals: JobTotals, last_batch: int) -> int:
    """Add the batches after `last_batch`; the last one now.

    Spark keeps the last hundred batches (`spark.sql.streaming.numRecentProgressUpdates`).
    """
    for progress in query.recentProgress:
        totals.watermark = progress.eventTime.get("watermark", totals.watermark)
        totals.state_rows = sum(each.numRowsTotal for each in progress.stateOperators)
        if progress.batchId <= last_batch or "addBatch" not in progress.durationMs:
            continue
        last_batch = progress.batchId
        totals.batches += 1
        totals.rows += progress.numInputRows
        totals.late_rows += sum(each.numRowsDroppedByWatermark for each in progress.stateOperators)
        totals.rows_per_s = progress.processedRowsPerSecond
    return last_batch
