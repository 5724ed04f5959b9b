"""Avro: schemas are read and checked, and compared by the checker of Apache's library."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from ottla.registry.avro_text import PRIMITIVES, AvroWriter, full_name, names_defined_in, space_of
from ottla.registry.errors import invalid_schema

Json = Any

# Of one comparison, in an answer.
PROBLEMS_SHOWN: Final = 100


@dataclass(frozen=True)
class AvroSchema:
    """A schema that has been read: its text as it is kept, and the library's object for comparisons."""

    text: str
    checked: avro.schema.Schema


def read_avro(text: str, referenced: Iterable[str] = (), *, normalize: bool = False) -> AvroSchema:
    """`referenced`: the kept texts of the schemas that this one refers to, each after those that it refers to itself.

    Raises `RegistryError`.
    """
    names = avro.name.Names()
    defined: list[str] = []
    for other in referenced:
        found = json.loads(other)
        _library_schema(_for_checker(found, None), names)
        defined += names_defined_in(found)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.strip() in PRIMITIVES:
            given = text.strip()
        else:
            raise invalid_schema(f"an Avro schema is JSON, and this is not: {error}") from None
    written = AvroWriter(defined, sort_properties=normalize).written(given)
    kept = json.dumps(written, separators=(",", ":"), ensure_ascii=False)
    return AvroSchema(kept, _library_schema(_for_checker(written, None), names))


def problems_of_reader(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Why `reader` cannot read what `writer` writes; empty when it can."""
    result = _Checker().get_compatibility(reader.checked, writer.checked)
    if result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
        return []
    kinds = ", ".join(sorted({kind.name.upper() for kind in result.incompatibilities}))
    return [f"{kinds} at {_listed(result.locations, ', ')}: {_listed(result.messages, '; ')}"]


class _Checker(avro.compatibility.ReaderWriterCompatibilityChecker):
    """The library compares each branch of a writer's union with each branch of the reader's, with all that is below.

    A branch with another name cannot be read as the writer's, regardless of its fields, so it is skipped: a union of
    some hundred records is common, and its comparison otherwise takes time that grows with the square of its size.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def calculate_compatibility(
        self, reader: avro.schema.Schema, writer: avro.schema.Schema, location: list[str]
    ) -> avro.compatibility.SchemaCompatibilityResult:
        if not isinstance(reader, avro.schema.UnionSchema) or not isinstance(writer, avro.schema.NamedSchema):
            return super().calculate_compatibility(reader, writer, location)
        for branch in reader.schemas:
            if branch.type != writer.type or not avro.compatibility.schema_name_equals(branch, writer):
                continue
            found = self.get_compatibility(branch, writer)
            if found.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
                return avro.compatibility.CompatibleResult
        return avro.compatibility.incompatible(
            avro.compatibility.SchemaIncompatibilityType.missing_union_branch,
            f"reader union lacking writer type {writer.type}",
            location,
        )


def _listed(found: Collection[str], separator: str) -> str:
    shown = sorted(found)[:PROBLEMS_SHOWN]
    more = [f"{len(found) - PROBLEMS_SHOWN} more"] if len(found) > PROBLEMS_SHOWN else []
    return separator.join([*shown, *more])


def _library_schema(schema: Json, names: avro.name.Names) -> avro.schema.Schema:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return avro.schema.make_avsc_object(schema, names)
    except (avro.errors.AvroException, TypeError, ValueError, KeyError, AttributeError) as error:
        raise invalid_schema(f"no Avro schema: {error}") from None


def _for_checker(schema: Json, space: str | None) -> Json:
    """The part of a schema that decides about compatibility, in a form that the library's checker reads as Java's does.

    It does not look at logical types (nor does Java's), knows no type `error`, and compares aliases by full names.
    """
    if isinstance(schema, list):
        return [_for_checker(branch, space) for branch in schema]
    if not isinstance(schema, dict):
        return schema if schema in PRIMITIVES else full_name(schema, space)
    kind = schema["type"]
    if kind in PRIMITIVES:
        return kind
    if kind == "array":
        return {"type": kind, "items": _for_checker(schema["items"], space)}
    if kind == "map":
        return {"type": kind, "values": _for_checker(schema["values"], space)}
    full = full_name(schema["name"], schema.get("namespace", space))
    own = space_of(full)
    out: dict[str, Json] = {
        "type": "record" if kind == "error" else kind,
        "name": full.rpartition(".")[2],
        "namespace": own or "",
        "aliases": [full_name(alias, own) for alias in schema.get("aliases", ())],
    }
    for key in ("symbols", "default", "size"):
        if key in schema:
            out[key] = schema[key]
    if "fields" in schema:
        out["fields"] = [_field_for_checker(field, own) for field in schema["fields"]]
    return out


def _field_for_checker(field: Mapping[str, Json], space: str | None) -> Json:
    out = {"name": field["name"], "type": _for_checker(field["type"], space), "aliases": field.get("aliases", [])}
    if "default" in field:
        out["default"] = field["default"]
    return out
