"""The files of one task of an upsert: the changes that may count, by bucket.

They are in the table's place and have names of tasks' files, so a vacuum removes those of a load that died.

Files of the form `ROWS` are as the table's are, so that a bucket whose changes only add rows needs no others: a change
that deletes is in a file apart where the table has no column for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.lake.changes import DELETED, UpsertRule
from ottla.spark.lake.columns import grown, new_columns, with_columns
from ottla.spark.lake.files import LakeFiles, cost_bytes, without_dictionaries
from ottla.spark.lake.lake_table import DataFile
from ottla.spark.lake.versions import changes_of


class ChangeForm(StrEnum):
    """How changes are written.  CHANGES: to be read once, by the next job.  ROWS: to become the table's."""

    CHANGES = "changes"
    ROWS = "rows"

    @property
    def compression(self) -> str:
        return "lz4" if self is ChangeForm.CHANGES else "zstd"


# Changes wait until they are so many, and are written unless most of them were superseded.
WAITING_CHANGES_BYTES_MAX: Final = 64 << 20


class ChangeFiles:
    def __init__(
        self,
        files: LakeFiles,
        rule: UpsertRule,
        waiting_bytes_max: int = WAITING_CHANGES_BYTES_MAX,
        *,
        form: ChangeForm = ChangeForm.CHANGES,
    ) -> None:
        self._files = files
        self._rule = rule
        self._divides = form is ChangeForm.ROWS and rule.sequence_by is None
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def add(self, rows: pa.Table, values: pa.Array) -> None:
        """Rows of records, and the records' values.  Raises `LakeError`."""
        rows = self._rule.marked(without_dictionaries(rows), values)
        if not rows.num_rows:
            return
        self._rule.check(rows)
        self._waiting.append(rows)
        self._waiting_bytes += cost_bytes(rows)
        if self._waiting_bytes > self._waiting_bytes_max:
            self._reduce()
            if self._waiting_bytes > self._waiting_bytes_max // 2:
                self._write()

    def close(self) -> list[DataFile]:
        if self._waiting:
            self._reduce()
            self._write()
        return self._files.close()

    def _reduce(self) -> None:
        needed = changes_of(joined(self._waiting).combine_chunks(), self._rule).needed()
        self._waiting, self._waiting_bytes = [needed], cost_bytes(needed)

    def _write(self) -> None:
        for rows in self._waiting:
            for part in self._parts(rows):
                self._files.add(self._rule.with_buckets(part))
        self._waiting, self._waiting_bytes = [], 0

    def _parts(self, rows: pa.Table) -> Iterable[pa.Table]:
        """Rows that the table has, and deletions."""
        if not self._divides:
            return [self._rule.blanked(rows)]
        is_deleted = rows.column(DELETED)
        if not pc.any(is_deleted).as_py():
            return [rows.drop_columns([DELETED])]
        parts = [rows.filter(pc.invert(is_deleted)).drop_columns([DELETED]), rows.filter(is_deleted)]
        return [self._rule.blanked(part) if DELETED in part.schema.names else part for part in parts if part.num_rows]


def joined(parts: Iterable[pa.Table]) -> pa.Table:
    """The rows of all parts, at least one, with the columns of all.  Raises `LakeError` where types differ."""
    tables = list(parts)
    first = tables[0].schema
    schema = grown(first, new_columns(first, [each.schema for each in tables[1:]], widens=True))
    return pa.concat_tables([each if each.schema == schema else with_columns(each, schema) for each in tables])
