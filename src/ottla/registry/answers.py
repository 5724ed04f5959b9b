"""Requests and responses of Confluent's REST API as JSON objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.registry.checks import SERIALIZED, Answers, Lookup, rendered
from ottla.registry.decisions import LATEST, schema_type
from ottla.registry.errors import RegistryCode, RegistryError, invalid_schema
from ottla.registry.schema import Reference, Schema, SchemaType, SubjectVersion
from ottla.registry.state import RegistryState

Json = Any

VERSION_MAX: Final = 2**31 - 1
# Fields of a request: supported ones, and unsupported ones that are refused unless they are empty.
_SCHEMA_FIELDS: Final = frozenset({"schema", "schemaType", "references"})
_UNUSED_FIELDS: Final = frozenset({"subject", "guid"})


def schema_of(body: Mapping[str, Json]) -> Schema:
    """The schema of a request.  Raises `RegistryError`, also for unsupported fields."""
    for name, found in body.items():
        if name in _SCHEMA_FIELDS or name in _UNUSED_FIELDS or not found or found == -1:
            continue
        raise RegistryError(
            RegistryCode.OPERATION_NOT_PERMITTED,
            f"the field {name} of a request is not offered: schemas have no metadata and rules here, and get their "
            "id and version automatically",
        )
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise invalid_schema("Empty schema: a request has the schema as a text in its field schema")
    return Schema(schema_type(body.get("schemaType")), text, _references(body.get("references") or []))


def version_number(text: str) -> int:
    """`latest` and -1 are -1."""
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdigit() and 1 <= int(text[:11]) <= VERSION_MAX:
        return int(text)
    raise RegistryError(
        RegistryCode.INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def version_answer(state: RegistryState, found: SubjectVersion, answers: Answers, form: str = "") -> dict[str, Json]:
    answer: dict[str, Json] = {"subject": found.subject, "version": found.version, "id": found.id}
    answer |= schema_answer(state.lookup, found.schema, answers, form)
    answer |= _shown_others(found)
    if found.is_deleted:
        answer["deleted"] = True
    return answer


def schema_answer(lookup: Lookup, schema: Schema, answers: Answers, form: str = "") -> dict[str, Json]:
    if form not in ("", SERIALIZED):
        raise RegistryError(
            RegistryCode.OPERATION_NOT_PERMITTED, f"the format {form} is not offered; there is {SERIALIZED}"
        )
    answer: dict[str, Json] = {}
    if schema.type is not SchemaType.AVRO:
        answer["schemaType"] = schema.type.value
    if schema.references:
        answer["references"] = [reference._asdict() for reference in schema.references]
    return {**answer, "schema": rendered(schema, lookup, answers, form)}


def others_of_id(state: RegistryState, schema_id: int) -> dict[str, Json]:
    """What an answer has besides the schema."""
    places = state.places(schema_id, deleted=True)
    return _shown_others(places[0]) if places else {}


def _shown_others(found: SubjectVersion) -> dict[str, Json]:
    return {name: found.others[name] for name in ("metadata", "ruleSet") if name in found.others}


def _references(given: Json) -> tuple[Reference, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise invalid_schema("the references of a schema are a list")
    found = []
    for each in given:
        if (
            not isinstance(each, dict)
            or not isinstance(each.get("name"), str)
            or not isinstance(each.get("subject"), str)
        ):
            raise invalid_schema(f"a reference has a name, a subject and a version, and this has not: {each!r}"[:200])
        version = each.get("version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise invalid_schema(f"the version of the reference {each['name']!r} is no number: {version!r}"[:200])
        found.append(Reference(each["name"], each["subject"], version))
    return tuple(found)
