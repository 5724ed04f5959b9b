"""The columns of a lake table: which types its files have, and what a table takes of new ones.  Pure.

A column's type never changes: what readers have computed with it would be wrong.  New columns are added, nullable.
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


def new_columns(table: pa.Schema, files: Iterable[pa.Schema]) -> list[pa.Field]:
    """The columns of files that the table does not have, in order.

    Raises `ColumnsRefused` where a column has another type than the table's, or two types in the files.
    """
    known = {field.name: field.type for field in table}
    added: dict[str, pa.Field] = {}
    for schema in files:
        for field in schema:
            expected = known.setdefault(field.name, field.type)
            if not _same(expected, field.type):
                raise ColumnsRefused(
                    f"the column {field.name!r} is {expected} in the table, and {field.type} in the new rows",
                    hint="a column keeps its type: cast it in decode, or give the new column another name",
                )
            if field.name not in table.names:
                added.setdefault(field.name, pa.field(field.name, field.type))
    check_names(known)
    return list(added.values())


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
