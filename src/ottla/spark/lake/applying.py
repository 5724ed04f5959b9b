"""An upsert's second task: the changes of one bucket, and the table's files of it, become new files.

A file is rewritten when one of its rows changes, and stays as it is otherwise.  In memory are the bucket's changes, and
one batch of a file's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.spark.errors import LakeError
from ottla.spark.lake.change_files import ChangeForm, joined
from ottla.spark.lake.changes import (
    BUCKET,
    CURRENT,
    DELETED,
    NONE,
    Decision,
    Indices,
    KeyChanges,
    UpsertRule,
    indices_of,
    key_column,
)
from ottla.spark.lake.columns import with_columns
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.lake_table import DataFile
from ottla.spark.lake.target import LakeTarget
from ottla.spark.lake.tasks import Stage, TaskReport, no_observer
from ottla.spark.lake.versions import changes_of, closed
from ottla.spark.worker_heap import settle_heap

# The values of the column `current`, as tables keep them.
PRESENT: Final = "true"
PAST: Final = "false"
# Files of changes become the table's from this size on: a commit of a few rows must not add a file of each task.
KEPT_FILE_BYTES_MIN: Final = 1 << 20
_ROWS_AT_ONCE: Final = 100_000


@dataclass(frozen=True, slots=True)
class ApplyJob:
    """What the tasks have in common.  `schema`: the table's columns after the commit, but those that partition it.

    `form`: of the files of changes.
    """

    target: LakeTarget
    rule: UpsertRule
    schema: pa.Schema
    target_file_bytes: int
    at: Callable[[Stage], None] = no_observer
    form: ChangeForm = ChangeForm.CHANGES


@dataclass(frozen=True, slots=True)
class BucketTask:
    """`changes`: files of changes, at least one.  `files`: all that the table has of the bucket, without the past."""

    bucket: int
    changes: tuple[DataFile, ...]
    files: tuple[DataFile, ...]


def apply_changes(job: ApplyJob, tasks: Iterable[BucketTask]) -> Iterator[TaskReport]:
    """The function that Spark maps over the buckets."""
    settle_heap()
    for task in tasks:
        job.at(Stage.APPLY_BEGAN)
        try:
            report = _applied(job, task)
        except LakeError as failure:
            yield TaskReport(failure=failure)
            continue
        job.at(Stage.APPLY_WROTE)
        yield report


def _applied(job: ApplyJob, task: BucketTask) -> TaskReport:
    if job.form is ChangeForm.ROWS and _are_large(task.changes) and _only_adds(job, task):
        return TaskReport(task.changes, only_adds=True)
    changes = changes_of(joined(rows for file in task.changes for rows in _batches(job.target, file)), job.rule)
    matched, stored = _matches(job, task.files, changes.keys)
    decision = changes.decide(stored)
    replaced = [file for file, found in matched if decision.is_changed[found].any()]
    writers = _Writers(job, task.bucket)
    for file in replaced:
        for rows in _batches(job.target, file):
            _rewrite(job, rows, changes.keys, decision, writers)
    new = decision.rows
    # Files of the form `ROWS` that have no deletion have no such column.
    if job.rule.sequence_by is None and DELETED in new.schema.names:
        new = new.filter(pc.invert(pc.fill_null(new.column(DELETED), False)))
    writers.present.add(with_columns(new, job.schema))
    if decision.past is not None:
        writers.past.add(with_columns(decision.past, job.schema))
    only_adds = not matched and isinstance(changes, KeyChanges) and changes.are_of_distinct_keys
    return TaskReport(writers.close(), removed=tuple(replaced), only_adds=only_adds)


def _are_large(files: Sequence[DataFile]) -> bool:
    """Small files of several tasks become one, which costs little."""
    return len(files) == 1 or sum(file.size_bytes for file in files) >= KEPT_FILE_BYTES_MIN * len(files)


def _only_adds(job: ApplyJob, task: BucketTask) -> bool:
    """Whether each change is of another key, and of one that the table does not have: its columns of keys decide."""
    if job.rule.sequence_by is None and any(DELETED in file.schema.names for file in task.changes):
        return False
    keys = pa.chunked_array(
        [key_column(rows, job.rule.keys) for file in task.changes for rows in _batches(job.target, file, job.rule.keys)]
    )
    distinct = pc.unique(keys)
    return len(distinct) == len(keys) and not _matches(job, task.files, distinct)[0]


class _Writers:
    """Of the bucket's rows; in a table with a history those of the past are in other files."""

    def __init__(self, job: ApplyJob, bucket: int) -> None:
        self._partitions = [{BUCKET: str(bucket)}]
        if job.rule.keeps_history:
            self._partitions = [{BUCKET: str(bucket), CURRENT: value} for value in (PRESENT, PAST)]
        self._writers = [
            LakeFiles(job.target, (), job.target_file_bytes, directory=partition) for partition in self._partitions
        ]

    @property
    def present(self) -> LakeFiles:
        return self._writers[0]

    @property
    def past(self) -> LakeFiles:
        return self._writers[1]

    def close(self) -> tuple[DataFile, ...]:
        return tuple(
            replace(file, partition=partition)
            for writer, partition in zip(self._writers, self._partitions, strict=True)
            for file in writer.close()
        )


def _rewrite(job: ApplyJob, rows: pa.Table, keys: pa.Array, decision: Decision, writers: _Writers) -> None:
    if not _has_keys(rows, job.rule):
        writers.present.add(with_columns(rows, job.schema))
        return
    found = indices_of(key_column(rows, job.rule.keys), keys)
    goes = (found != NONE) & decision.is_changed[found]
    writers.present.add(with_columns(rows.filter(pa.array(~goes)), job.schema))
    if decision.ends is not None and goes.any():
        ended = with_columns(rows.filter(pa.array(goes)), job.schema)
        writers.past.add(closed(ended, decision.ends.take(pa.array(found[goes]))))


def _matches(
    job: ApplyJob, files: Iterable[DataFile], keys: pa.Array
) -> tuple[list[tuple[DataFile, Indices]], pa.Array | None]:
    """The files that have rows of changed keys, each with the indices of these keys; and by key the stored sequence."""
    rule = job.rule
    matched: list[tuple[DataFile, Indices]] = []
    sequences: list[pa.Array] = []
    for file in files:
        here = []
        for rows in _batches(job.target, file, rule.lookup_columns):
            if not _has_keys(rows, rule):
                continue
            found = indices_of(key_column(rows, rule.keys), keys)
            is_found = found != NONE
            if not is_found.any():
                continue
            here.append(found[is_found])
            if rule.sequence_by is not None:
                sequences.append(_sequences(rows, rule.sequence_by, job.schema).filter(pa.array(is_found)))
        if here:
            _refuse_deletes(file)
            matched.append((file, np.concatenate(here)))
    if rule.sequence_by is None or not matched:
        return matched, None
    # For each key the stored row, of which there is one.
    at = np.full(len(keys), NONE, np.int64)
    each = np.concatenate([found for _, found in matched])
    at[each] = np.arange(len(each))
    return matched, pa.concat_arrays(sequences).take(pa.array(at, mask=at == NONE))


def _sequences(rows: pa.Table, name: str, schema: pa.Schema) -> pa.Array:
    """A file that is older than the column has none."""
    kind = schema.field(name).type
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    return pa.concat_arrays(rows.column(name).cast(kind).chunks)


def _has_keys(rows: pa.Table, rule: UpsertRule) -> bool:
    """A file that is older than one of the columns has no row of any key."""
    return all(name in rows.schema.names for name in rule.keys)


def _refuse_deletes(file: DataFile) -> None:
    if file.has_deletes:
        raise LakeError(
            f"rows of {file.path} were deleted by another writer, and would be back",
            hint="rewrite the file with that writer first (OPTIMIZE or PURGE, rewrite_data_files)",
        )


def _batches(target: LakeTarget, file: DataFile, columns: Iterable[str] | None = None) -> Iterator[pa.Table]:
    with target.file_system().open_input_file(f"{target.root}/{file.path}") as source:
        parquet = pq.ParquetFile(source)
        names = parquet.schema_arrow.names
        wanted = names if columns is None else [name for name in columns if name in names]
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=wanted):
            yield pa.table(batch)
