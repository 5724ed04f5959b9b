"""Avro: its types as Arrow's, schemas with all names resolved, rows of a writer's schema as columns of the reader's.

Records of primitives, optional values, enums, fixed and records within are decoded together, field after field: each
step is one for all rows (`column_reader`).  What has arrays, maps or other unions is read row by row, and so is a batch
in which a single row breaks the format.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import fastavro
import numpy as np
import pyarrow as pa

from ottla.spark.arrow.record_fields import ByteSpans, gather
from ottla.spark.arrow.varint_columns import VARLONG_BYTES_MAX, Ints, Octets, from_zigzag, read_varints
from ottla.spark.errors import UnreadableElement
from ottla.spark.schemas.registry_reader import FoundSchema, UnreadableSchema
from ottla.spark.schemas.rows import DecodedRows, rows_as_column

Json = Any

_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
# As they are counted, before they become microseconds.
MILLIS: Final = {
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
}


def resolved(found: FoundSchema) -> Json:
    """The schema with each type written out where it is used, and full names.

    Raises `UnreadableSchema` for a type that refers to itself, which columns cannot hold.
    """
    named: dict[str, Json] = {}
    for text in (*found.referenced.values(), found.text):
        schema = _written_out(_load(text), None, named, ())
    return schema


def _load(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _written_out(schema: Json, space: str | None, named: dict[str, Json], inside: tuple[str, ...]) -> Json:
    if isinstance(schema, list):
        return [_written_out(branch, space, named, inside) for branch in schema]
    if isinstance(schema, str):
        if schema in _PLAIN:
            return {"type": schema}
        full = schema if "." in schema or not space else f"{space}.{schema}"
        if full in inside:
            raise UnreadableSchema(f"the type {full} refers to itself, and columns cannot")
        if full not in named:
            raise UnreadableSchema(f"the type {full} is not defined")
        return named[full]
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _written_out(kind, space, named, inside)
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return {**schema, inner: _written_out(schema[inner], space, named, inside)}
    if kind in ("record", "error", "enum", "fixed"):
        given = schema.get("namespace", space)
        full = schema["name"] if "." in schema["name"] or not given else f"{given}.{schema['name']}"
        out = {**schema, "name": full}
        out.pop("namespace", None)
        if kind in ("record", "error"):
            own = full.rpartition(".")[0] or None
            out["type"] = "record"
            out["fields"] = [
                {**field, "type": _written_out(field["type"], own, named, (*inside, full))}
                for field in schema["fields"]
            ]
        named[full] = out
        return out
    if kind in _PLAIN:
        return schema
    return _written_out(kind, space, named, inside)


def branches(schema: list[Json]) -> tuple[bool, Json]:
    """Whether a union may be null, and its one other type.  Raises `UnreadableSchema` when it has several."""
    others = [branch for branch in schema if branch != {"type": "null"}]
    if len(others) > 1:
        raise UnreadableSchema(
            f"a union of {' and '.join(str(each['type']) for each in others)} has no column type: give a reader's "
            "schema with one of them"
        )
    return len(others) < len(schema), others[0] if others else {"type": "null"}


def arrow_type(schema: Json, *, is_raw: bool = False) -> pa.DataType:
    """The column of a resolved schema.  `is_raw`: milliseconds are still milliseconds."""
    if isinstance(schema, list):
        return arrow_type(branches(schema)[1], is_raw=is_raw)
    kind, logical = schema["type"], schema.get("logicalType")
    match kind:
        case "record":
            fields = [(field["name"], arrow_type(field["type"], is_raw=is_raw)) for field in schema["fields"]]
            return pa.struct([pa.field(name, each) for name, each in fields])
        case "array":
            return pa.list_(arrow_type(schema["items"], is_raw=is_raw))
        case "map":
            return pa.map_(pa.string(), arrow_type(schema["values"], is_raw=is_raw))
        case "enum":
            return pa.string()
        case "bytes" | "fixed" if logical == "decimal" and _is_decimal(schema):
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        case "fixed":
            return pa.binary()
    if is_raw and logical in MILLIS and kind == "long":
        return MILLIS[logical]
    return _LOGICAL.get((kind, logical), _PLAIN[kind])


def _is_decimal(schema: Json) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return isinstance(precision, int) and isinstance(scale, int) and 0 < precision <= 38 and 0 <= scale <= precision


def without_logical_types(schema: Json) -> Json:
    """As a row decoder shall read it: numbers stay numbers; decimals that a column can hold become decimals."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    keeps = schema.get("logicalType") == "decimal" and schema["type"] in ("bytes", "fixed") and _is_decimal(schema)
    out = {key: value for key, value in schema.items() if keeps or key != "logicalType"}
    for inner in ("type", "items", "values"):
        if isinstance(out.get(inner), dict | list):
            out[inner] = without_logical_types(out[inner])
    if isinstance(out.get("fields"), Iterable):
        out["fields"] = [{**field, "type": without_logical_types(field["type"])} for field in out["fields"]]
    return out


INT_MAX: Final = 2**31 - 1


class NotByColumns(Exception):
    """These rows, or this schema, must be read row by row."""


class Found(NamedTuple):
    """A column, and the position behind each row's value."""

    column: pa.Array
    behind: Ints


class FieldReader(Protocol):
    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        """Raises `NotByColumns`, or what Arrow and varints raise, when a row breaks the format."""
        ...


def column_reader(schema: Json) -> FieldReader:
    """Of a resolved schema.  Raises `NotByColumns`."""
    if isinstance(schema, list):
        null, others = {"type": "null"}, [branch for branch in schema if branch != {"type": "null"}]
        if len(schema) != 2 or len(others) != 1:
            raise NotByColumns
        return _Optional(schema.index(null), column_reader(others[0]))
    kind, logical = schema["type"], schema.get("logicalType")
    match kind:
        case "null":
            return _Null()
        case "boolean":
            return _Boolean()
        case "int" | "long":
            return _Whole(kind == "int", logical)
        case "float":
            return _Floating(np.dtype("<f4"))
        case "double":
            return _Floating(np.dtype("<f8"))
        case "bytes" | "fixed" if logical == "decimal":
            raise NotByColumns
        case "bytes" | "string":
            return _Bytes(is_text=kind == "string")
        case "fixed":
            return _Fixed(schema["size"])
        case "enum":
            return _Enum(schema["symbols"])
        case "record" if schema["fields"]:
            readers = [(field["name"], column_reader(field["type"])) for field in schema["fields"]]
            return _Record(readers)
    raise NotByColumns


class _Null:
    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        return Found(pa.nulls(len(at)), at)


class _Boolean:
    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        byte = data.take(at, mode="clip")
        if len(at) and byte.max() > 1:
            raise NotByColumns
        return Found(pa.array(byte.astype(np.bool_)), at + 1)


class _Whole:
    def __init__(self, is_int: bool, logical: str | None) -> None:
        self._is_int = is_int
        self._logical = logical

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        numbers, behind = _numbers(data, at)
        if not self._is_int:
            column = pa.array(numbers)
            if self._logical in MILLIS:
                unit = MILLIS[self._logical]
                return Found(column.cast(unit).cast(pa.timestamp("us", tz=unit.tz)), behind)
            if self._logical == "timestamp-micros":
                return Found(column.cast(pa.timestamp("us", tz="UTC")), behind)
            if self._logical == "local-timestamp-micros":
                return Found(column.cast(pa.timestamp("us")), behind)
            return Found(column, behind)
        if len(numbers) and (numbers.max() > INT_MAX or numbers.min() < ~INT_MAX):
            raise NotByColumns
        column = pa.array(numbers.astype(np.int32))
        return Found(column.cast(pa.date32()) if self._logical == "date" else column, behind)


class _Floating:
    def __init__(self, kind: np.dtype[Any]) -> None:
        self._kind = kind

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        places = at[:, None] + np.arange(self._kind.itemsize)
        octets = data.take(places, mode="clip")
        return Found(pa.array(octets.view(self._kind).ravel()), at + self._kind.itemsize)


class _Bytes:
    def __init__(self, *, is_text: bool) -> None:
        self._is_text = is_text

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        lengths, starts = _numbers(data, at)
        if not _fits(starts, lengths, ends):
            raise NotByColumns
        column = gather(data, ByteSpans(starts, lengths))
        # The cast checks the UTF-8.
        return Found(column.cast(pa.string()) if self._is_text else column, starts + lengths)


class _Fixed:
    def __init__(self, size: int) -> None:
        self._size = size

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        lengths = np.full(len(at), self._size, np.int64)
        if not _fits(at, lengths, ends):
            raise NotByColumns
        return Found(gather(data, ByteSpans(at, lengths)), at + self._size)


class _Enum:
    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        indices, behind = _numbers(data, at)
        if len(indices) and (indices.min() < 0 or indices.max() >= len(self._symbols)):
            raise NotByColumns
        return Found(self._symbols.take(pa.array(indices)), behind)


class _Optional:
    def __init__(self, null_index: int, inner: FieldReader) -> None:
        self._null_index = null_index
        self._inner = inner

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        branches, behind = _numbers(data, at)
        if len(branches) and (branches.min() < 0 or branches.max() > 1):
            raise NotByColumns
        present = np.flatnonzero(branches != self._null_index)
        found = self._inner.read(data, behind[present], ends[present])
        if len(present) == len(at):
            return found
        behind[present] = found.behind
        places = np.zeros(len(at), np.int64)
        places[present] = np.arange(len(present))
        is_null = branches == self._null_index
        return Found(found.column.take(pa.array(places, mask=is_null)), behind)


class _Record:
    def __init__(self, fields: Sequence[tuple[str, FieldReader]]) -> None:
        self._fields = fields

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        columns = []
        for _, reader in self._fields:
            column, at = reader.read(data, at, ends)
            columns.append(column)
        if not (at <= ends).all():
            raise NotByColumns
        return Found(pa.StructArray.from_arrays(columns, names=[name for name, _ in self._fields]), at)


def _numbers(data: Octets, at: Ints) -> tuple[Ints, Ints]:
    raw, behind = read_varints(data, at, VARLONG_BYTES_MAX)
    return from_zigzag(raw), behind


def _fits(starts: Ints, lengths: Ints, ends: Ints) -> bool:
    # Lengths first: a sum with one near the limit of 64 bits would wrap.
    return bool((lengths >= 0).all() and (lengths <= ends - starts).all() and (starts <= ends).all())


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
