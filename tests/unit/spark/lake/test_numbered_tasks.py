"""Tasks that are rows of a range, as they run with Spark Connect: which of them a worker runs, and what it reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from ottla.model.errors import OttlaError
from ottla.spark.errors import DataLoss, LakeError, RecordsRefused
from ottla.spark.jvm import is_remote
from ottla.spark.lake.lake_table import ColumnBounds, DataFile
from ottla.spark.lake.spark_jobs import check_files_are_seen, run_job, task_errors
from ottla.spark.lake.target import parse_target
from ottla.spark.lake.tasks import REPORT_DDL, TaskReport, report_batch, report_of, run_numbered


def a_file(name: str) -> DataFile:
    schema = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    return DataFile(name, {"topic": "clicks", "event_hour": None}, 10, 2, schema, {"offset": ColumnBounds(0, 3, 4)})


def run(tasks: Iterable[str]) -> Iterator[TaskReport]:
    for task in tasks:
        yield TaskReport((a_file(task),), {"id": {0: 2}}, 30, (a_file(f"old {task}"),))


class RemoteRows:
    """The rows of a range, divided among workers."""

    def __init__(self, shares: list[list[int]]) -> None:
        self._shares = shares

    def mapInArrow(self, function: Any, ddl: str) -> RemoteRows:
        assert ddl == REPORT_DDL
        self._function = cloudpickle.loads(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
        return self

    def collect(self) -> list[dict[str, Any]]:
        batches = [pa.RecordBatch.from_pydict({"id": share}) for share in self._shares]
        try:
            return [row for each in batches for answer in self._function(iter([each])) for row in answer.to_pylist()]
        except OttlaError as error:
            # The client gets the text of the worker's traceback.
            trace = f"Traceback (most recent call last):\nottla.spark.errors.{type(error).__name__}: {error}\n"
            raise PySparkException(trace) from error


class RemoteSession:
    """As much of a session of Spark Connect as a job needs."""

    def range(self, start: int, end: int, step: int, partitions: int) -> RemoteRows:
        numbers = list(range(start, end, step))
        return RemoteRows([numbers[index::partitions] for index in range(partitions)])


RemoteSession.__module__ = "pyspark.sql.connect.session"


def test_report_comes_back_from_its_row_as_it_was() -> None:
    [report] = run(["a"])
    row = report_batch(report).to_pylist()[0]
    assert report_of(row["report"], row["schemas"]) == report


def test_worker_runs_the_tasks_whose_numbers_it_has() -> None:
    batches = [pa.RecordBatch.from_pydict({"id": numbers}) for numbers in ([2], [0])]
    rows = [row for batch in run_numbered(run, ["a", "b", "c"], batches) for row in batch.to_pylist()]
    assert [report_of(row["report"], row["schemas"]).files[0].path for row in rows] == ["c", "a"]


def test_job_of_a_remote_session_gives_the_report_of_each_task() -> None:
    spark: Any = RemoteSession()
    assert is_remote(spark)
    reports = run_job(spark, run, ["a", "b", "c"], slices_max=2)
    assert sorted(report.files[0].path for report in reports) == ["a", "b", "c"]


def lossy(tasks: Iterable[str]) -> Iterator[TaskReport]:
    for _ in tasks:
        yield TaskReport(failure=DataLoss("clicks-0: offsets 3 to 7 are gone"))


def test_failure_of_a_task_is_raised_as_it_is() -> None:
    spark: Any = RemoteSession()
    with pytest.raises(DataLoss) as raised:
        run_job(spark, lossy, ["a"])
    # With its hint once.
    assert str(raised.value) == str(DataLoss("clicks-0: offsets 3 to 7 are gone"))


def refused(tasks: Iterable[str]) -> Iterator[TaskReport]:
    for _ in tasks:
        yield TaskReport(failure=RecordsRefused("the record at offset 3 has no 'id'", hint="let decode give it"))


def test_refusal_of_records_is_raised_as_it_is() -> None:
    spark: Any = RemoteSession()
    with pytest.raises(RecordsRefused) as raised:
        run_job(spark, refused, ["a"])
    assert str(raised.value) == "the record at offset 3 has no 'id'; let decode give it"


def test_errors_of_spark_are_those_of_a_load() -> None:
    with pytest.raises(DataLoss, match="offsets 3 to 7 are gone"), task_errors():
        raise PySparkException("Traceback:\nottla.spark.errors.DataLoss: clicks-0: offsets 3 to 7 are gone\n")
    with pytest.raises(LakeError, match="nothing of it was committed: the executor was lost"), task_errors():
        raise PySparkException("the executor was lost")


def test_files_that_a_server_wrote_elsewhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    check_files_are_seen(parse_target(tmp_path), [a_file("a")])
    with pytest.raises(LakeError, match=r"Spark wrote b, which is not in .* on this machine: the server writes elsewh"):
        check_files_are_seen(parse_target(tmp_path), [a_file("a"), a_file("b")])
