"""Avro's types as Arrow's, and schemas with all names resolved."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from ottla.spark.schemas.registry_reader import FoundSchema, UnreadableSchema

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
