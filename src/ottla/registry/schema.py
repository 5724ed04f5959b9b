"""The content of a registry: schemas with their references, the versions of subjects, levels of compatibility."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

# A version is four bytes with a sign.
_INT_MASK: Final = 2**32 - 1


class Level(StrEnum):
    """BACKWARD: the new schema reads what the last one wrote; FORWARD: the last one reads what the new one writes;
    FULL: both.  The transitive levels compare with all versions of the subject.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))


DEFAULT_LEVEL: Final = Level.BACKWARD


class Mode(StrEnum):
    """Whether a subject accepts changes."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"


DEFAULT_MODE: Final = Mode.READWRITE


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

    @property
    def guid(self) -> str:
        """The same in every registry: the MD5 of text and references, as Confluent's registry computes it."""
        digest = hashlib.md5(self.text.encode(), usedforsecurity=False)
        for name, subject, version in self.references:
            digest.update(f"{name}{subject}".encode() + (version & _INT_MASK).to_bytes(4))
        return str(UUID(bytes=digest.digest()))


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A schema's place in a subject.  `others` are fields of the topic's record that we keep and do not use."""

    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False
    others: Mapping[str, object] = field(default_factory=dict)
