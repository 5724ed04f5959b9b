"""The types of schemas: how each is read, kept, rendered and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ottla.registry.avro_format import AvroSchema, problems_of_reader, read_avro
from ottla.registry.errors import RegistryCode, RegistryError, invalid_schema
from ottla.registry.json_format import read_json_schema
from ottla.registry.levels import Level
from ottla.registry.protobuf_format import read_protobuf, serialized
from ottla.registry.schema import Reference, Schema, SchemaType

# Gives the schema of a subject's version, also of a deleted one; None when there is none.
Lookup = Callable[[str, int], Schema | None]

# Only these are compared; the others are refused where a level asks for it.
COMPARED: Final = frozenset({SchemaType.AVRO})
SERIALIZED: Final = "serialized"


def kept(schema: Schema, lookup: Lookup, *, normalize: bool = False) -> Schema:
    """A schema that a client sent, in the form in which it is kept.  Raises `RegistryError` for what is none."""
    referenced = dict(_referenced(schema, lookup))
    match schema.type:
        case SchemaType.AVRO:
            text = read_avro(schema.text, referenced.values(), normalize=normalize).text
        case SchemaType.JSON:
            text = read_json_schema(schema.text, normalize=normalize)
        case SchemaType.PROTOBUF:
            text = read_protobuf(schema.text, referenced)
    return Schema(schema.type, text, schema.references)


def rendered(schema: Schema, lookup: Lookup, form: str) -> str:
    """The text in the form that a client asks for: `serialized` is a Protobuf schema's descriptor."""
    if schema.type is SchemaType.PROTOBUF and form == SERIALIZED:
        return serialized(schema.text, dict(_referenced(schema, lookup)))
    return schema.text


def incompatibilities(level: Level, new: Schema, previous: list[Schema], lookup: Lookup) -> list[str]:
    """Why a kept schema may not come after these, of which the newest is the last.

    Raises `RegistryError` where that is not known: only Avro's are compared.
    """
    if level is Level.NONE or not previous:
        return []
    considered = previous if level.is_transitive else previous[-1:]
    for schema in (new, *considered):
        require_compared(schema.type, level)
    found = []
    newer = _avro(new, lookup)
    for schema in reversed(considered):
        older = _avro(schema, lookup)
        if level.new_reads_old:
            found += [
                f"the new schema cannot read what the old one writes: {why}" for why in problems_of_reader(newer, older)
            ]
        if level.old_reads_new:
            found += [
                f"the old schema cannot read what the new one writes: {why}" for why in problems_of_reader(older, newer)
            ]
    return found


def require_compared(kind: SchemaType, level: Level) -> None:
    """Raises `RegistryError` when schemas of this type cannot be held to this level."""
    if level is not Level.NONE and kind not in COMPARED:
        raise RegistryError(
            RegistryCode.INVALID_COMPATIBILITY_LEVEL,
            f"the compatibility of {kind} schemas is not checked here, so the level {level} cannot be kept: set the "
            "subject's level to NONE (PUT /config/SUBJECT) to register another version",
        )


def _avro(schema: Schema, lookup: Lookup) -> AvroSchema:
    return read_avro(schema.text, dict(_referenced(schema, lookup)).values())


def _referenced(schema: Schema, lookup: Lookup) -> Iterator[tuple[str, str]]:
    """Name and text of each schema that this one refers to, in one or several steps, each after its own."""
    done: set[str] = set()
    yield from _walk(schema.references, lookup, done, ())


def _walk(
    references: tuple[Reference, ...], lookup: Lookup, done: set[str], path: tuple[Reference, ...]
) -> Iterator[tuple[str, str]]:
    for reference in references:
        if reference.name in done:
            continue
        schema = lookup(reference.subject, reference.version)
        if schema is None:
            raise invalid_schema(
                f'no schema for the reference "{reference.name}": {reference.subject} has no version '
                f"{reference.version}"
            )
        if reference in path:
            raise invalid_schema(f'the reference "{reference.name}" refers to itself')
        yield from _walk(schema.references, lookup, done, (*path, reference))
        done.add(reference.name)
        yield reference.name, schema.text
