"""What one task of an upsert keeps in memory, and what it writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.spark.errors import FunctionRefused, LakeError
from ottla.spark.lake.change_files import ChangeFiles, ChangeForm, joined
from ottla.spark.lake.changes import BUCKET, UpsertRule
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.lake_table import DataFile
from ottla.spark.lake.target import parse_target

RULE = UpsertRule(("id",), buckets=2)
BATCH = 500


def batch(first: int, keys: int, **extra: pa.Array) -> pa.Table:
    offsets = range(first, first + BATCH)
    columns = {
        "id": pa.array([offset % keys for offset in offsets], pa.int64()),
        "topic": pa.array(["t"] * BATCH).dictionary_encode(),
        "partition": pa.array([0] * BATCH, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
    }
    return pa.table({**columns, **extra})


def written(root: Path, keys: int, batches: int, waiting_bytes_max: int) -> tuple[list[DataFile], dict[int, int], int]:
    """The files, the newest offset of each key in them, and the number of their rows."""
    files = ChangeFiles(LakeFiles(parse_target(root), (BUCKET,)), RULE, waiting_bytes_max)
    for number in range(batches):
        files.add(batch(number * BATCH, keys), pa.array([b"x"] * BATCH))
    found = files.close()
    rows = [row for file in found for row in pq.ParquetFile(root / file.path).read().to_pylist()]
    newest: dict[int, int] = {}
    for row in rows:
        newest[row["id"]] = max(newest.get(row["id"], -1), row["offset"])
    return found, newest, len(rows)


def test_changes_that_are_superseded_in_a_task_are_never_written(tmp_path: Path) -> None:
    files, newest, rows_count = written(tmp_path, keys=10, batches=20, waiting_bytes_max=100_000)
    assert len(files) == 2
    assert rows_count == 10
    assert newest == {key: 20 * BATCH - 10 + key for key in range(10)}


def test_changes_of_more_keys_than_may_wait_are_written_in_parts(tmp_path: Path) -> None:
    keys = 3_000
    _, newest, rows_count = written(tmp_path, keys, batches=12, waiting_bytes_max=100_000)
    assert newest == {key: keys + key for key in range(keys)}
    # Both changes of each key: the first was written before the second came.
    assert rows_count == 2 * keys


def test_rows_that_may_become_the_tables_are_apart_from_deletions(tmp_path: Path) -> None:
    values = pa.array([None if offset % 7 == 0 else b"x" for offset in range(BATCH)])
    for rule, form, columns in (
        (RULE, ChangeForm.ROWS, [{"deleted": False}, {"deleted": True}]),
        (RULE, ChangeForm.CHANGES, [{"deleted": True}]),
        # A table by a sequence has deleted rows.
        (UpsertRule(("id",), "offset", 2), ChangeForm.ROWS, [{"deleted": True}]),
    ):
        files = ChangeFiles(LakeFiles(parse_target(tmp_path), (BUCKET,)), rule, form=form)
        files.add(batch(0, BATCH), values)
        found = [{"deleted": "deleted" in file.schema.names} for file in files.close() if file.partition[BUCKET] == "0"]
        assert sorted(found, key=lambda each: each["deleted"]) == columns


def test_columns_of_some_parts_are_null_in_the_others_and_types_that_differ_are_refused() -> None:
    parts = [batch(0, 5), batch(BATCH, 5, name=pa.array(["x"] * BATCH))]
    assert joined(parts)["name"].null_count == BATCH
    with pytest.raises(LakeError, match="'name' is string in the table, and int64 in the new rows"):
        joined([*parts, batch(0, 5, name=pa.array([1] * BATCH))])


@pytest.mark.parametrize("name", ["bucket", "current", "valid_from", "valid_to"])
def test_a_column_with_the_name_of_one_of_the_tables_own_is_refused(tmp_path: Path, name: str) -> None:
    values = pa.array([b"x"] * BATCH)
    rows = batch(0, 5, **{name: pa.array([1] * BATCH)})
    history = UpsertRule(("id",), "offset", 2, keeps_history=True)
    with pytest.raises(FunctionRefused, match=f"decode gives a column '{name}', which the table has"):
        ChangeFiles(LakeFiles(parse_target(tmp_path), (BUCKET,)), history).add(rows, values)
    if name != "bucket":
        ChangeFiles(LakeFiles(parse_target(tmp_path), (BUCKET,)), RULE).add(rows, values)
