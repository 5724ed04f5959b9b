"""Decides the changes and the response of a request from the current state, without I/O.

Errors are `RegistryError`s; then nothing is written.  `ChecksMissing` requests outcomes of checks (checks.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ottla.registry.checks import Answers, incompatibilities, kept
from ottla.registry.errors import RegistryCode, RegistryError, schema_not_found, subject_not_found, version_not_found
from ottla.registry.records import Change, ConfigKey, DeleteSubjectKey, ModeKey, SchemaKey, version_change
from ottla.registry.schema import DEFAULT_LEVEL, DEFAULT_MODE, Level, Mode, Schema, SchemaType, SubjectVersion
from ottla.registry.state import LEVEL_FIELD, MODE_FIELD, RegistryState

LATEST: Final = -1
# The only settings of a subject that have an effect here; the others of Confluent's are refused by name.
CONFIG_FIELDS: Final = ("compatibility", LEVEL_FIELD, "normalize")


class RegistryDecision(NamedTuple):
    """The answer is true once the changes are stored."""

    answer: Any
    changes: Sequence[Change] = ()

    @property
    def forgets_ids(self) -> bool:
        """Whether some ids are in no record of the topic once it is compacted: a claim must record them before."""
        return any(isinstance(key, SchemaKey) and value is None for key, value in self.changes)


# Schemas.


def register(
    state: RegistryState, subject: str, given: Schema, answers: Answers, *, normalize: bool = False
) -> RegistryDecision:
    """The version of the subject that has this schema, a new one if none has."""
    require_subject(subject)
    require_writable(state, subject)
    schema = kept(given, state.lookup, answers, normalize=normalize or state.normalizes(subject))
    existing = _with_schema(state.versions(subject), schema)
    if existing is not None:
        return RegistryDecision(existing)
    level = _level(state, subject)
    previous = [each.schema for each in state.versions(subject)]
    problems = incompatibilities(level, schema, previous, state.lookup, answers)
    if problems:
        raise RegistryError(
            RegistryCode.INCOMPATIBLE_SCHEMA,
            f"Schema being registered is incompatible with an earlier schema for subject '{subject}' "
            f"(compatibility level {level}): {'; '.join(problems)}",
        )
    numbers = [each.version for each in state.versions(subject, deleted=True)]
    schema_id = state.id_of(schema)
    made = SubjectVersion(
        subject, max(numbers, default=0) + 1, state.id_max + 1 if schema_id is None else schema_id, schema
    )
    return RegistryDecision(made, [version_change(made)])


def look_up(
    state: RegistryState,
    subject: str,
    given: Schema,
    answers: Answers,
    *,
    normalize: bool = False,
    deleted: bool = False,
) -> SubjectVersion:
    """The version of the subject that has this schema."""
    schema = kept(given, state.lookup, answers, normalize=normalize or state.normalizes(subject))
    versions = require_versions(state, subject, deleted=deleted)
    found = _with_schema(versions, schema)
    if found is None:
        raise schema_not_found()
    return found


def compatibility_problems(
    state: RegistryState, subject: str, number: int | None, given: Schema, answers: Answers, *, normalize: bool = False
) -> list[str]:
    """Why a schema may not be registered; `number`: compared with this version alone, -1 with the latest."""
    previous = state.versions(subject)
    if number is not None:
        previous = previous[-1:] if number == LATEST else [_present(state, subject, number)]
    schema = kept(given, state.lookup, answers, normalize=normalize or state.normalizes(subject))
    schemas = [each.schema for each in previous]
    return incompatibilities(_level(state, subject), schema, schemas, state.lookup, answers)


def version_at(state: RegistryState, subject: str, number: int, *, deleted: bool = False) -> SubjectVersion:
    """-1 is the latest."""
    versions = require_versions(state, subject, deleted=deleted)
    if number == LATEST:
        return versions[-1]
    return next((each for each in versions if each.version == number), None) or _no_version(number)


def with_metadata(
    state: RegistryState, subject: str, wanted: Mapping[str, str], *, deleted: bool = False
) -> SubjectVersion:
    """The newest version whose metadata has all these properties."""
    for version in reversed(require_versions(state, subject, deleted=deleted)):
        metadata = version.others.get("metadata")
        properties = metadata.get("properties") if isinstance(metadata, Mapping) else None
        if wanted.items() <= dict(properties or {}).items():
            return version
    raise schema_not_found()


def delete_version(state: RegistryState, subject: str, number: int, *, permanent: bool) -> RegistryDecision:
    """Softly first: it is not listed any more, and its id still decodes existing records."""
    require_writable(state, subject)
    if number == LATEST:
        version = version_at(state, subject, number, deleted=permanent)
    else:
        require_versions(state, subject, deleted=True)
        version = state.version(subject, number) or _no_version(number)
    number = version.version
    if permanent and not version.is_deleted:
        raise RegistryError(
            RegistryCode.VERSION_NOT_SOFT_DELETED,
            f"Subject '{subject}' Version {number} was not deleted first before being permanently deleted",
        )
    if not permanent and version.is_deleted:
        raise RegistryError(
            RegistryCode.VERSION_SOFT_DELETED,
            f"Subject '{subject}' Version {number} was soft deleted. Set permanent=true to delete permanently",
        )
    _require_unused(state, [version], permanent=permanent)
    if not permanent:
        return RegistryDecision(number, [version_change(replace(version, is_deleted=True))])
    changes = [Change(SchemaKey(subject, number), None)]
    if state.versions(subject, deleted=True) == [version]:
        changes += _settings_removed(state, subject)
    return RegistryDecision(number, changes)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> RegistryDecision:
    """All its versions."""
    require_writable(state, subject)
    versions = state.versions(subject, deleted=True)
    if not versions:
        raise subject_not_found(subject)
    present = state.versions(subject)
    if permanent and present:
        raise RegistryError(
            RegistryCode.SUBJECT_NOT_SOFT_DELETED,
            f"Subject '{subject}' was not deleted first before being permanently deleted",
        )
    if not permanent and not present:
        raise RegistryError(
            RegistryCode.SUBJECT_SOFT_DELETED,
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
        )
    concerned = versions if permanent else present
    _require_unused(state, concerned, permanent=permanent)
    numbers = [each.version for each in concerned]
    if not permanent:
        value = {"subject": subject, "version": numbers[-1]}
        return RegistryDecision(numbers, [Change(DeleteSubjectKey(subject), value)])
    removed = [Change(SchemaKey(subject, number), None) for number in reversed(numbers)]
    return RegistryDecision(
        numbers, [*removed, Change(DeleteSubjectKey(subject), None), *_settings_removed(state, subject)]
    )


# Settings.


def set_config(state: RegistryState, subject: str | None, asked: Mapping[str, Any]) -> RegistryDecision:
    """The level of a subject, or with None of all that have none."""
    if subject is not None:
        require_subject(subject)
    for name, found in asked.items():
        if name not in CONFIG_FIELDS and found is not None:
            raise RegistryError(
                RegistryCode.OPERATION_NOT_PERMITTED,
                f"the setting {name} is not offered; there are compatibility and normalize",
            )
    require_writable(state, subject)
    value = dict(state.config(subject) or {})
    wanted = asked.get("compatibility", asked.get(LEVEL_FIELD))
    if wanted is not None:
        value[LEVEL_FIELD] = _checked_level(wanted).value
    if asked.get("normalize") is not None:
        value["normalize"] = bool(asked["normalize"])
    if subject is not None:
        value = {"subject": subject, **value}
    answer = {name: found for name, found in asked.items() if found is not None}
    return RegistryDecision(answer, [Change(ConfigKey(subject), value)])


def remove_config(state: RegistryState, subject: str | None) -> RegistryDecision:
    """Back to the setting of all, or with None to the default."""
    require_writable(state, subject)
    found = state.config(subject)
    if found is None:
        if subject is not None:
            raise subject_not_found(subject)
        return RegistryDecision({LEVEL_FIELD: DEFAULT_LEVEL.value})
    return RegistryDecision(config_answer(found), [Change(ConfigKey(subject), None)])


def config(state: RegistryState, subject: str | None, *, default_to_global: bool = False) -> dict[str, Any]:
    found = state.config(subject)
    if found is None and subject is not None and not default_to_global:
        raise RegistryError(
            RegistryCode.SUBJECT_COMPATIBILITY_NOT_SET,
            f"Subject '{subject}' does not have subject-level compatibility configured",
        )
    return {LEVEL_FIELD: DEFAULT_LEVEL.value, **config_answer(state.config(None) or {}), **config_answer(found or {})}


def config_answer(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "subject" and value is not None}


def set_mode(state: RegistryState, subject: str | None, mode: object) -> RegistryDecision:
    """READONLY refuses changes."""
    if subject is not None:
        require_subject(subject)
    try:
        wanted = Mode(str(mode).upper())
    except ValueError:
        raise RegistryError(
            RegistryCode.INVALID_MODE, f"the mode {mode} is not offered; there are {' and '.join(Mode)}"
        ) from None
    value = {MODE_FIELD: wanted.value}
    return RegistryDecision(
        value, [Change(ModeKey(subject), value if subject is None else {"subject": subject, **value})]
    )


def remove_mode(state: RegistryState, subject: str) -> RegistryDecision:
    found = state.mode(subject)
    if found is None:
        raise subject_not_found(subject)
    return RegistryDecision({MODE_FIELD: found[MODE_FIELD]}, [Change(ModeKey(subject), None)])


def mode(state: RegistryState, subject: str | None, *, default_to_global: bool = False) -> dict[str, Any]:
    found = state.mode(subject)
    if found is None and subject is not None and not default_to_global:
        raise RegistryError(
            RegistryCode.SUBJECT_MODE_NOT_SET, f"Subject '{subject}' does not have subject-level mode configured"
        )
    found = found or state.mode(None) or {}
    return {MODE_FIELD: found.get(MODE_FIELD, DEFAULT_MODE.value)}


# Rules.


def require_subject(subject: str) -> None:
    """Contexts (`:.context:subject`) are not offered."""
    if (
        not subject
        or subject.startswith((":.", ":*:"))
        or subject in ("__GLOBAL", "__EMPTY")
        or not subject.isprintable()
    ):
        raise RegistryError(
            RegistryCode.INVALID_SUBJECT,
            f"The specified subject '{subject}' is not a valid subject; contexts are not offered",
        )


def require_writable(state: RegistryState, subject: str | None) -> None:
    mode = (
        state.mode_in_force(subject)
        if subject is not None
        else str((state.mode(None) or {}).get(MODE_FIELD, DEFAULT_MODE))
    )
    if mode != Mode.READWRITE:
        which = "The registry" if subject is None else f"Subject {subject}"
        raise RegistryError(RegistryCode.OPERATION_NOT_PERMITTED, f"{which} is in {mode} mode")


def require_versions(state: RegistryState, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
    versions = state.versions(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    return versions


def _present(state: RegistryState, subject: str, number: int) -> SubjectVersion:
    found = state.version(subject, number)
    return found if found is not None and not found.is_deleted else _no_version(number)


def _no_version(number: int) -> SubjectVersion:
    raise version_not_found(number)


def _with_schema(versions: Sequence[SubjectVersion], schema: Schema) -> SubjectVersion | None:
    """The newest."""
    return next((each for each in reversed(versions) if each.schema == schema), None)


def _level(state: RegistryState, subject: str) -> Level:
    try:
        return state.level_in_force(subject)
    except ValueError as error:
        raise RegistryError(
            RegistryCode.INVALID_COMPATIBILITY_LEVEL, f"{error}: set the level of '{subject}' again"
        ) from None


def _checked_level(wanted: object) -> Level:
    try:
        return Level(str(wanted).upper())
    except ValueError:
        raise RegistryError(
            RegistryCode.INVALID_COMPATIBILITY_LEVEL,
            f"Invalid compatibility level {wanted}. Valid values are {', '.join(Level)}",
        ) from None


def _require_unused(state: RegistryState, versions: Sequence[SubjectVersion], *, permanent: bool) -> None:
    """Nothing that stays refers to them."""
    subjects = {each.subject for each in versions} if len(versions) > 1 else set()
    for version in versions:
        for other in state.referrers(version.subject, version.version, deleted=permanent):
            if other.subject not in subjects:
                raise RegistryError(
                    RegistryCode.REFERENCE_EXISTS,
                    f"One or more references exist to the schema: {other.subject} version {other.version} refers to "
                    f"{version.subject} version {version.version}",
                )


def _settings_removed(state: RegistryState, subject: str) -> list[Change]:
    changes: list[Change] = []
    if state.config(subject) is not None:
        changes.append(Change(ConfigKey(subject), None))
    if state.mode(subject) is not None:
        changes.append(Change(ModeKey(subject), None))
    return changes


def schema_type(name: object) -> SchemaType:
    """Of a request; none is AVRO."""
    try:
        return SchemaType(str(name or SchemaType.AVRO).upper())
    except ValueError:
        raise RegistryError(
            RegistryCode.INVALID_SCHEMA, f"Invalid schema type {name}. There are {', '.join(SchemaType)}"
        ) from None
