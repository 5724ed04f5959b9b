"""Avro rows of one writer's schema, as columns of the reader's."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from ottla.spark.arrow.varint_columns import Ints, Octets
from ottla.spark.errors import UnreadableElement
from ottla.spark.schemas.avro_columns import FieldReader, NotByColumns, column_reader
from ottla.spark.schemas.avro_resolution import Change, resolution
from ottla.spark.schemas.avro_types import arrow_type, without_logical_types
from ottla.spark.schemas.rows import DecodedRows, rows_as_column

Json = Any


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
