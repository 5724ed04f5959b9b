"""The records of the topic `_schemas`, in Confluent's format: a registry of theirs reads our topic, and we read theirs.

Keys are JSON, and their bytes are what compaction compares, so they are written exactly as Confluent's registry does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.registry.schema import Reference, Schema, SchemaType, SubjectVersion

CLAIM_HEADER: Final = "ottla.claim"
_VALUE_FIELDS: Final = ("subject", "version", "id", "schema", "schemaType", "references", "deleted")


class SchemaKey(NamedTuple):
    subject: str
    version: int


class DeleteSubjectKey(NamedTuple):
    """All versions of the subject up to one are deleted."""

    subject: str


class ClearSubjectKey(NamedTuple):
    subject: str


class ConfigKey(NamedTuple):
    """`subject` is None for the setting of all subjects."""

    subject: str | None


class ModeKey(NamedTuple):
    subject: str | None


class NoopKey(NamedTuple):
    """Confluent's registry writes it to find the end; for us it names the writer (state.py)."""


Key: TypeAlias = SchemaKey | DeleteSubjectKey | ClearSubjectKey | ConfigKey | ModeKey | NoopKey
Value: TypeAlias = Mapping[str, Any]

# The name of each kind, and its format's version.
_KINDS: Final[Mapping[type[Key], tuple[str, int]]] = {
    SchemaKey: ("SCHEMA", 1),
    DeleteSubjectKey: ("DELETE_SUBJECT", 0),
    ClearSubjectKey: ("CLEAR_SUBJECT", 0),
    ConfigKey: ("CONFIG", 0),
    ModeKey: ("MODE", 0),
    NoopKey: ("NOOP", 0),
}
_TYPES: Final[Mapping[str, type[Key]]] = {name: kind for kind, (name, _) in _KINDS.items()}


class Change(NamedTuple):
    """A record to be written; a value of None removes the key's."""

    key: Key
    value: Value | None


def encode_key(key: Key) -> bytes:
    name, magic = _KINDS[type(key)]
    fields: dict[str, object] = {"keytype": name, **key._asdict(), "magic": magic}
    return _json({each: found for each, found in fields.items() if found is not None})


def encode_value(value: Value | None) -> bytes | None:
    return None if value is None else _json(value)


def decode_key(data: bytes | None) -> Key | None:
    """None for unknown kinds: newer registries have more.  Raises `ValueError` for an invalid key."""
    found = json.loads(data or b"null")
    if not isinstance(found, dict):
        raise ValueError(f"no key of a registry: {data!r}")
    kind = _TYPES.get(str(found.get("keytype")))
    if kind is None:
        return None
    subject = found.get("subject")
    if kind is NoopKey:
        return NoopKey()
    if kind in (ConfigKey, ModeKey):
        return ConfigKey(subject) if kind is ConfigKey else ModeKey(subject)
    if not isinstance(subject, str):
        raise ValueError(f"a key without a subject: {data!r}")
    if kind is SchemaKey:
        return SchemaKey(subject, int(found["version"]))
    return DeleteSubjectKey(subject) if kind is DeleteSubjectKey else ClearSubjectKey(subject)


def decode_value(data: bytes | None) -> Value | None:
    """Raises `ValueError` for an invalid value."""
    found = None if data is None else json.loads(data)
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"no value of a registry: {data!r}")
    return found


def claim_change(instance: str, url: str, id_max: int) -> Change:
    """`id_max`: the largest id that was ever given, so that compaction leaves it known."""
    return Change(NoopKey(), {"instance": instance, "url": url, "idMax": id_max})


def version_change(version: SubjectVersion) -> Change:
    schema = version.schema
    value: dict[str, object] = {"subject": version.subject, "version": version.version, "id": version.id}
    if schema.type is not SchemaType.AVRO:
        value["schemaType"] = schema.type.value
    if schema.references:
        value["references"] = [reference._asdict() for reference in schema.references]
    value |= version.others
    value |= {"schema": schema.text, "deleted": version.is_deleted}
    return Change(SchemaKey(version.subject, version.version), value)


def version_of(value: Value) -> SubjectVersion:
    """Raises `ValueError` or `KeyError` for an invalid one."""
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in value.get("references") or ()
    )
    schema = Schema(SchemaType(value.get("schemaType") or SchemaType.AVRO), str(value["schema"]), references)
    return SubjectVersion(
        str(value["subject"]),
        int(value["version"]),
        int(value["id"]),
        schema,
        is_deleted=bool(value.get("deleted", False)),
        others={name: found for name, found in value.items() if name not in _VALUE_FIELDS and found is not None},
    )


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
