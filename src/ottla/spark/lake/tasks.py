"""A load's task: reads its offset ranges, makes rows of the records, and writes them to files, all without Java.

The driver gets a report of each task, small enough for any number of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import OttlaError, details_of
from ottla.model.identifiers import NO_TIMESTAMP
from ottla.model.windows import DEFAULT_WINDOW_MS, check_window_ms
from ottla.spark.errors import ColumnsRefused, CorruptRecords, DataLoss, LakeError, RecordsRefused, TableRefused
from ottla.spark.lake.change_files import ChangeFiles, ChangeForm
from ottla.spark.lake.changes import UpsertRule, without_marks
from ottla.spark.lake.columns import conformed, grown, new_columns, stored_type
from ottla.spark.lake.files import TARGET_FILE_BYTES, LakeFiles
from ottla.spark.lake.lake_table import ColumnBounds, DataFile
from ottla.spark.lake.offset_runs import OffsetsByPartition, is_among
from ottla.spark.lake.refusals import LetterTarget, RefusedRecords
from ottla.spark.lake.rows import EVENT_TIME, TOPIC_ID, RowShape, ids_of, partitioned, refuse_empty_texts
from ottla.spark.lake.target import LakeTarget
from ottla.spark.options.read_options import ReadOptions
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.range_reading import read_task, task_of
from ottla.spark.worker_heap import settle_heap

T = TypeVar("T")

_US_PER_MS: Final = 1_000


def window_counts(timestamps: pa.Array | pa.ChunkedArray, window_ms: int = DEFAULT_WINDOW_MS) -> dict[int, int]:
    """How many of the timestamps (Arrow `timestamp[us]`) are in each window, by the window's start in ms.

    A null is a record without a time: it counts as the time -1 ms, as in Kafka.
    """
    check_window_ms(window_ms)
    chunks = timestamps.chunks if isinstance(timestamps, pa.ChunkedArray) else [timestamps]
    found: dict[int, int] = {}
    for chunk in chunks:
        if len(chunk):
            for start_ms, count in _counts(chunk, window_ms):
                found[start_ms] = found.get(start_ms, 0) + count
    return found


def _counts(chunk: pa.Array, window_ms: int) -> list[tuple[int, int]]:
    numbers: Any = chunk.cast(pa.int64()).fill_null(NO_TIMESTAMP * _US_PER_MS).to_numpy(zero_copy_only=False)
    # Floor division, also before 1970.
    windows = numbers // (window_ms * _US_PER_MS)
    first = int(windows[0])
    if (windows == first).all():
        return [(first * window_ms, len(numbers))]
    starts, counts = np.unique(windows, return_counts=True)
    return [(int(start) * window_ms, int(count)) for start, count in zip(starts, counts, strict=True)]


Counts: TypeAlias = dict[str, dict[int, int]]


class Stage(StrEnum):
    """Where a load is: on the driver, and in a task.  Tests stop a process at each."""

    PLANNED = "planned"
    TASK_BEGAN = "task began"
    TASK_WROTE = "task wrote"
    APPLYING = "applying"
    APPLY_BEGAN = "apply began"
    APPLY_WROTE = "apply wrote"
    WRITTEN = "written"
    COMMITTING = "committing"
    COMMITTED = "committed"


def no_observer(_stage: Stage) -> None:
    """The default observer of a load's stages."""


@dataclass(frozen=True, slots=True)
class TaskJob:
    """What all tasks of a load have in common; pickled with each.  `offsets`: those that are kept; None: all.

    `upserts`: the tasks write the changes that may count, in the form `changes`, for `apply_changes`.  `letters`: where
    records go that are refused; None: the load fails at the first one.  `columns`: those of the table when the load was
    planned; `widens`: whether these may get a wider type.

    `takes_empty_partitions`: whether an empty text may partition the table.
    """

    options: ReadOptions
    shape: RowShape
    target: LakeTarget
    partition_by: tuple[str, ...]
    topic_ids: Mapping[str, str]
    target_file_bytes: int = TARGET_FILE_BYTES
    offsets: OffsetsByPartition | None = None
    upserts: UpsertRule | None = None
    changes: ChangeForm = ChangeForm.CHANGES
    at: Callable[[Stage], None] = no_observer
    letters: LetterTarget | None = None
    columns: pa.Schema | None = None
    widens: bool = True
    takes_empty_partitions: bool = True

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Of the source; a letter has its record's headers."""
        columns = self.shape.read_columns
        return columns if self.letters is None or "headers" in columns else (*columns, "headers")


@dataclass(frozen=True, slots=True)
class TaskReport:
    """`counts`: records by topic id and start of the window of their timestamp.  `read_bytes`: of the records,
    in memory.  `removed`: the table's files that `files` replace.  `only_adds`: no row of the table, nor an earlier
    change of the same commit, had a key of these rows.  `refused`: records that are dead letters, by the reason.

    `failure` is the user's or the log's: to repeat the task would not help.
    """

    files: tuple[DataFile, ...] = ()
    counts: Counts = field(default_factory=dict)
    read_bytes: int = 0
    removed: tuple[DataFile, ...] = ()
    only_adds: bool = False
    failure: OttlaError | None = None
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def records_count(self) -> int:
        return sum(sum(windows.values()) for windows in self.counts.values())


def run_ranges(job: TaskJob, tasks: Iterable[tuple[OffsetRange, ...]]) -> Iterator[TaskReport]:
    """The function that Spark maps over the shares of a load."""
    settle_heap()
    for ranges in tasks:
        reading = task_of(job.options, job.read_columns, ranges)
        yield _reported(job, ((batch, None) for batch in read_task(reading)))


def run_numbered(
    run: Callable[[Iterable[T]], Iterator[TaskReport]], tasks: Sequence[T], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`run` over those of the tasks whose numbers the batches have, as a column."""
    own = (tasks[number] for batch in batches for number in batch.column(0).to_pylist())
    for report in run(own):
        yield report_batch(report)


def run_batches(job: TaskJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same over records that Spark has read, with the event times that it has computed."""
    report = _reported(job, ((batch, batch.column(EVENT_TIME)) for batch in batches))
    yield report_batch(report)


def _reported(job: TaskJob, batches: Iterable[tuple[pa.RecordBatch, pa.Array | None]]) -> TaskReport:
    job.at(Stage.TASK_BEGAN)
    try:
        report = _written(job, batches)
    except (LakeError, DataLoss, CorruptRecords) as failure:
        return TaskReport(failure=failure)
    job.at(Stage.TASK_WROTE)
    return report


def _written(job: TaskJob, batches: Iterable[tuple[pa.RecordBatch, pa.Array | None]]) -> TaskReport:
    form = ChangeForm.ROWS if job.upserts is None else job.changes
    files = LakeFiles(job.target, job.partition_by, job.target_file_bytes, compression=form.compression)
    changes = None if job.upserts is None else ChangeFiles(files, job.upserts, form=form)
    counts: Counts = {}
    read_bytes = 0
    # The table's columns, and those of the rows that were stored.
    known = pa.schema([]) if job.columns is None else job.columns

    def store(batch: pa.RecordBatch, times: pa.Array | None) -> None:
        nonlocal known
        # What refuses records comes first.
        rows = job.shape.rows(batch, job.topic_ids, times)
        if job.columns is not None:
            rows = conformed(rows, known, job.partition_by if job.upserts is None else job.upserts.lookup_columns)
        if job.upserts is None:
            rows = partitioned(rows, known, job.partition_by)
            if not job.takes_empty_partitions:
                refuse_empty_texts(rows, job.partition_by)
        # Here the records of another type are known; the commit, and changes that are joined, have only columns.
        with_these = grown(known, new_columns(known, [_stored_schema(rows, job.partition_by)], widens=job.widens))
        if changes is None:
            files.add(without_marks(rows))
        else:
            changes.add(rows, batch.column("value"))
        known = with_these
        _count(batch, job.topic_ids, counts)

    with RefusedRecords(job.letters) as refused:
        for batch, times in batches:
            if job.offsets is not None:
                batch = kept(batch, job.offsets, job.topic_ids)
            if not batch.num_rows:
                continue
            read_bytes += batch.nbytes
            refused.take(batch, times, store)
    written = (files if changes is None else changes).close()
    return TaskReport(tuple(written), counts, read_bytes, refused=refused.counts)


def _stored_schema(rows: pa.Table, partition_by: Sequence[str]) -> pa.Schema:
    """Of the rows in a file; columns that partition the table are not in it."""
    return pa.schema(
        [
            pa.field(each.name, stored_type(each.name, each.type))
            for each in without_marks(rows).schema
            if each.name not in partition_by
        ]
    )


def kept(batch: pa.RecordBatch, offsets: OffsetsByPartition, topic_ids: Mapping[str, str]) -> pa.RecordBatch:
    """The records of these offsets."""
    places = pa.RecordBatch.from_arrays(
        [ids_of(batch.column("topic"), topic_ids), batch.column("partition"), batch.column("offset")],
        names=[TOPIC_ID, "partition", "offset"],
    )
    return batch.filter(pa.array(is_among(places, offsets)))


def _count(batch: pa.RecordBatch, topic_ids: Mapping[str, str], counts: Counts) -> None:
    """By the records' timestamps, as brokers and producers count them."""
    topics = pc.unique(batch.column("topic")).to_pylist()
    for topic in topics:
        times = batch.column("timestamp")
        if len(topics) > 1:
            times = times.filter(pc.equal(batch.column("topic"), topic))
        add_counts(counts, {topic_ids[topic]: window_counts(times)})


def add_counts(total: Counts, more: Counts) -> None:
    for topic_id, windows in more.items():
        known = total.setdefault(topic_id, {})
        for start_ms, count in windows.items():
            known[start_ms] = known.get(start_ms, 0) + count


# The report as a row of Spark, where it comes through Java.
REPORT_DDL: Final = "report string, schemas array<binary>"


def report_batch(report: TaskReport) -> pa.RecordBatch:
    files, removed = (
        [
            [file.path, dict(file.partition), file.size_bytes, file.rows_count, _bounds_json(file.bounds)]
            for file in each
        ]
        for each in (report.files, report.removed)
    )
    counts = {topic: [[start, count] for start, count in windows.items()] for topic, windows in report.counts.items()}
    found: dict[str, Any] = {"files": files, "removed": removed, "counts": counts, "bytes": report.read_bytes}
    found |= {"only_adds": report.only_adds, "refused": dict(report.refused)}
    if report.failure is not None:
        found["failure"] = _failure_json(report.failure)
    text = json.dumps(found)
    schemas = [file.schema.serialize().to_pybytes() for file in (*report.files, *report.removed)]
    return pa.RecordBatch.from_arrays(
        [pa.array([text]), pa.array([schemas], pa.list_(pa.binary()))], names=["report", "schemas"]
    )


def report_of(text: str, schemas: Iterable[bytes]) -> TaskReport:
    found = json.loads(text)
    files = [
        DataFile(path, partition, size, rows, pa.ipc.read_schema(pa.py_buffer(schema)), _bounds_of(bounds))
        for (path, partition, size, rows, bounds), schema in zip(
            [*found["files"], *found["removed"]], schemas, strict=True
        )
    ]
    counts = {topic: dict(windows) for topic, windows in found["counts"].items()}
    added_count = len(found["files"])
    failure = _failure_of(**found["failure"]) if "failure" in found else None
    return TaskReport(
        tuple(files[:added_count]),
        counts,
        found["bytes"],
        tuple(files[added_count:]),
        found["only_adds"],
        failure,
        found["refused"],
    )


# What a task reports; another error makes Spark run it again.
_FAILURES: Final[Mapping[str, type[OttlaError]]] = {
    kind.__name__: kind for kind in (LakeError, TableRefused, RecordsRefused, ColumnsRefused, DataLoss, CorruptRecords)
}


def _failure_json(failure: OttlaError) -> dict[str, Any]:
    """An error with its notes, so that both sessions raise the same."""
    place = [failure.topic, failure.partition, failure.offset] if isinstance(failure, CorruptRecords) else []
    return {
        "kind": next(kind.__name__ for kind in type(failure).__mro__ if kind.__name__ in _FAILURES),
        "place": place,
        "problem": failure.problem if isinstance(failure, CorruptRecords) else failure.args[0],
        "hint": failure.hint,
        "reason": failure.reason if isinstance(failure, RecordsRefused) else None,
        "first": failure.place if isinstance(failure, RecordsRefused) else None,
        "notes": details_of(failure),
    }


def _failure_of(
    kind: str,
    place: list[Any],
    problem: str,
    hint: str | None,
    reason: str | None,
    first: tuple[str, int, int] | None,
    notes: list[str],
) -> OttlaError:
    failure = CorruptRecords(place[0], place[1], place[2], problem) if place else _FAILURES[kind](problem, hint=hint)
    if isinstance(failure, RecordsRefused) and reason is not None:
        failure.reason = reason
        failure.place = None if first is None else (first[0], first[1], first[2])
    for note in notes:
        failure.add_note(note)
    return failure


def _bounds_json(bounds: Mapping[str, ColumnBounds]) -> dict[str, list[int | None]]:
    return {name: [each.nulls_count, each.least, each.most] for name, each in bounds.items()}


def _bounds_of(found: Mapping[str, list[int]]) -> dict[str, ColumnBounds]:
    return {name: ColumnBounds(*each) for name, each in found.items()}
