"""Functions of schemas alone: their stored form, their comparison, their descriptor.

A schema comes from any client, and a small one may cost minutes and gigabytes.  So no decision computes one of these
itself: it takes the answers as values, and where one is missing it raises `ChecksMissing`.  Then the check is done in a
process that can be ended (checkers.py), without the registry's lock, and the decision is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias, cast

from ottla.model.limits import MIB
from ottla.registry.errors import RegistryCode, RegistryError, invalid_schema
from ottla.registry.schema import Level, Reference, Schema, SchemaType

# Gives the schema of a subject's version, also of a deleted one; None when there is none.
Lookup = Callable[[str, int], Schema | None]

SERIALIZED: Final = "serialized"

# Of one schema, in all steps together.
REFERENCES_MAX: Final = 1_000
REFERENCES_DEPTH_MAX: Final = 100
REFERENCED_CHARS_MAX: Final = 8 * MIB


@dataclass(frozen=True, slots=True)
class Source:
    """A schema, and name and text of each that it refers to, in one or several steps, each after its own."""

    type: SchemaType
    text: str
    referenced: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class KeptForm:
    """The text in which a schema that a client sent is kept."""

    source: Source
    normalize: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Why `reader` cannot read what `writer` writes; the answer is empty when it can."""

    reader: Source
    writer: Source


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A Protobuf schema's descriptor in base64."""

    source: Source


Check: TypeAlias = KeptForm | Comparison | Descriptor
Answer: TypeAlias = str | list[str]
# An error is an answer, too: that of a text that is no schema, for example.
Outcome: TypeAlias = Answer | RegistryError


class ChecksMissing(Exception):
    """The decision needs the answers of these checks first."""

    def __init__(self, checks: Sequence[Check]) -> None:
        super().__init__(f"{len(checks)} checks")
        self.checks: Final = checks


class Answers:
    """The outcomes of checks, for the decision of one request."""

    def __init__(self) -> None:
        self._outcomes: dict[Check, Outcome] = {}

    def add(self, check: Check, outcome: Outcome) -> None:
        self._outcomes[check] = outcome

    def of(self, checks: Sequence[Check]) -> list[Answer]:
        """Raises `ChecksMissing`, and the `RegistryError` that is the outcome of one of them."""
        missing = [check for check in checks if check not in self._outcomes]
        if missing:
            raise ChecksMissing(missing)
        found = []
        for check in checks:
            outcome = self._outcomes[check]
            if isinstance(outcome, RegistryError):
                raise outcome
            found.append(outcome)
        return found


def kept(schema: Schema, lookup: Lookup, answers: Answers, *, normalize: bool = False) -> Schema:
    """A schema that a client sent, in its stored form.  Raises `RegistryError` for an invalid one."""
    [text] = answers.of([KeptForm(_source(schema, lookup), normalize)])
    return Schema(schema.type, cast(str, text), schema.references)


def rendered(schema: Schema, lookup: Lookup, answers: Answers, form: str) -> str:
    """The text in the form that a client requests: `serialized` is a Protobuf schema's descriptor."""
    if schema.type is not SchemaType.PROTOBUF or form != SERIALIZED:
        return schema.text
    [text] = answers.of([Descriptor(_source(schema, lookup))])
    return cast(str, text)


def incompatibilities(
    level: Level, new: Schema, previous: Sequence[Schema], lookup: Lookup, answers: Answers
) -> list[str]:
    """Why a kept schema may not come after these, of which the newest is the last."""
    if level is Level.NONE or not previous:
        return []
    considered = previous if level.is_transitive else previous[-1:]
    newer = _source(new, lookup)
    comparisons: list[tuple[str, Comparison]] = []
    for schema in reversed(considered):
        older = _source(schema, lookup)
        if level.new_reads_old:
            comparisons.append(("the new schema cannot read what the old one writes", Comparison(newer, older)))
        if level.old_reads_new:
            comparisons.append(("the old schema cannot read what the new one writes", Comparison(older, newer)))
    found = answers.of([comparison for _, comparison in comparisons])
    return [f"{problem}: {why}" for (problem, _), reasons in zip(comparisons, found, strict=True) for why in reasons]


def check_object(check: Check) -> dict[str, Any]:
    """For JSON."""
    return {"kind": type(check).__name__, **asdict(check)}


def check_of(found: dict[str, Any]) -> Check:
    """From what `check_object` gave."""
    match found["kind"]:
        case "KeptForm":
            return KeptForm(_source_of(found["source"]), bool(found["normalize"]))
        case "Comparison":
            return Comparison(_source_of(found["reader"]), _source_of(found["writer"]))
        case _:
            return Descriptor(_source_of(found["source"]))


def _source_of(found: dict[str, Any]) -> Source:
    return Source(SchemaType(found["type"]), found["text"], tuple((name, text) for name, text in found["referenced"]))


def _source(schema: Schema, lookup: Lookup) -> Source:
    return Source(schema.type, schema.text, tuple(_bounded(_walk(schema.references, lookup, set(), ()))))


def _bounded(referenced: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    chars = 0
    for count, (name, text) in enumerate(referenced, start=1):
        chars += len(text)
        if count > REFERENCES_MAX or chars > REFERENCED_CHARS_MAX:
            raise schema_too_large(
                f"a schema refers to {REFERENCES_MAX} others with {REFERENCED_CHARS_MAX} characters at most"
            )
        yield name, text


def _walk(
    references: tuple[Reference, ...], lookup: Lookup, done: set[str], path: tuple[Reference, ...]
) -> Iterator[tuple[str, str]]:
    if len(path) > REFERENCES_DEPTH_MAX:
        raise schema_too_large(f"the references of a schema are more than {REFERENCES_DEPTH_MAX} steps deep")
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


def schema_too_large(reason: str) -> RegistryError:
    return RegistryError(RegistryCode.SCHEMA_TOO_LARGE, reason)
