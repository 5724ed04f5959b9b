from __future__ import annotations

import pyarrow as pa
import pytest

from ottla.spark.errors import LakeError
from ottla.spark.lake.columns import TIMESTAMP, new_columns, stored_type

TABLE = pa.schema([("offset", pa.int64()), ("names", pa.list_(pa.field("item", pa.string())))])


def test_types_that_tables_do_not_have_become_those_that_hold_their_values() -> None:
    assert stored_type("x", pa.uint32()) == pa.int64()
    assert stored_type("x", pa.dictionary(pa.int8(), pa.large_string())) == pa.string()
    assert stored_type("x", pa.timestamp("ns")) == TIMESTAMP
    assert stored_type("x", pa.struct([("a", pa.list_(pa.float16()))])).field("a").type.value_type == pa.float32()
    assert stored_type("x", pa.decimal128(9, 2)) == pa.decimal128(9, 2)
    with pytest.raises(LakeError, match=r"'x\.a' has the type uint64"):
        stored_type("x", pa.struct([("a", pa.uint64())]))


def test_new_columns_are_those_that_the_table_does_not_have() -> None:
    more = pa.schema([("offset", pa.int64()), ("b", pa.string()), ("a", pa.float64())])
    other = pa.schema([("c", pa.bool_()), ("b", pa.string())])
    assert [field.name for field in new_columns(TABLE, [more, other])] == ["b", "a", "c"]
    assert new_columns(TABLE, [pa.schema([("names", pa.list_(pa.field("element", pa.string())))])]) == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ([pa.schema([("offset", pa.string())])], "'offset' is int64 in the table, and string in the new rows"),
        ([pa.schema([("x", pa.int64())]), pa.schema([("x", pa.float64())])], "'x' is int64"),
        ([pa.schema([("names", pa.list_(pa.int8()))])], "'names' is list"),
        ([pa.schema([("Offset", pa.int64())])], "'offset' and 'Offset' differ in case only"),
        ([pa.schema([("a b", pa.int64())])], "'a b' has a character"),
    ],
)
def test_a_column_that_would_change_is_refused_by_name(files: list[pa.Schema], problem: str) -> None:
    with pytest.raises(LakeError, match=problem):
        new_columns(TABLE, files)
