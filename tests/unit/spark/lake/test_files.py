from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.spark.lake import files as lake_files
from ottla.spark.lake.files import LakeFiles, directory_of, split_by_partition
from ottla.spark.lake.lake_table import ColumnBounds, DataFile
from ottla.spark.lake.target import parse_target

BY_TOPIC = ("topic", "hour")


def rows(places: list[tuple[str | None, str]], first_offset: int = 0) -> pa.Table:
    """A row for each (topic, hour)."""
    return pa.table(
        {
            "value": [b"%d" % index for index in range(len(places))],
            "offset": pa.array(range(first_offset, first_offset + len(places)), pa.int64()),
            "topic": pa.array([topic for topic, _ in places], pa.string()).dictionary_encode(),
            "hour": pa.array([hour for _, hour in places], pa.string()),
        }
    )


def write(root: Path, *batches: pa.Table, target_file_bytes: int = 1 << 30) -> list[DataFile]:
    files = LakeFiles(parse_target(root), BY_TOPIC, target_file_bytes)
    for batch in batches:
        files.add(batch)
    return files.close()


def values(root: Path, files: list[DataFile]) -> list[bytes]:
    return sorted(value for file in files for value in pq.ParquetFile(root / file.path).read()["value"].to_pylist())


def test_rows_are_split_by_the_values_of_all_partition_columns_in_their_order() -> None:
    found = dict(split_by_partition(rows([("a", "1"), ("b", "1"), ("a", "2"), (None, "1"), ("a", "1")]), BY_TOPIC))
    assert {key: part.column("offset").to_pylist() for key, part in found.items()} == {
        ("a", "1"): [0, 4],
        ("b", "1"): [1],
        ("a", "2"): [2],
        (None, "1"): [3],
    }
    assert found["a", "1"].column_names == ["value", "offset"]


def test_partition_values_are_texts_as_table_formats_write_them() -> None:
    table = pa.table({"flag": [True, None], "day": [date(2011, 6, 12)] * 2, "number": pa.array([7, 7], pa.uint8())})
    assert [key for key, _ in split_by_partition(table.append_column("x", [[1, 2]]), ("flag", "day", "number"))] == [
        ("true", "2011-06-12", "7"),
        (None, "2011-06-12", "7"),
    ]


def test_a_directory_is_safe_for_any_value() -> None:
    assert directory_of({"topic": "a", "hour": "2011-06-12-09"}) == "topic=a/hour=2011-06-12-09/"
    assert directory_of({"a b": "../x/%20"}) == "a_b=.._x__20/"
    assert directory_of({"a": None, "b": ""}) == "a=null/b=empty/"
    assert len(directory_of({"a": "x" * 1000})) < 200


def test_a_file_holds_what_its_report_says(tmp_path: Path) -> None:
    files = write(tmp_path, rows([("a", "1"), ("b", "1"), ("a", "1")]), rows([("a", "1")] * 2, first_offset=7))
    mine, other = sorted(files, key=lambda file: str(file.partition))
    assert (mine.partition, mine.rows_count) == ({"topic": "a", "hour": "1"}, 4)
    assert (other.partition, other.rows_count) == ({"topic": "b", "hour": "1"}, 1)
    assert mine.path.startswith("topic=a/hour=1/part-")
    assert mine.size_bytes == (tmp_path / mine.path).stat().st_size
    assert mine.bounds["offset"] == ColumnBounds(0, 0, 8)
    assert pq.read_schema(tmp_path / mine.path) == mine.schema
    assert mine.schema.names == ["value", "offset"]
    assert values(tmp_path, files) == [b"0", b"0", b"1", b"1", b"2"]


def test_more_partitions_than_open_files_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_files, "OPEN_FILES_MAX", 2)
    monkeypatch.setattr(lake_files, "WAITING_BYTES_MAX", 100)
    files = write(tmp_path, *(rows([("a", hour)] * 3) for hour in "123123123"))
    assert sum(file.rows_count for file in files) == len(values(tmp_path, files)) == 27


def test_rows_of_many_partitions_wait_for_each_other_so_that_files_are_few(tmp_path: Path) -> None:
    hours = [str(hour) for hour in range(200)]
    files = write(tmp_path, *(rows([("a", hour) for hour in hours]) for _ in range(10)))
    assert len(files) == 200


def test_waiting_rows_are_written_before_they_take_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "WAITING_BYTES_MAX", 200)
    files = write(tmp_path, *(rows([("a", "1"), ("b", "1")]) for _ in range(20)))
    assert sum(file.rows_count for file in files) == 40
    assert pq.ParquetFile(tmp_path / files[0].path).num_row_groups > 1


def test_rows_of_very_many_partitions_count_for_what_they_take_and_not_for_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "WAITING_BYTES_MAX", 1 << 19)
    hours: list[tuple[str | None, str]] = [("a", str(hour)) for hour in range(500)]
    files = write(tmp_path, rows(hours), rows(hours))
    assert sum(file.rows_count for file in files) == 1000
    assert len(files) > 500, "all rows waited for the end"


def test_many_small_parts_of_a_partition_wait_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_files, "WAITING_BYTES_MAX", 1 << 20)
    (file,) = write(tmp_path, *(rows([("a", "1")]) for _ in range(1000)))
    assert file.rows_count == 1000
    assert pq.ParquetFile(tmp_path / file.path).num_row_groups == 1


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_files, "ROW_GROUP_BYTES", 10)
    files = write(tmp_path, *(rows([("a", "1")] * 3) for _ in range(4)), target_file_bytes=1)
    assert [file.rows_count for file in files] == [3, 3, 3, 3]


def test_a_new_column_begins_another_file(tmp_path: Path) -> None:
    wide = rows([("a", "1")]).append_column("new", [[1.5]])
    files = write(tmp_path, rows([("a", "1")]), wide)
    assert sorted(tuple(file.schema.names) for file in files) == [("value", "offset"), ("value", "offset", "new")]
    assert next(file for file in files if len(file.schema) == 3).bounds["new"] == ColumnBounds(0)


def test_bounds_leave_out_what_they_cannot_say(tmp_path: Path) -> None:
    table = rows([("a", "1")] * 2)
    table = table.append_column("some", pa.array([5, None], pa.int64()))
    table = table.append_column("none", pa.array([None, None], pa.int64()))
    table = table.append_column("far", pa.array([2**62, -(2**62)], pa.int64()).cast(pa.timestamp("us", tz="UTC")))
    (file,) = write(tmp_path, table)
    assert file.bounds["some"] == ColumnBounds(1, 5, 5)
    assert file.bounds["none"] == ColumnBounds(2)
    assert file.bounds["far"] == ColumnBounds(0, -(2**62), 2**62)


def test_a_task_without_rows_writes_no_file(tmp_path: Path) -> None:
    assert write(tmp_path, rows([])) == []
    assert list(tmp_path.iterdir()) == []
