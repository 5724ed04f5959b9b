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

from ottla.registry.errors import invalid_schema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
# Keys with a place of their own in each type; all others are properties.
_OWN_KEYS: Final[Mapping[str, Collection[str]]] = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "error": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
_FIELD_KEYS: Final = ("name", "type", "doc", "default", "order", "aliases")
# A text nests less deeply, or it was made to break parsers.
NESTING_MAX: Final = 200

Json = Any


def full_name(name: str, space: str | None) -> str:
    """The full name of `name` where the namespace is `space`."""
    return name if "." in name or not space else f"{space}.{name}"


def space_of(name: str) -> str | None:
    """The namespace of a full name."""
    return name.rpartition(".")[0] or None


class AvroWriter:
    """Writes one schema again as Java's library writes it, so that equal schemas of different clients are equal texts.

    Java's clients send this form themselves, and a registry of Confluent's stores it: whitespace and the order of keys
    go, names are relative to their surroundings, docs, defaults, aliases and all other properties stay.  Types that
    references define are named and not written again.

    With `sort_properties` texts that differ in the order of properties become equal (`normalize=true`).
    """

    def __init__(self, defined_elsewhere: Iterable[str] = (), *, sort_properties: bool = False) -> None:
        self._known = set(defined_elsewhere)
        self._sort_properties = sort_properties

    def written(self, schema: Json, space: str | None = None, depth: int = 0) -> Json:
        """Raises `RegistryError` for what is no schema."""
        if depth > NESTING_MAX:
            raise invalid_schema(f"an Avro schema is nested more than {NESTING_MAX} levels deep")
        if isinstance(schema, str):
            return self._name(schema, space)
        if isinstance(schema, list):
            return [self.written(branch, space, depth + 1) for branch in schema]
        if not isinstance(schema, dict):
            raise invalid_schema(
                f"{json.dumps(schema)[:80]} is no Avro schema: it is neither a name, a list nor an object"
            )
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            # {"type": {"type": "string"}}: the inner one is meant.
            return self.written(kind, space, depth + 1)
        if not isinstance(kind, str):
            raise invalid_schema(f'an Avro schema has no "type": {json.dumps(schema)[:80]}')
        if kind in NAMED:
            return self._named(kind, schema, space, depth)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if inner not in schema:
                raise invalid_schema(f'an Avro {kind} has no "{inner}"')
            return {
                "type": kind,
                inner: self.written(schema[inner], space, depth + 1),
                **self._properties(kind, schema),
            }
        if kind in PRIMITIVES:
            properties = self._properties("", schema)
            return {"type": kind, **properties} if properties else kind
        return self._name(kind, space)

    def _name(self, name: str, space: str | None) -> str:
        if name in PRIMITIVES:
            return name
        full = full_name(name, space)
        if full not in self._known:
            raise invalid_schema(f'"{full}" is not a type of Avro, and is not defined before it is used')
        return self._relative(full, space)

    @staticmethod
    def _relative(full: str, space: str | None) -> str:
        return full.rpartition(".")[2] if space_of(full) == (space or None) else full

    def _named(self, kind: str, schema: dict[str, Json], space: str | None, depth: int) -> Json:
        name, given = schema.get("name"), schema.get("namespace", space)
        if not isinstance(name, str) or not name:
            raise invalid_schema(f'an Avro {kind} has no "name"')
        if given is not None and not isinstance(given, str):
            raise invalid_schema(f'the namespace of "{name}" is no text')
        full = full_name(name, given)
        if full in self._known:
            raise invalid_schema(f'"{full}" is defined twice')
        self._known.add(full)
        own = space_of(full)
        out: dict[str, Json] = {"type": kind, "name": full.rpartition(".")[2]}
        if own != (space or None):
            out["namespace"] = own or ""
        if schema.get("doc") is not None:
            out["doc"] = schema["doc"]
        if kind in ("record", "error"):
            fields = schema.get("fields")
            if not isinstance(fields, list):
                raise invalid_schema(f'the record "{full}" has no list of "fields"')
            out["fields"] = [self._field(field, full, own, depth) for field in fields]
        elif kind == "enum":
            out["symbols"] = schema.get("symbols")
            if "default" in schema:
                out["default"] = schema["default"]
        else:
            out["size"] = schema.get("size")
        out.update(self._properties(kind, schema))
        if aliases := self._aliases(schema, full):
            out["aliases"] = [self._relative(full_name(alias, own), own) for alias in aliases]
        return out

    def _field(self, field: Json, record: str, space: str | None, depth: int) -> Json:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            raise invalid_schema(f'a field of "{record}" has no name or no type: {json.dumps(field)[:80]}')
        out: dict[str, Json] = {"name": field["name"], "type": self.written(field["type"], space, depth + 1)}
        if field.get("doc") is not None:
            out["doc"] = field["doc"]
        if "default" in field:
            out["default"] = field["default"]
        if field.get("order", "ascending") != "ascending":
            out["order"] = field["order"]
        if aliases := self._aliases(field, f"{record}.{field['name']}"):
            out["aliases"] = aliases
        return {**out, **self._others(field, _FIELD_KEYS)}

    @staticmethod
    def _aliases(schema: dict[str, Json], name: str) -> list[str]:
        aliases = schema.get("aliases") or []
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise invalid_schema(f'the aliases of "{name}" are no list of names')
        return aliases

    def _properties(self, kind: str, schema: dict[str, Json]) -> dict[str, Json]:
        return self._others(schema, _OWN_KEYS.get(kind, ("type",)))

    def _others(self, schema: dict[str, Json], own: Collection[str]) -> dict[str, Json]:
        found = {key: value for key, value in schema.items() if key not in own}
        return dict(sorted(found.items())) if self._sort_properties else found


def names_defined_in(schema: Json, space: str | None = None) -> Iterable[str]:
    """The full names of all types that a schema defines."""
    if isinstance(schema, list):
        for branch in schema:
            yield from names_defined_in(branch, space)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind in NAMED if isinstance(kind, str) else False:
            full = full_name(schema["name"], schema.get("namespace", space))
            yield full
            for field in schema.get("fields", ()):
                yield from names_defined_in(field["type"], space_of(full))
        else:
            for inner in ("type", "items", "values"):
                if isinstance(schema.get(inner), dict | list):
                    yield from names_defined_in(schema[inner], space)


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
