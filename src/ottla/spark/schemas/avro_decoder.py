"""Avro rows of one writer's schema, as columns of the reader's."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, Final

import fastavro
import pyarrow as pa

from ottla.spark.arrow.varint_columns import Ints, Octets
from ottla.spark.errors import UnreadableElement
from ottla.spark.schemas.avro_columns import FieldReader, NotByColumns, column_reader
from ottla.spark.schemas.avro_types import arrow_type, without_logical_types
from ottla.spark.schemas.rows import DecodedRows, rows_as_column

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


class AvroDecoder:
    """Both schemas are resolved (avro_types.py)."""

    def __init__(self, writer: Json, reader: Json) -> None:
        self.type = arrow_type(reader)
        self._raw_type = arrow_type(reader, is_raw=True)
        self._by_columns: tuple[FieldReader, Change] | None
        try:
            self._by_columns = column_reader(writer), resolution(writer, reader)
        except NotByColumns:
            self._by_columns = None
        self._read_row = _row_reader(writer, reader)

    def decode(self, data: Octets, starts: Ints, ends: Ints) -> DecodedRows:
        if self._by_columns is not None:
            read, change = self._by_columns
            try:
                column, behind = read.read(data, starts, ends)
                if (behind <= ends).all():
                    return DecodedRows(change(column).cast(self.type), None)
            except (NotByColumns, UnreadableElement, pa.ArrowException, OverflowError):
                # At least one row is invalid: row by row shows which.
                pass
        payloads = [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
        return rows_as_column(payloads, self._read_row, self._raw_type, self.type)


def _row_reader(writer: Json, reader: Json) -> Callable[[bytes], object]:
    written = fastavro.parse_schema(_compact(without_logical_types(writer), set()))
    read = fastavro.parse_schema(_compact(without_logical_types(reader), set()))

    pairs = _pairs(reader)

    def decode(payload: bytes) -> object:
        found = fastavro.schemaless_reader(io.BytesIO(payload), written, read)
        return found if pairs is None else pairs(found)

    return decode


def _pairs(schema: Json) -> Callable[[Any], Any] | None:
    """Makes pairs of the maps in a value, as Arrow wants them; None where there are none."""
    if isinstance(schema, list):
        inner = next((found for found in map(_pairs, schema) if found is not None), None)
        return None if inner is None else lambda value: None if value is None else inner(value)
    match schema["type"]:
        case "map":
            of_value = _pairs(schema["values"])
            if of_value is None:
                return lambda value: list(value.items())
            return lambda value: [(key, of_value(each)) for key, each in value.items()]
        case "array":
            of_item = _pairs(schema["items"])
            return None if of_item is None else lambda value: [of_item(each) for each in value]
        case "record":
            of_field = {
                field["name"]: found for field in schema["fields"] if (found := _pairs(field["type"])) is not None
            }
            if not of_field:
                return None
            return lambda value: {**value, **{name: change(value[name]) for name, change in of_field.items()}}
    return None


def _compact(schema: Json, named: set[str]) -> Json:
    """A named type only once: a schema must not define it twice."""
    if isinstance(schema, list):
        return [_compact(branch, named) for branch in schema]
    if "name" in schema and schema["type"] in ("record", "enum", "fixed"):
        if schema["name"] in named:
            return schema["name"]
        named.add(schema["name"])
    out = dict(schema)
    for inner in ("items", "values"):
        if inner in out:
            out[inner] = _compact(out[inner], named)
    if "fields" in out:
        fields: Sequence[Json] = out["fields"]
        out["fields"] = [{**field, "type": _compact(field["type"], named)} for field in fields]
    return out
