"""Spark jobs of a load: a function over its tasks, and their reports on the driver."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from ottla.spark.errors import DataLoss, LakeError, RecordsRefused
from ottla.spark.jvm import is_remote
from ottla.spark.lake.lake_table import DataFile
from ottla.spark.lake.target import LakeTarget
from ottla.spark.lake.tasks import REPORT_DDL, TaskReport, report_of, run_numbered
from ottla.spark.worker_import import advised

T = TypeVar("T")

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# More than any cluster runs at once.
_PARTITIONS_MAX: Final = 100_000
# Errors of a task that Spark gives as text.
_DATA_LOSS: Final = f"{DataLoss.__name__}: "
_REFUSED: Final = f"{RecordsRefused.__name__}: "

_ERROR_LINE: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Loss|TimedOut|Refused)): (.+)$", re.MULTILINE)


def master_of(spark: SparkSession) -> str:
    """Where the tasks run: `local[2]`, `spark://...`.

    A server of Spark Connect on another machine is one, wherever its own tasks run.
    """
    if not is_remote(spark):
        return spark.sparkContext.master or ""
    server = str(getattr(spark.client, "host", ""))
    return (spark.conf.get("spark.master") or "") if server in _LOOPBACK else f"sc://{server}"


def parallelism_of(spark: SparkSession) -> int:
    """How many tasks run at once."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    # Spark divides a range among all cores where no number is given.
    numbers = spark.range(_PARTITIONS_MAX).select(sql.spark_partition_id().alias("number"))
    return numbers.distinct().count()


def run_job(
    spark: SparkSession,
    run: Callable[[Iterable[T]], Iterator[TaskReport]],
    tasks: Sequence[T],
    *,
    slices_max: int | None = None,
) -> list[TaskReport]:
    """`slices_max`: small tasks share one of Spark's.  Raises a task's own error; `LakeError` where a task died."""
    slices_count = len(tasks) if slices_max is None else min(len(tasks), slices_max)
    with task_errors():
        if is_remote(spark):
            # Spark Connect has no RDDs: the tasks are the rows of a range, and their reports come back as rows.
            numbers = spark.range(0, len(tasks), 1, max(1, slices_count))
            rows = numbers.mapInArrow(advised(partial(run_numbered, run, tasks)), REPORT_DDL).collect()
            reports = [report_of(row["report"], row["schemas"]) for row in rows]
        else:
            shares = spark.sparkContext.parallelize(tasks, max(1, slices_count))
            reports = shares.mapPartitions(advised(run)).collect()
    return checked(reports)


def checked(reports: list[TaskReport]) -> list[TaskReport]:
    """Raises a task's own error."""
    for report in reports:
        if report.failure is not None:
            raise report.failure
    return reports


def check_files_are_seen(target: LakeTarget, files: Iterable[DataFile]) -> None:
    """Raises `LakeError` where tasks wrote local files on a machine, or in a container, whose disk is another one.

    The address of a server of Spark Connect does not show it: a forwarded port is on this machine, too.
    """
    for file in files:
        if target.is_local and not os.path.exists(f"{target.root}/{file.path}"):
            raise LakeError(
                f"Spark wrote {file.path}, which is not in {target.url} on this machine: the server writes elsewhere",
                hint="load into a place that both see, as s3://bucket/prefix, or without Spark Connect",
            )


@contextmanager
def task_errors() -> Iterator[None]:
    """Spark's errors become those of a load.  Raises a task's `DataLoss` and `RecordsRefused`, else `LakeError`."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        reason = reason_of(str(error))
        if reason.startswith(_DATA_LOSS):
            raise DataLoss(reason.removeprefix(_DATA_LOSS).removesuffix(f"; {DataLoss.hint}")) from error
        if reason.startswith(_REFUSED):
            # Its text has its hint.
            raise RecordsRefused(reason.removeprefix(_REFUSED)) from error
        raise LakeError(f"a task failed, nothing of it was committed: {reason}", hint="run the load again") from error


def reason_of(trace: str) -> str:
    """The error of a task in the trace that Spark shows."""
    found = _ERROR_LINE.findall(trace)
    ours = [f"{name}: {text}" for name, text in found if not name.startswith(("Spark", "Py4J", "Python"))]
    return ours[-1] if ours else next(iter(trace.splitlines()), "unknown")
