"""Spark jobs of a load: a function over its tasks, and their reports on the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.spark.errors import LakeError
from ottla.spark.lake.tasks import TaskReport
from ottla.spark.worker_import import advised

T = TypeVar("T")

_ERROR_LINE: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Loss|TimedOut|Refused)): (.+)$", re.MULTILINE)


def run_job(
    spark: SparkSession,
    run: Callable[[Iterable[T]], Iterator[TaskReport]],
    tasks: Sequence[T],
    *,
    slices_max: int | None = None,
) -> list[TaskReport]:
    """`slices_max`: small tasks share one of Spark's.  Raises a task's own error; `LakeError` where a task died."""
    slices_count = len(tasks) if slices_max is None else min(len(tasks), slices_max)
    try:
        shares = spark.sparkContext.parallelize(tasks, max(1, slices_count))
        reports: list[TaskReport] = shares.mapPartitions(advised(run)).collect()
    except (Py4JJavaError, PySparkException) as error:
        raise LakeError(
            f"a task failed, nothing of it was committed: {reason_of(str(error))}", hint="run the load again"
        ) from error
    for report in reports:
        if report.failure is not None:
            raise report.failure
    return reports


def reason_of(trace: str) -> str:
    """The error of a task in the trace that Spark shows."""
    found = _ERROR_LINE.findall(trace)
    ours = [f"{name}: {text}" for name, text in found if not name.startswith(("Spark", "Py4J", "Python"))]
    return ours[-1] if ours else next(iter(trace.splitlines()), "unknown")
