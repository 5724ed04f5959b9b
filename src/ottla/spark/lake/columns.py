"""The columns of a lake table: which types its files have, and what a table takes of new ones.  Pure.

A column's type changes only to a wider one, which holds all values of the former.  New columns, and new fields of
structs, are added, nullable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from ottla.spark.errors import ColumnsRefused

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_NARROWED: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    # Iceberg has no smaller ones.
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_PLAIN: Final = frozenset(
    (
        pa.string(),
        pa.binary(),
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        TIMESTAMP,
    )
)
# Characters that Spark refuses in the names of Parquet columns.
_REFUSED_NAME: Final = re.compile(r"[ ,;{}()\n\t=]|^$")


def stored_type(name: str, kind: pa.DataType) -> pa.DataType:
    """The type in which a column is stored.  Raises `ColumnsRefused` for one that tables do not have."""
    if pa.types.is_dictionary(kind):
        return stored_type(name, kind.value_type)
    kind = _NARROWED.get(kind, kind)
    if pa.types.is_timestamp(kind):
        return TIMESTAMP  # without a zone: UTC
    if kind in _PLAIN or pa.types.is_decimal128(kind):
        return kind
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", stored_type(name, kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, stored_type(f"{name}.{each.name}", each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(stored_type(name, kind.key_type), stored_type(name, kind.item_type))
    raise ColumnsRefused(f"the column {name!r} has the type {kind}, which lake tables do not have", hint="cast it")


def check_names(names: Iterable[str]) -> None:
    """Raises `ColumnsRefused` for two names that differ in case only, which most readers take for one, and the like."""
    seen: dict[str, str] = {}
    for name in names:
        if _REFUSED_NAME.search(name):
            raise ColumnsRefused(f"the column {name!r} has a character that tables' readers refuse", hint="rename it")
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise ColumnsRefused(f"the columns {other!r} and {name!r} differ in case only", hint="rename one of them")


def check_partitions(schema: pa.Schema, partition_by: Iterable[str]) -> None:
    """Of a table that is created.  Raises `ColumnsRefused` for a column whose type is not known."""
    for name in partition_by:
        if name not in schema.names:
            raise ColumnsRefused(
                f"there is no table yet, and the type of its partition column {name!r} is not known",
                hint="let decode give its columns with their types for a batch without records, too: "
                f"pa.table({{{name!r}: pa.array(values, pa.string())}})",
            )


def new_columns(table: pa.Schema, files: Iterable[pa.Schema], *, widens: bool = False) -> list[pa.Field]:
    """The columns of files that the table does not have, in order, and those that it has with fewer fields.

    `widens`: also those that it has of a narrower type; some files may have narrower ones than others, or the table.
    Raises `ColumnsRefused` where a column has types that do not go together.
    """
    known = {field.name: field.type for field in table}
    for field in (field for schema in files for field in schema):
        expected = known.setdefault(field.name, field.type)
        found = wider(expected, field.type)
        if found is None or not (widens or _has_same_leaves(expected, field.type)):
            hint = "cast it in decode, or give the new column another name"
            if found is not None:
                hint += "; tables of this format keep a column's type, an Iceberg table would take the wider one"
            raise ColumnsRefused(
                f"the column {field.name!r} is {expected} in the table, and {field.type} in the new rows", hint=hint
            )
        known[field.name] = found
    check_names(known)
    return [
        pa.field(name, kind)
        for name, kind in known.items()
        if name not in table.names or not _same(kind, table.field(name).type)
    ]


def grown(schema: pa.Schema, fields: Iterable[pa.Field]) -> pa.Schema:
    """A schema with these fields in place of its own of the same name, or after them."""
    return pa.schema(list({each.name: each for each in (*schema, *fields)}.values()))


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type for the values of both; None where tables have none.

    As Iceberg has it: whole numbers, floats and decimals with more digits.  A struct has the fields of both.
    """
    if _same(one, other):
        return one
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return pa.int64()
    if pa.types.is_floating(one) and pa.types.is_floating(other):
        return pa.float64()
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other) and one.scale == other.scale:
        return pa.decimal128(max(one.precision, other.precision), one.scale)
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = wider(one.value_type, other.value_type)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if pa.types.is_map(one) and pa.types.is_map(other) and _same(one.key_type, other.key_type):
        inner = wider(one.item_type, other.item_type)
        return None if inner is None else pa.map_(one.key_type, inner)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        kinds: dict[str, pa.DataType | None] = {each.name: each.type for each in one}
        for each in other:
            mine = kinds.get(each.name)
            kinds[each.name] = each.type if mine is None else wider(mine, each.type)
        check_names(kinds)
        return None if None in kinds.values() else pa.struct(list(kinds.items()))
    return None


def conformed(rows: pa.Table, schema: pa.Schema, needed: Iterable[str] = ()) -> pa.Table:
    """Rows with the types of a table's columns where these are wider; of those that are not, nothing changes.

    `needed`: columns that are null where rows do not have them, since their values had no type.
    """
    for name in needed:
        if name not in rows.schema.names and name in schema.names:
            rows = rows.append_column(name, pa.nulls(len(rows), schema.field(name).type))
    for index, field in enumerate(rows.schema):
        if field.name in schema.names:
            found = wider(schema.field(field.name).type, field.type)
            if found is not None and not _same(found, field.type):
                rows = rows.set_column(index, field.name, rows.column(index).cast(found))
    return rows


def _has_same_leaves(one: pa.DataType, other: pa.DataType) -> bool:
    """Of two types that have a wider one: whether what both have is of the same type."""
    if pa.types.is_list(one):
        return _has_same_leaves(one.value_type, other.value_type)
    if pa.types.is_map(one):
        return _has_same_leaves(one.item_type, other.item_type)
    if pa.types.is_struct(one):
        theirs = {each.name: each.type for each in other}
        return all(_has_same_leaves(each.type, theirs[each.name]) for each in one if each.name in theirs)
    return bool(one == other)


def _same(one: pa.DataType, other: pa.DataType) -> bool:
    """Types without the names of lists' elements and without nullability, which formats choose differently."""
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _same(one.value_type, other.value_type)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _same(one.key_type, other.key_type) and _same(one.item_type, other.item_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        mine, theirs = {each.name: each.type for each in one}, {each.name: each.type for each in other}
        return mine.keys() == theirs.keys() and all(_same(kind, theirs[name]) for name, kind in mine.items())
    return bool(one == other)


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a file as the table has them now; a column that the file does not have is null."""
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
