"""What a reader's schema makes of a writer's columns: fields by name or alias, wider types, defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from ottla.spark.schemas.avro_columns import NotByColumns
from ottla.spark.schemas.avro_types import arrow_type

Json = Any
Change = Callable[[pa.Array], pa.Array]

_WIDER: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
_NULL: Final = {"type": "null"}


def resolution(writer: Json, reader: Json) -> Change:
    """How a column of the writer's schema becomes one of the reader's.  Raises `NotByColumns` for rarer cases."""
    if writer == reader:
        return _same
    if isinstance(reader, list) or isinstance(writer, list):
        return _of_unions(writer, reader)
    wanted, given = reader["type"], writer["type"]
    if reader.get("logicalType") != writer.get("logicalType"):
        raise NotByColumns
    if wanted == given == "record" and _is_named_alike(writer, reader):
        return _of_records(writer, reader)
    if (
        wanted == given == "enum"
        and set(writer["symbols"]) <= set(reader["symbols"])
        and _is_named_alike(writer, reader)
    ):
        return _same
    if wanted == given and wanted not in ("record", "enum", "fixed", "array", "map"):
        return _same
    if (given, wanted) in _WIDER and "logicalType" not in reader:
        kind = arrow_type(reader)
        return lambda column: (
            column.cast(kind, safe=False) if kind in (pa.float32(), pa.float64()) else column.cast(kind)
        )
    raise NotByColumns


def _same(column: pa.Array) -> pa.Array:
    return column


def _of_unions(writer: Json, reader: Json) -> Change:
    if not isinstance(reader, list):
        # What is null cannot be read.
        raise NotByColumns
    others = [branch for branch in reader if branch != _NULL]
    given = [branch for branch in writer if branch != _NULL] if isinstance(writer, list) else [writer]
    may_be_null = isinstance(writer, list) and _NULL in writer
    if len(others) != 1 or len(given) != 1 or (may_be_null and _NULL not in reader):
        raise NotByColumns
    return resolution(given[0], others[0])


def _of_records(writer: Json, reader: Json) -> Change:
    by_name = {field["name"]: (index, field) for index, field in enumerate(writer["fields"])}
    steps: list[Callable[[pa.StructArray], pa.Array]] = []
    for field in reader["fields"]:
        name = next((each for each in (field["name"], *field.get("aliases", ())) if each in by_name), None)
        steps.append(_default(field) if name is None else _taken(by_name[name], field))
    names = [field["name"] for field in reader["fields"]]
    if not names:
        raise NotByColumns
    return lambda column: _assembled(column, steps, names)


def _assembled(
    column: pa.StructArray, steps: Sequence[Callable[[pa.StructArray], pa.Array]], names: list[str]
) -> pa.Array:
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays([step(column) for step in steps], names=names, mask=mask)


def _taken(found: tuple[int, Json], field: Json) -> Callable[[pa.StructArray], pa.Array]:
    index, given = found
    change = resolution(given["type"], field["type"])
    return lambda column: change(column.field(index))


def _default(field: Json) -> Callable[[pa.StructArray], pa.Array]:
    if "default" not in field:
        raise NotByColumns
    value = field["default"]
    # A default is of the union's first branch.
    kind = field["type"][0] if isinstance(field["type"], list) else field["type"]
    if value is not None and (
        kind["type"] not in ("boolean", "int", "long", "float", "double", "string", "enum") or "logicalType" in kind
    ):
        raise NotByColumns
    column_type = arrow_type(field["type"])
    return lambda column: pa.array([value], column_type).take(pa.array([0] * len(column), pa.int32()))


def _is_named_alike(writer: Json, reader: Json) -> bool:
    short = writer["name"].rpartition(".")[2]
    return bool(reader["name"].rpartition(".")[2] == short)
