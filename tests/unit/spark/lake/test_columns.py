from __future__ import annotations

import pyarrow as pa
import pytest

from ottla.spark.errors import ColumnsRefused, LakeError
from ottla.spark.lake.columns import TIMESTAMP, conformed, grown, new_columns, stored_type, wider

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


def a_struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.float64(), pa.float32(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.decimal128(9, 2), pa.decimal128(12, 3), None),
        (pa.int64(), pa.float64(), None),
        (pa.int32(), pa.string(), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.field("element", pa.int64()))),
        (pa.map_(pa.string(), pa.float32()), pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.float64())),
        (pa.map_(pa.int32(), pa.string()), pa.map_(pa.int64(), pa.string()), None),
        (a_struct(a=pa.int32()), a_struct(a=pa.string()), None),
        (pa.list_(a_struct(a=pa.int32())), pa.list_(pa.int32()), None),
    ],
)
def test_wider_type_holds_the_values_of_both(
    one: pa.DataType, other: pa.DataType, expected: pa.DataType | None
) -> None:
    assert wider(one, other) == expected
    assert wider(other, one) == expected


def test_wider_struct_has_the_fields_of_both() -> None:
    found = wider(a_struct(a=pa.int32(), b=pa.bool_()), a_struct(c=pa.string(), a=pa.int64()))
    assert found == a_struct(a=pa.int64(), b=pa.bool_(), c=pa.string())


NUMBERS = pa.schema([("n", pa.int32()), ("at", a_struct(x=pa.float32()))])


def test_table_that_widens_gets_the_wider_types_of_its_files() -> None:
    files = [pa.schema([("n", pa.int64())]), pa.schema([("n", pa.int32()), ("at", a_struct(x=pa.float64()))])]
    changed = new_columns(NUMBERS, files, widens=True)
    assert changed == [pa.field("n", pa.int64()), pa.field("at", a_struct(x=pa.float64()))]
    assert grown(NUMBERS, [*changed, pa.field("new", pa.string())]).names == ["n", "at", "new"]
    assert grown(NUMBERS, changed).field("n").type == pa.int64()
    assert new_columns(NUMBERS, [pa.schema([("n", pa.int32())])], widens=True) == []


def test_table_that_keeps_its_types_takes_new_fields_of_a_struct_alone() -> None:
    more = a_struct(x=pa.float32(), y=pa.string())
    assert new_columns(NUMBERS, [pa.schema([("at", a_struct(y=pa.string()))])]) == [pa.field("at", more)]
    for other in (pa.schema([("n", pa.int64())]), pa.schema([("at", a_struct(x=pa.float64(), y=pa.string()))])):
        with pytest.raises(ColumnsRefused, match=r"in the new rows; cast it in decode, .* keep a column's type"):
            new_columns(NUMBERS, [other])
    # Two files that add a field with different types.
    with pytest.raises(ColumnsRefused, match="'at' is struct"):
        new_columns(NUMBERS, [pa.schema([("at", a_struct(z=kind))]) for kind in (pa.int32(), pa.int64())])


def test_fields_of_a_struct_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(ColumnsRefused, match="'x' and 'X' differ in case only"):
        wider(a_struct(x=pa.int32()), a_struct(X=pa.int32()))


def test_rows_of_narrower_types_get_those_of_the_table() -> None:
    table = pa.schema([("n", pa.int64()), ("at", a_struct(x=pa.float64(), y=pa.string())), ("t", pa.string())])
    rows = pa.table(
        {
            "n": pa.array([1, None], pa.int32()),
            "at": pa.array([{"x": 0.5}, None], a_struct(x=pa.float32())),
            "t": pa.array(["a", "a"]).dictionary_encode(),
            "other": pa.array([1, 2]),
        }
    )
    found = conformed(rows, table)
    assert found.schema.types == [pa.int64(), table.field("at").type, rows.schema.field("t").type, pa.int64()]
    assert found.to_pylist()[0] == {"n": 1, "at": {"x": 0.5, "y": None}, "t": "a", "other": 1}
    # What the table would not hold stays, and is refused by its name later.
    wrong = pa.table({"n": ["text"]})
    assert conformed(wrong, table).schema == wrong.schema
