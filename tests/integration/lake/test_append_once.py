"""Rows are appended once however many processes repeat the append; on the local disk and on S3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ottla.spark.errors import LakeError
from ottla.spark.lake.delta_appends import append_once
from ottla.spark.lake.target import LakeTarget


def rows(*numbers: int) -> pa.Table:
    return pa.table({"number": pa.array(numbers, pa.int64()), "kind": ["odd" if n % 2 else "even" for n in numbers]})


def stored(target: LakeTarget) -> list[int]:
    table = DeltaTable(target.url, storage_options=target.storage_options)
    numbers: list[int] = table.to_pyarrow_table().column("number").to_pylist()
    return sorted(numbers)


def test_a_version_is_appended_once_and_so_is_an_earlier_one(target: LakeTarget) -> None:
    assert append_once(target, rows(1, 2), app_id="a", version=5, partition_by=["kind"])
    assert not append_once(target, rows(1, 2), app_id="a", version=5)
    assert not append_once(target, rows(0), app_id="a", version=4)
    assert append_once(target, rows(3), app_id="a", version=6)
    assert append_once(target, rows(4), app_id="b", version=0)
    assert stored(target) == [1, 2, 3, 4]
    table = DeltaTable(target.url, storage_options=target.storage_options)
    assert table.metadata().partition_columns == ["kind"]


def test_writers_at_the_same_time_lose_nothing_and_append_nothing_twice(target: LakeTarget) -> None:
    def write(number: int) -> bool:
        return append_once(target, rows(number // 2), app_id=f"app-{number // 2}", version=1)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(write, range(16)))
    assert stored(target) == list(range(8))
    assert sum(outcomes) == 8


def test_new_columns_are_added_and_another_type_is_refused(target: LakeTarget) -> None:
    append_once(target, rows(1), app_id="a", version=1)
    append_once(target, rows(2).append_column("new", pa.array(["text"])), app_id="a", version=2)
    table = DeltaTable(target.url, storage_options=target.storage_options).to_pyarrow_table()
    assert sorted(table.select(["number", "new"]).to_pylist(), key=str) == [
        {"number": 1, "new": None},
        {"number": 2, "new": "text"},
    ]
    wrong = pa.table({"number": pa.array([[1]], pa.list_(pa.int64()))})
    with pytest.raises(LakeError, match="does not take the rows"):
        append_once(target, wrong, app_id="a", version=3)
    assert stored(target) == [1, 2]
