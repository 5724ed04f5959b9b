"""What the topic's records add up to: the one function for replay and for live traffic.

The topic itself decides which registry writes.  A registry that wants to write claims it, by a NOOP record with its
address; the claim's offset is its number, which each of its records carries.  A record with an older number than the
newest claim before it arrived too late: it was never acknowledged, and every registry skips it.  Compaction
does not know that: it would keep such a record and remove the one that it seems to replace.  So the writer writes the
latter once more (`overtaken`), and the topic keeps its records uncompacted for much longer than that takes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ottla.observe.events import fields
from ottla.registry.records import (
    ClearSubjectKey,
    ConfigKey,
    DeleteSubjectKey,
    Key,
    ModeKey,
    NoopKey,
    SchemaKey,
    Value,
    decode_key,
    decode_value,
    version_of,
)
from ottla.registry.schema import DEFAULT_LEVEL, DEFAULT_MODE, Level, Reference, Schema, SubjectVersion

log = logging.getLogger(__name__)

LEVEL_FIELD: Final = "compatibilityLevel"
MODE_FIELD: Final = "mode"


class WriterClaim(NamedTuple):
    """`number` is the offset of its record; `url` is where its registry takes requests."""

    number: int
    instance: str
    url: str


class RegistryState:
    """Subjects, versions and settings as of `next_offset`.  One thread applies records.

    Others may ask between two records: with `lock`.
    """

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self.next_offset = 0
        self.claim: WriterClaim | None = None
        # The largest id that was ever given: an id that was deleted must not come to mean another schema.
        self.id_max = 0
        self._versions: dict[str, dict[int, SubjectVersion]] = {}
        self._ids: dict[int, Schema] = {}
        self._id_of: dict[Schema, int] = {}
        self._of_guid: dict[str, Schema] = {}
        self._places: dict[int, set[SchemaKey]] = {}
        self._referrers: dict[tuple[str, int], set[SchemaKey]] = {}
        self._configs: dict[str | None, Value] = {}
        self._modes: dict[str | None, Value] = {}
        # The last accepted value of each key, as it was written.
        self._values: dict[bytes, bytes | None] = {}
        self._overtaken: dict[bytes, None] = {}

    def apply(self, offset: int, key: bytes | None, value: bytes | None, claimed: int | None) -> None:
        """The next record; `claimed` is the number that it carries, None for a registry without claims."""
        with self.lock:
            self._apply(offset, key, value, claimed)

    def _apply(self, offset: int, key: bytes | None, value: bytes | None, claimed: int | None) -> None:
        self.next_offset = offset + 1
        try:
            found, content = decode_key(key), decode_value(value)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("record.ignored", extra=fields(offset=offset, error=str(error)))
            return
        if found is None or key is None:
            return
        if isinstance(found, NoopKey):
            self._take_claim(offset, content)
            return
        if claimed is not None and self.claim is not None and claimed < self.claim.number:
            self._overtaken[key] = None
            return
        self._overtaken.pop(key, None)
        try:
            self._take(found, content)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("record.ignored", extra=fields(offset=offset, error=repr(error)))
            return
        self._values[key] = value

    def skip_to(self, offset: int) -> None:
        """There are no more records below `offset`."""
        self.next_offset = max(self.next_offset, offset)

    def overtaken(self) -> list[tuple[bytes, bytes | None]]:
        """Keys whose last record in the topic does not count, and what does."""
        return [(key, self._values.get(key)) for key in self._overtaken]

    # The current content.

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """By name; with `deleted` also those that have deleted versions only."""
        return sorted(subject for subject in self._versions if self.versions(subject, deleted=deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        """In ascending order; empty when there is no such subject."""
        found = self._versions.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].is_deleted]

    def version(self, subject: str, number: int) -> SubjectVersion | None:
        """Also a deleted one."""
        return self._versions.get(subject, {}).get(number)

    def lookup(self, subject: str, number: int) -> Schema | None:
        """The schema of a version, also of a deleted one: as references need it.  -1 is the latest."""
        if number < 0:
            latest = self.versions(subject)
            return latest[-1].schema if latest else None
        found = self.version(subject, number)
        return None if found is None else found.schema

    def schema(self, schema_id: int) -> Schema | None:
        return self._ids.get(schema_id)

    def id_of(self, schema: Schema) -> int | None:
        return self._id_of.get(schema)

    def id_of_guid(self, guid: str) -> int | None:
        found = self._of_guid.get(guid)
        return None if found is None else self._id_of.get(found)

    def places(self, schema_id: int, *, deleted: bool = False) -> list[SubjectVersion]:
        """Where a schema is registered."""
        found = (self._versions[key.subject][key.version] for key in sorted(self._places.get(schema_id, ())))
        return [each for each in found if deleted or not each.is_deleted]

    def referrers(self, subject: str, number: int, *, deleted: bool = False) -> list[SubjectVersion]:
        """The versions whose schemas refer to this one."""
        keys = sorted(self._referrers.get((subject, number), ()))
        found = (self._versions[key.subject][key.version] for key in keys)
        return [each for each in found if deleted or not each.is_deleted]

    def config(self, subject: str | None) -> Value | None:
        """The settings of a subject, or with None those of all; None when none were set."""
        return self._configs.get(subject)

    def mode(self, subject: str | None) -> Value | None:
        return self._modes.get(subject)

    def level_in_force(self, subject: str) -> Level:
        """Raises `ValueError` for one that another registry has written and that does not exist."""
        for scope in (subject, None):
            level = self._configs.get(scope, {}).get(LEVEL_FIELD)
            if level is not None:
                return Level(level)
        return DEFAULT_LEVEL

    def mode_in_force(self, subject: str) -> str:
        for scope in (subject, None):
            mode = self._modes.get(scope, {}).get(MODE_FIELD)
            if mode is not None:
                return str(mode)
        return DEFAULT_MODE

    def normalizes(self, subject: str) -> bool:
        scopes = (self._configs.get(scope, {}).get("normalize") for scope in (subject, None))
        return bool(next((found for found in scopes if found is not None), False))

    # How it changes.

    def _take_claim(self, offset: int, content: Value | None) -> None:
        if content is None or "instance" not in content:
            return
        self.claim = WriterClaim(offset, str(content["instance"]), str(content.get("url", "")))
        self.id_max = max(self.id_max, int(content.get("idMax", 0)))

    def _take(self, key: Key, content: Value | None) -> None:
        match key:
            case SchemaKey():
                self._take_version(key, content)
            case DeleteSubjectKey(subject) if content is not None:
                last = int(content["version"])
                for version in self.versions(subject):
                    if version.version <= last:
                        self._versions[subject][version.version] = replace(version, is_deleted=True)
            case ClearSubjectKey(subject):
                for version in self.versions(subject, deleted=True):
                    self._forget(SchemaKey(subject, version.version))
            case ConfigKey(subject):
                _set(self._configs, subject, content)
            case ModeKey(subject):
                _set(self._modes, subject, content)

    def _take_version(self, key: SchemaKey, content: Value | None) -> None:
        version = None if content is None else version_of(content)
        self._forget(key)
        if version is None:
            return
        self._versions.setdefault(key.subject, {})[key.version] = version
        self.id_max = max(self.id_max, version.id)
        self._ids[version.id] = version.schema
        self._id_of.setdefault(version.schema, version.id)
        self._of_guid.setdefault(version.schema.guid, version.schema)
        self._places.setdefault(version.id, set()).add(key)
        for place in _targets(version.schema.references):
            self._referrers.setdefault(place, set()).add(key)

    def _forget(self, key: SchemaKey) -> None:
        version = self._versions.get(key.subject, {}).pop(key.version, None)
        if version is None:
            return
        if not self._versions[key.subject]:
            del self._versions[key.subject]
        for place in _targets(version.schema.references):
            self._referrers[place].discard(key)
        places = self._places[version.id]
        places.discard(key)
        if not places:
            del self._places[version.id]
            del self._ids[version.id]
            if self._id_of.get(version.schema) == version.id:
                del self._id_of[version.schema]
                if self._of_guid.get(version.schema.guid) == version.schema:
                    del self._of_guid[version.schema.guid]


def _targets(references: Iterable[Reference]) -> Iterator[tuple[str, int]]:
    return ((reference.subject, reference.version) for reference in references)


def _set(table: dict[str | None, Value], subject: str | None, content: Mapping[str, object] | None) -> None:
    if content is None:
        table.pop(subject, None)
    else:
        table[subject] = content
