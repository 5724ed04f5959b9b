"""Rows are erased by their keys: the files that have them are replaced by files without them, in one commit.

A backfill reads the offsets of the rows that a table has, so it does not bring erased ones back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.spark.errors import LakeError
from ottla.spark.lake.changes import check_key_type, key_column
from ottla.spark.lake.columns import with_columns
from ottla.spark.lake.files import TARGET_FILE_BYTES, LakeFiles
from ottla.spark.lake.formats import table_target
from ottla.spark.lake.lake_table import DataFile, LakeTable, TableCommit, TableTarget
from ottla.spark.lake.publishing import FilesReplaced, publish
from ottla.spark.lake.target import LakeTarget

_ROWS_AT_ONCE: Final = 100_000
# Compactions and upserts that replaced the same files meanwhile.
_ATTEMPTS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Erasure:
    """`version` is None where the table had no such rows."""

    rows_count: int
    files_count: int
    version: int | None


def erase(
    target: str | Path | LakeTarget | TableTarget,
    keys: Mapping[str, Sequence[Any]],
    *,
    storage: Mapping[str, str] | None = None,
    target_file_bytes: int = TARGET_FILE_BYTES,
) -> Erasure:
    """Erase the rows that have these values in these columns.

        erase("/lake/people", {"member": [7, 9]})
        erase("/lake/visits", {"country": ["at", "si"], "member": [7, 7]})   # these two pairs

    Loads may run at the same time; what they add after this began is not looked at.  The old files stay for readers of
    earlier versions until `vacuum` removes them.  Runs in this process, with one batch of rows in memory at a time.
    Raises `LakeError`.
    """
    table = table_target(target, storage).open(None)
    wanted = _wanted(table.schema, keys)
    for attempt in range(_ATTEMPTS_MAX):
        if attempt:
            table.refresh()
        listed_at = table.version
        eraser = _Eraser(table, table.location, wanted, target_file_bytes)
        removed = [file for file in table.files() if eraser.has_rows(file)]
        if not removed:
            return Erasure(0, 0, None)
        added = [new for file in removed for new in eraser.rewritten(file)]
        # The keys are not among the facts: the table's log outlives its files.
        facts = {"ottla.erased": json.dumps({"rows": eraser.rows_count, "columns": sorted(keys)})}
        try:
            version = publish(table, TableCommit(added, removed=removed, facts=facts), {}, listed_at=listed_at)
        except FilesReplaced:
            continue
        return Erasure(eraser.rows_count, len(removed), version)
    raise LakeError(f"{table.name}: its files were replaced {_ATTEMPTS_MAX} times", hint="try again")


def _wanted(schema: pa.Schema, keys: Mapping[str, Sequence[Any]]) -> pa.Table:
    """The keys in the table's types."""
    if not keys:
        raise LakeError("no column says which rows are erased", hint='give keys, as {"key": [b"7"]}')
    columns = {}
    for name, values in keys.items():
        if name not in schema.names:
            raise LakeError(f"the table has no column {name!r}", hint=f"it has: {', '.join(schema.names)}")
        kind = schema.field(name).type
        check_key_type(name, kind)
        try:
            columns[name] = pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
            raise LakeError(f"the values of {name!r} are not {kind}, as the table's: {error}") from error
        if columns[name].null_count:
            raise LakeError(f"a value of {name!r} is null", hint="null equals nothing, also in a table")
    if len({len(column) for column in columns.values()}) > 1:
        raise LakeError("the columns have different numbers of values", hint="give as many values for each column")
    return pa.table(columns)


class _Eraser:
    def __init__(self, table: LakeTable, location: LakeTarget, wanted: pa.Table, target_file_bytes: int) -> None:
        self._table, self._location = table, location
        self._wanted = wanted
        self._names = tuple(wanted.schema.names)
        self._keys = key_column(wanted, self._names)
        self._target_file_bytes = target_file_bytes
        self.rows_count = 0

    def has_rows(self, file: DataFile) -> bool:
        found = any(mask.any() for mask in map(self._is_wanted, self._batches(file, self._names)))
        if found and file.has_deletes:
            raise LakeError(
                f"{self._table.name}: rows of {file.path} were deleted by another writer, and would be back",
                hint="rewrite the file with that writer first (OPTIMIZE or PURGE, rewrite_data_files)",
            )
        return found

    def rewritten(self, file: DataFile) -> Iterator[DataFile]:
        schema = pa.schema([field for field in self._table.schema if field.name not in file.partition])
        writer = LakeFiles(self._location, (), self._target_file_bytes, directory=file.partition)
        for rows in self._batches(file, None):
            is_wanted = self._is_wanted(rows)
            self.rows_count += int(is_wanted.sum())
            kept = rows.filter(pa.array(~is_wanted))
            if kept.num_rows:
                writer.add(with_columns(kept, schema))
        for added in writer.close():
            yield replace(added, partition=file.partition)

    def _is_wanted(self, rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if any(name not in rows.schema.names for name in self._names):
            return np.zeros(rows.num_rows, np.bool_)
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
            pc.index_in(key_column(rows, self._names), self._keys).is_valid().to_numpy(zero_copy_only=False)
        )
        return found

    def _batches(self, file: DataFile, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """With the wanted columns that partition the table, which files do not have."""
        with self._location.file_system().open_input_file(f"{self._location.root}/{file.path}") as source:
            parquet = pq.ParquetFile(source)
            names = parquet.schema_arrow.names
            # At least one, which has the number of rows.
            wanted = names if columns is None else [name for name in columns if name in names] or names[:1]
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=wanted):
                rows = pa.table(batch)
                for name in self._names:
                    if name in file.partition:
                        kind = self._wanted.schema.field(name).type
                        value = pa.scalar(file.partition[name], pa.string()).cast(kind)
                        rows = rows.append_column(name, pa.repeat(value, batch.num_rows))
                yield rows
