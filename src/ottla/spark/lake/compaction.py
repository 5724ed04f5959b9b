"""Small files of a table become larger ones, and files that belong to no table are removed.

A compaction moves rows and nothing else: the numbers of loads stay, and a load that commits meanwhile is not disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.spark.errors import LakeError
from ottla.spark.lake.columns import with_columns
from ottla.spark.lake.files import TARGET_FILE_BYTES, LakeFiles
from ottla.spark.lake.formats import table_target
from ottla.spark.lake.lake_table import DataFile, LakeTable, TableCommit, TableTarget
from ottla.spark.lake.publishing import publish, repeat_after_conflicts
from ottla.spark.lake.target import LakeTarget

# Rows that are in memory at a time.
_ROWS_AT_ONCE: Final = 100_000
# Files of unfinished tasks are younger than this; no load takes longer to commit.
VACUUM_HOURS_DEFAULT: Final = 7 * 24.0


@dataclass(frozen=True, slots=True)
class Compaction:
    """`version` is None where there was nothing to do."""

    files_before: int
    files_after: int
    rows_count: int
    version: int | None


def compact(
    target: str | Path | LakeTarget | TableTarget,
    *,
    storage: Mapping[str, str] | None = None,
    target_file_bytes: int = TARGET_FILE_BYTES,
    on_progress: Callable[[Compaction], None] | None = None,
) -> Compaction:
    """Rewrite each partition's files of less than half of `target_file_bytes` as files of about that size.

    A commit for each partition.  Runs in this process, with the rows of one file in memory at a time.  The old files
    stay for running readers; `vacuum` removes them.  Raises `LakeError`, also when another compaction or a
    backfill replaced the same files meanwhile: run it again.
    """
    table = table_target(target, storage).open(None)
    total = Compaction(0, 0, 0, None)
    listed_at = table.version
    for group in small_groups(table.files(), target_file_bytes):
        added = list(_rewritten(table, group, target_file_bytes))
        rows_count = sum(file.rows_count for file in added)
        expected = sum(file.rows_count for file in group)
        if rows_count != expected:
            raise LakeError(f"{table.name}: expected to rewrite {expected} rows, and read {rows_count}")
        version = publish(table, TableCommit(added, removed=group, is_same_data=True), {}, listed_at=listed_at)
        if version == listed_at + 1:  # no other commit came between
            listed_at = version
        total = Compaction(
            total.files_before + len(group), total.files_after + len(added), total.rows_count + rows_count, version
        )
        if on_progress is not None:
            on_progress(total)
    return total


def small_groups(files: Sequence[DataFile], target_file_bytes: int) -> list[list[DataFile]]:
    """The small files of each partition that has at least two, in the order of their offsets.

    Files with deleted rows are left alone: rewritten, those rows would be back.
    """
    groups: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        if file.size_bytes * 2 < target_file_bytes and not file.has_deletes:
            groups.setdefault(tuple(file.partition.values()), []).append(file)
    return [sorted(group, key=_first_offset) for group in groups.values() if len(group) > 1]


def _first_offset(file: DataFile) -> tuple[int, str]:
    bounds = file.bounds.get("offset")
    return (0 if bounds is None or bounds.least is None else bounds.least), file.path


def _rewritten(table: LakeTable, group: Sequence[DataFile], target_file_bytes: int) -> Iterator[DataFile]:
    """As files of the table's columns; a column that a file does not have is null in its rows."""
    partition, location = group[0].partition, table.location
    schema = pa.schema([field for field in table.schema if field.name not in partition])
    writer = LakeFiles(location, (), target_file_bytes, directory=partition)
    system = location.file_system()
    for file in group:
        with system.open_input_file(f"{location.root}/{file.path}") as source:
            for batch in pq.ParquetFile(source).iter_batches(_ROWS_AT_ONCE):
                writer.add(with_columns(pa.table(batch), schema))
    for file in writer.close():
        yield DataFile(file.path, partition, file.size_bytes, file.rows_count, file.schema, file.bounds)


def vacuum(
    target: str | Path | LakeTarget | TableTarget,
    *,
    storage: Mapping[str, str] | None = None,
    older_than_hours: float = VACUUM_HOURS_DEFAULT,
    dry_run: bool = False,
) -> list[str]:
    """Remove files that no version of the table needs any more: of tasks that died, and those that were replaced; of an
    Iceberg table the manifests of expired snapshots, too.

    Only files that are older than `older_than_hours`: younger ones may be of a load that has not committed yet, or be
    in use by a reader.  Returns their paths; with `dry_run` nothing is removed.  An Iceberg table's replaced files stay
    while a snapshot has them.  Raises `LakeError`.
    """
    if older_than_hours < 1:
        raise LakeError(
            f"older_than_hours is {older_than_hours:g}",
            hint="give at least 1: younger files may belong to a running load",
        )
    table = table_target(target, storage).open(None)
    return repeat_after_conflicts(table, lambda: table.vacuum(older_than_hours, dry_run=dry_run))
