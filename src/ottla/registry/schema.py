"""The content of a registry: schemas with their references, and the versions of subjects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class SchemaType(StrEnum):
    """As the REST API and the topic have it; a schema without one is AVRO."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Reference(NamedTuple):
    """Another schema that a schema uses: `name` is how it is called there (a full name, a path, a URL)."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """Two that are equal have the same id.  `text` is in the form in which it is kept (see formats.py)."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A schema's place in a subject.  `others` are fields of the topic's record that we keep and do not use."""

    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False
    others: Mapping[str, object] = field(default_factory=dict)
