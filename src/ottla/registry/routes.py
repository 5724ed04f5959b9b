"""Confluent's REST API: the call of the registry for each path, requests and responses as JSON objects.

Pure but for the registry that it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from ottla.registry import decisions
from ottla.registry.checks import SERIALIZED, Answers, Lookup, rendered
from ottla.registry.decisions import LATEST, RegistryDecision, schema_type
from ottla.registry.errors import RegistryCode, RegistryError, invalid_schema, schema_not_found
from ottla.registry.schema import Reference, Schema, SchemaType, SubjectVersion
from ottla.registry.service import Registry
from ottla.registry.state import RegistryState

Json = Any

VERSION_MAX: Final = 2**31 - 1
# As paths have it, and as subjects do.
DEFAULT_CONTEXT_NAMES: Final = (".", ":.:")
# Paths of Confluent's platform, with what they are for.  Not among them is `associations`: serializers look a topic's
# subject up there, and 404 means to them that it has none.
_NOT_OFFERED: Final = {
    "catalog": "catalogs",
    "dek-registry": "encryption keys",
    "exporters": "exporters",
}
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
    answer["guid"] = found.schema.guid
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


class Request(NamedTuple):
    """`path` is the part of each `*` in the route; `query` has the last value of each name; `body` is an object.

    `repeated` has all values of each name of the query.
    """

    path: Sequence[str]
    query: Mapping[str, str]
    body: Mapping[str, Json]
    repeated: Mapping[str, Sequence[str]] = {}

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        try:
            return int(text) if text else default
        except ValueError:
            raise RegistryError(RegistryCode.INVALID_VERSION, f"{name}={text} is no number") from None

    @property
    def form(self) -> str:
        return self.query.get("format", "").strip()


Handler = Callable[[Registry, Request], Json]


class Match(NamedTuple):
    method: str
    handler: Handler
    path: Sequence[str]


def route(method: str, raw_path: str) -> Match | None:
    """The handler of a path; None: no such path.  `raw_path` is not unquoted yet: a subject may have a slash.

    Raises `MethodNotAllowed`, and `RegistryError` for what registries have that this one does not offer.
    """
    parts = _in_default_context([unquote(part) for part in raw_path.strip("/").split("/")])
    if parts[0] in _NOT_OFFERED:
        raise RegistryError(RegistryCode.OPERATION_NOT_PERMITTED, f"{_NOT_OFFERED[parts[0]]} are not offered")
    others = False
    for (allowed, pattern), handler in _ROUTES.items():
        wanted = pattern.split("/")
        if len(wanted) == len(parts) and all(w in ("*", part) for w, part in zip(wanted, parts, strict=True)):
            if allowed == method:
                return Match(method, handler, [part for w, part in zip(wanted, parts, strict=True) if w == "*"])
            others = True
    if others:
        raise MethodNotAllowed(method)
    return None


def _in_default_context(parts: list[str]) -> list[str]:
    """A path may name the context first: `/contexts/:.:/subjects` is `/subjects`."""
    if parts[0] != "contexts" or len(parts) == 1:
        return parts
    if parts[1] not in DEFAULT_CONTEXT_NAMES:
        raise RegistryError(
            RegistryCode.INVALID_SUBJECT,
            f"there is no context {parts[1]}; contexts other than the default are not offered",
        )
    return parts[2:] or [""]


def changes_something(method: str, raw_path: str) -> bool:
    """Whether a request needs the role write; lookups and tests of compatibility are sent with POST, too."""
    if method in ("GET", "HEAD"):
        return False
    try:
        match = route(method, raw_path)
    except (MethodNotAllowed, RegistryError):
        return True
    return match is None or match.handler not in (_look_up, _compatible)


class MethodNotAllowed(Exception):
    """The path has other methods."""


# Subjects and versions.


def _subjects(registry: Registry, request: Request) -> Json:
    prefix = request.query.get("subjectPrefix", "").removeprefix(":*:")
    only_deleted = request.flag("deletedOnly")

    def ask(state: RegistryState) -> list[str]:
        found = state.subjects(deleted=only_deleted or request.flag("deleted"))
        if only_deleted:
            found = [subject for subject in found if not state.versions(subject)]
        return [subject for subject in found if subject.startswith(prefix)]

    return _page(registry.read(ask), request)


def _versions(registry: Registry, request: Request) -> Json:
    def ask(state: RegistryState) -> list[int]:
        deleted = request.flag("deleted") or request.flag("deletedOnly")
        found = decisions.require_versions(state, request.path[0], deleted=deleted)
        return [each.version for each in found if each.is_deleted or not request.flag("deletedOnly")]

    return _page(registry.read(ask), request)


def _version(registry: Registry, request: Request) -> Json:
    subject, number = request.path[0], version_number(request.path[1])

    def ask(state: RegistryState, answers: Answers) -> Json:
        found = decisions.version_at(state, subject, number, deleted=request.flag("deleted"))
        return version_answer(state, found, answers, request.form)

    return registry.answered(lambda answers: registry.read(lambda state: ask(state, answers)))


def _version_text(registry: Registry, request: Request) -> Json:
    return RawText(_version(registry, request)["schema"])


def _referenced_by(registry: Registry, request: Request) -> Json:
    subject, number = request.path[0], version_number(request.path[1])

    def ask(state: RegistryState) -> list[int]:
        version = decisions.version_at(state, subject, number, deleted=True)
        return sorted({each.id for each in state.referrers(subject, version.version, deleted=request.flag("deleted"))})

    return registry.read(ask)


def _register(registry: Registry, request: Request) -> Json:
    given, normalize = schema_of(request.body), request.flag("normalize")

    def decide(state: RegistryState, answers: Answers) -> RegistryDecision:
        return decisions.register(state, request.path[0], given, answers, normalize=normalize)

    decision = registry.answered(lambda answers: registry.change(lambda state: decide(state, answers)))
    made: SubjectVersion = decision.answer
    return {"id": made.id, "version": made.version, "guid": made.schema.guid, **_plain(made.schema)}


def _look_up(registry: Registry, request: Request) -> Json:
    given = schema_of(request.body)
    normalize, deleted = request.flag("normalize"), request.flag("deleted")

    def ask(state: RegistryState, answers: Answers) -> Json:
        found = decisions.look_up(state, request.path[0], given, answers, normalize=normalize, deleted=deleted)
        return version_answer(state, found, answers, request.form)

    return registry.answered(lambda answers: registry.read(lambda state: ask(state, answers)))


def _delete_version(registry: Registry, request: Request) -> Json:
    subject, number = request.path[0], version_number(request.path[1])
    permanent = request.flag("permanent")
    return _changed(registry, lambda state: decisions.delete_version(state, subject, number, permanent=permanent))


def _delete_subject(registry: Registry, request: Request) -> Json:
    permanent = request.flag("permanent")
    return _changed(registry, lambda state: decisions.delete_subject(state, request.path[0], permanent=permanent))


# Schemas by id.


def _schema(registry: Registry, request: Request) -> Json:
    schema_id = _id_in(request.path[0])

    # The schema of an id never changes: the topic is read only for an unknown id.
    with_id_max = request.flag("fetchMaxId")
    if with_id_max or registry.read_known(lambda state: state.schema(schema_id)) is None:
        id_max = registry.read(lambda state: state.id_max)
    schema = registry.read_known(lambda state: state.schema(schema_id))
    if schema is None:
        raise schema_not_found(schema_id)

    def lookup(subject: str, number: int) -> Schema | None:
        return registry.read_known(lambda state: state.lookup(subject, number))

    answer: dict[str, Json] = registry.answered(lambda answers: schema_answer(lookup, schema, answers, request.form))
    answer["guid"] = schema.guid
    answer |= registry.read_known(lambda state: others_of_id(state, schema_id)) or {}
    if with_id_max:
        answer["maxId"] = id_max
    return answer


def only_reads(match: Match, request: Request) -> bool:
    """Whether the request is answered from the topic, without a change and without a check."""
    return match.method == "GET" and not request.form


def is_known(registry: Registry, match: Match, request: Request) -> bool:
    """Whether the request is answered at once, from memory."""
    if match.handler not in (_schema, _schema_text) or request.form or request.flag("fetchMaxId"):
        return False
    text = request.path[0]
    if not (text.isascii() and text.isdigit()):
        return False
    return registry.read_known(lambda state: state.schema(_id_in(text))) is not None


def _schema_text(registry: Registry, request: Request) -> Json:
    return RawText(_schema(registry, request)["schema"])


def _places(registry: Registry, request: Request) -> list[SubjectVersion]:
    schema_id = _id_in(request.path[0])

    def ask(state: RegistryState) -> list[SubjectVersion]:
        if state.schema(schema_id) is None:
            raise schema_not_found(schema_id)
        wanted = request.query.get("subject")
        places = state.places(schema_id, deleted=request.flag("deleted"))
        return [each for each in places if not wanted or each.subject == wanted]

    return registry.read(ask)


def _with_metadata(registry: Registry, request: Request) -> Json:
    """The subject's newest version that has all of these: another registry may have written it with metadata."""
    keys, values = request.repeated.get("key", ()), request.repeated.get("value", ())
    wanted = dict(zip(keys, values, strict=False))
    deleted = request.flag("deleted")

    def ask(state: RegistryState, answers: Answers) -> Json:
        found = decisions.with_metadata(state, request.path[0], wanted, deleted=deleted)
        return version_answer(state, found, answers, request.form)

    return registry.answered(lambda answers: registry.read(lambda state: ask(state, answers)))


def _schema_of_guid(registry: Registry, request: Request) -> Json:
    return _schema(registry, request._replace(path=[str(_id_of_guid(registry, request))]))


def _ids_of_guid(registry: Registry, request: Request) -> Json:
    return [{"context": DEFAULT_CONTEXT_NAMES[0], "id": _id_of_guid(registry, request)}]


def _id_of_guid(registry: Registry, request: Request) -> int:
    guid = request.path[0].lower()
    found = registry.read_known(lambda state: state.id_of_guid(guid))
    if found is None:
        found = registry.read(lambda state: state.id_of_guid(guid))
    if found is None:
        raise RegistryError(RegistryCode.SCHEMA_NOT_FOUND, f"Schema {guid} not found")
    return found


def _schema_subjects(registry: Registry, request: Request) -> Json:
    return _page(sorted({each.subject for each in _places(registry, request)}), request)


def _schema_versions(registry: Registry, request: Request) -> Json:
    return _page([{"subject": each.subject, "version": each.version} for each in _places(registry, request)], request)


def _schemas(registry: Registry, request: Request) -> Json:
    prefix = request.query.get("subjectPrefix", "").removeprefix(":*:")

    def ask(state: RegistryState) -> Json:
        deleted = request.flag("deleted")
        found = []
        for subject in state.subjects(deleted=deleted):
            if subject.startswith(prefix):
                versions = state.versions(subject, deleted=deleted)
                found += versions[-1:] if request.flag("latestOnly") else versions
        return [version_answer(state, each, Answers()) for each in _page(found, request)]

    return registry.read(ask)


def _types(_: Registry, __: Request) -> Json:
    return [each.value for each in (SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO)]


# Compatibility, settings, modes.


def _compatible(registry: Registry, request: Request) -> Json:
    subject = request.path[0]
    number = version_number(request.path[1]) if len(request.path) > 1 else None
    verbose = request.flag("verbose")
    given = schema_of(request.body)

    normalize = request.flag("normalize")

    def ask(state: RegistryState, answers: Answers) -> list[str]:
        return decisions.compatibility_problems(state, subject, number, given, answers, normalize=normalize)

    try:
        problems = registry.answered(lambda answers: registry.read(lambda state: ask(state, answers)))
    except RegistryError as error:
        if not verbose or error.code is not RegistryCode.INVALID_SCHEMA:
            raise
        problems = [str(error)]
    return {"is_compatible": not problems, **({"messages": problems} if verbose else {})}


def _subject_in(request: Request) -> str | None:
    return request.path[0] if request.path else None


def _config(registry: Registry, request: Request) -> Json:
    to_global = request.flag("defaultToGlobal")
    return registry.read(lambda state: decisions.config(state, _subject_in(request), default_to_global=to_global))


def _set_config(registry: Registry, request: Request) -> Json:
    return _changed(registry, lambda state: decisions.set_config(state, _subject_in(request), request.body))


def _remove_config(registry: Registry, request: Request) -> Json:
    return _changed(registry, lambda state: decisions.remove_config(state, _subject_in(request)))


def _mode(registry: Registry, request: Request) -> Json:
    to_global = request.flag("defaultToGlobal")
    return registry.read(lambda state: decisions.mode(state, _subject_in(request), default_to_global=to_global))


def _set_mode(registry: Registry, request: Request) -> Json:
    return _changed(registry, lambda state: decisions.set_mode(state, _subject_in(request), request.body.get("mode")))


def _remove_mode(registry: Registry, request: Request) -> Json:
    return _changed(registry, lambda state: decisions.remove_mode(state, request.path[0]))


def _nothing(_: Registry, __: Request) -> Json:
    return {}


def _tag(_: Registry, __: Request) -> Json:
    raise RegistryError(RegistryCode.OPERATION_NOT_PERMITTED, "tags are not offered: schemas have no metadata here")


def _contexts(_: Registry, __: Request) -> Json:
    """There is the default one."""
    return [DEFAULT_CONTEXT_NAMES[0]]


class RawText(str):
    """An answer that is the schema itself."""

    __slots__ = ()


def _changed(registry: Registry, decide: Callable[[RegistryState], RegistryDecision]) -> Json:
    return registry.change(decide).answer


def _plain(schema: Schema) -> dict[str, Json]:
    return schema_answer(RegistryState().lookup, schema, Answers())


def _page(found: list[Json], request: Request) -> list[Json]:
    offset, limit = max(request.number("offset", 0), 0), request.number("limit", -1)
    return found[offset:] if limit < 0 else found[offset : offset + limit]


def _id_in(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text[:20])
    raise schema_not_found()


# A `*` is one part of the path.
_ROUTES: Final[Mapping[tuple[str, str], Handler]] = {
    ("GET", ""): _nothing,
    ("GET", "subjects"): _subjects,
    ("POST", "subjects/*"): _look_up,
    ("DELETE", "subjects/*"): _delete_subject,
    ("GET", "subjects/*/versions"): _versions,
    ("POST", "subjects/*/versions"): _register,
    ("GET", "subjects/*/versions/*"): _version,
    ("DELETE", "subjects/*/versions/*"): _delete_version,
    ("GET", "subjects/*/versions/*/schema"): _version_text,
    ("GET", "subjects/*/versions/*/referencedby"): _referenced_by,
    ("POST", "subjects/*/versions/*/tags"): _tag,
    ("GET", "schemas"): _schemas,
    ("GET", "subjects/*/metadata"): _with_metadata,
    ("GET", "schemas/guids/*"): _schema_of_guid,
    ("GET", "schemas/guids/*/ids"): _ids_of_guid,
    ("GET", "schemas/types"): _types,
    ("GET", "schemas/ids/*"): _schema,
    ("GET", "schemas/ids/*/schema"): _schema_text,
    ("GET", "schemas/ids/*/subjects"): _schema_subjects,
    ("GET", "schemas/ids/*/versions"): _schema_versions,
    ("POST", "compatibility/subjects/*/versions"): _compatible,
    ("POST", "compatibility/subjects/*/versions/*"): _compatible,
    ("GET", "config"): _config,
    ("PUT", "config"): _set_config,
    ("DELETE", "config"): _remove_config,
    ("GET", "config/*"): _config,
    ("PUT", "config/*"): _set_config,
    ("DELETE", "config/*"): _remove_config,
    ("GET", "mode"): _mode,
    ("PUT", "mode"): _set_mode,
    ("GET", "mode/*"): _mode,
    ("PUT", "mode/*"): _set_mode,
    ("DELETE", "mode/*"): _remove_mode,
    ("GET", "contexts"): _contexts,
}
