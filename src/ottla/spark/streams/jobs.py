"""A stream that is written down as a function of a file, run from its checkpoint: what `ottla stream run` does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark import cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.model.errors import ConfigError, OttlaError
from ottla.model.nearest import nearest_name
from ottla.spark.errors import BadCheckpoint, DataLoss

# The name of the job's module: its functions go to Spark's workers by value, so these need not have the file.
MODULE: Final = "ottla_stream_job"
LOOK_EVERY_S: Final = 1
_MESSAGE_CHARS_MAX: Final = 2_000


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
    """`jobs/views.py:top_pages`.  Runs the file; raises `ConfigError` when it has no such function."""
    path_text, _, name = file_and_function.rpartition(":")
    if not path_text or not name.isidentifier():
        raise ConfigError(f"{file_and_function!r} names no job", hint="write FILE.py:function")
    path = Path(path_text)
    spec = spec_from_file_location(MODULE, path, loader=SourceFileLoader(MODULE, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[MODULE] = module
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        spec.loader.exec_module(module)
    except (OSError, SyntaxError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        own = [each for each, value in vars(module).items() if getattr(value, "__module__", None) == MODULE]
        nearest = nearest_name(name, own)
        raise ConfigError(
            f"{path} has no function {name!r}", hint=f"did you mean {nearest}?" if nearest else "it must be a `def`"
        )
    found: JobFunction = function
    return found


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
    writer = function(spark, settings)
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
    if DataLoss.__name__ in message:
        return (
            "the checkpoint names records that are lost, so every run from it fails: set failOnDataLoss to false at "
            "the job's source, or start with another checkpoint"
        )
    if BadCheckpoint.__name__ in message:
        return "start with another checkpoint"
    return "a new run continues from the checkpoint"


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
