"""The driver's part of an upsert: files of changes and files of the table become one commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa

from ottla.observe.events import fields
from ottla.spark.errors import LakeError, TableRefused
from ottla.spark.lake.applying import PAST, ApplyJob, BucketTask, apply_changes
from ottla.spark.lake.change_files import ChangeForm
from ottla.spark.lake.changes import BUCKET, CURRENT, DELETED, UpsertRule
from ottla.spark.lake.columns import grown, new_columns
from ottla.spark.lake.lake_table import DataFile, LakeTable, TableCommit
from ottla.spark.lake.publishing import FilesReplaced, publish
from ottla.spark.lake.target import LakeTarget
from ottla.spark.lake.tasks import Stage, TaskReport
from ottla.spark.lake.versions import with_validity

log = logging.getLogger(__name__)

# Compactions that replaced files of the same buckets meanwhile: the changes are applied to the new ones.
ATTEMPTS_MAX: Final = 10


# Calls a function over tasks, in other processes, and returns their reports.
RunTasks: TypeAlias = Callable[
    [Callable[[Iterable[BucketTask]], Iterator[TaskReport]], Sequence[BucketTask]], list[TaskReport]
]


@dataclass(frozen=True, slots=True)
class Upserted:
    """`version`: the table's.  `files_count`: that were added.  `mostly_adds`: in most buckets rows were only added."""

    version: int
    files_count: int
    mostly_adds: bool


@dataclass(frozen=True, slots=True)
class Upserter:
    """Commits upserts by one rule.

    `form`: of the files of changes.  Of `ROWS` those of a bucket to which a commit only adds rows become the table's.

    The table counts them, and each commit expects the count that it was planned on: two loads of different topics may
    have changes of the same keys, and the second to commit is refused.
    """

    run: RunTasks
    location: LakeTarget
    rule: UpsertRule
    target_file_bytes: int
    at: Callable[[Stage], None]
    form: ChangeForm = ChangeForm.CHANGES

    def commit(
        self, table: LakeTable, changes: Sequence[DataFile], commit: TableCommit, expected: Mapping[str, int | None]
    ) -> Upserted:
        """`commit` has the numbers and facts.  The files of changes that are not the table's are removed after it."""
        # Also of a commit whose answer was lost.
        kept: frozenset[str] = frozenset()
        try:
            count = commits_count(table, self.rule)
            numbers = {**commit.numbers, self.rule.commits_id: (count or 0) + 1}
            expected = {**expected, self.rule.commits_id: count}
            for attempt in range(ATTEMPTS_MAX):
                if attempt:
                    table.refresh()
                self.at(Stage.APPLYING)
                listed_at = table.version
                reports = self._applied(table, changes)
                added = [file for each in reports for file in each.files]
                removed = [file for each in reports for file in each.removed]
                kept = frozenset(file.path for file in added)
                self.at(Stage.WRITTEN)
                wanted = replace(commit, added=added, removed=removed, numbers=numbers)
                self.at(Stage.COMMITTING)
                try:
                    version = publish(table, wanted, expected, listed_at=listed_at)
                    adding_count = sum(each.only_adds for each in reports)
                    return Upserted(version, len(added), mostly_adds=adding_count * 2 >= len(reports))
                except FilesReplaced:
                    log.info("lake.changes_applied_again", extra=fields(table=table.name))
            raise LakeError(f"{table.name}: its files were replaced {ATTEMPTS_MAX} times", hint="try again")
        finally:
            self._remove(file for file in changes if file.path not in kept)

    def _applied(self, table: LakeTable, changes: Sequence[DataFile]) -> list[TaskReport]:
        by_bucket: dict[str, list[DataFile]] = {}
        for file in changes:
            by_bucket.setdefault(str(file.partition[BUCKET]), []).append(file)
        known: dict[str, list[DataFile]] = {}
        for file in table.files() if by_bucket else ():
            if file.partition.get(CURRENT) == PAST:
                continue
            known.setdefault(str(file.partition[BUCKET]), []).append(file)
        tasks = [
            BucketTask(int(bucket), tuple(found), tuple(known.get(bucket, ()))) for bucket, found in by_bucket.items()
        ]
        schema = self._schema(table, changes)
        job = ApplyJob(self.location, self.rule, schema, self.target_file_bytes, self.at, self.form)
        return self.run(partial(apply_changes, job), tasks)

    def _schema(self, table: LakeTable, changes: Sequence[DataFile]) -> pa.Schema:
        """Of the files after the commit.  Raises `LakeError` where a column has another type than the table's."""
        given = [file.schema for file in changes]
        if self.rule.sequence_by is None:
            given = [_without(schema, DELETED) for schema in given]
        if self.rule.keeps_history:
            given = [with_validity(schema, self.rule) for schema in given]
        known = table.schema
        changed = new_columns(known, given, widens=table.widens_columns)
        return _without(grown(known, changed), *self.rule.partition_by)

    def _remove(self, changes: Iterable[DataFile]) -> None:
        """A vacuum would do it, too."""
        system, root = self.location.file_system(), self.location.root
        for file in changes:
            try:
                system.delete_file(f"{root}/{file.path}")
            except OSError as error:
                log.warning("lake.change_file_left", extra=fields(path=file.path, reason=str(error)))


def commits_count(table: LakeTable, rule: UpsertRule) -> int | None:
    """Of the commits by this rule.  Raises `LakeError` where the table has rows by another one."""
    count = table.number_of(rule.commits_id)
    if count is None and table.files():
        raise TableRefused(
            f"{table.name} has rows that were not upserted by the keys {', '.join(rule.keys)}, "
            f"{rule.sequence_by or 'no column'} for their order and {rule.buckets} buckets",
            hint="give keys, sequence_by and buckets as at the first load, or load into a new table",
        )
    return count


def first_schema(records: pa.Schema, rule: UpsertRule) -> pa.Schema:
    """Of a new table; `records`: of one that is appended to."""
    marks = [pa.field(BUCKET, pa.int32())]
    if rule.sequence_by is not None:
        marks.append(pa.field(DELETED, pa.bool_()))
    if rule.keeps_history:
        marks.append(pa.field(CURRENT, pa.bool_()))
    return pa.schema([*records, *marks])


def _without(schema: pa.Schema, *names: str) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in names])
