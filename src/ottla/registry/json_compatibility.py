"""Whether a JSON Schema accepts all documents of another one, by the documented rules of Confluent's registry.

A document of the writer's schema may have properties that the schema does not name, unless it is closed
(`additionalProperties: false`).  So a reader may not constrain another property of an open object: an earlier
document may have it with another type.  It may in a closed one.

A schema is a conjunction of constraints: its keywords by type, its alternatives (`anyOf`, `oneOf`), its values
(`enum`), `not`, `if`, and those of `allOf` and of `$ref`.  A reader's schema accepts the writer's documents when each
of its constraints follows from one of the writer's.  That is sufficient and not necessary: two constraints of the
writer's may imply a third together.

Of a reader's `oneOf` exactly one branch may accept a document.  So where one accepts those of a case of the writer's,
each other branch must be known to accept none of them: it excludes them (`_excludes`), or it accepts only what another
branch of the writer's own `oneOf` accepts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from referencing.exceptions import Unresolvable
from referencing.jsonschema import UnknownDialect

from ottla.registry.json_format import JsonNode

Json = Any
Problems: TypeAlias = list[str]
# Schemas that hold together; none: every value.
_Conjunction: TypeAlias = tuple[JsonNode, ...]

TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
# A schema without a type has the one that its keywords are for, if they are for one alone.
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"maxLength", "minLength", "pattern"}),
    "number": frozenset({"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"}),
    "array": frozenset(
        {"items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems"}
        | {"contains", "minContains", "maxContains"}
    ),
    "object": frozenset(
        {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"}
        | {"required", "dependencies", "dependentRequired", "dependentSchemas", "minProperties", "maxProperties"}
    ),
}


@dataclass(frozen=True, eq=False)
class _Typed:
    """Keywords, and the types that a document may have."""

    node: JsonNode
    types: frozenset[str]

    def get(self, name: str, default: Json = None) -> Json:
        return self.node.schema.get(name, default)


@dataclass(frozen=True, eq=False)
class _Alternatives:
    """`anyOf`; with `is_exclusive` oneOf."""

    branches: tuple[JsonNode, ...]
    is_exclusive: bool


@dataclass(frozen=True, eq=False)
class _Values:
    values: tuple[Json, ...]


@dataclass(frozen=True, eq=False)
class _Not:
    node: JsonNode


@dataclass(frozen=True, eq=False)
class _If:
    condition: JsonNode
    then: JsonNode
    otherwise: JsonNode


@dataclass(frozen=True, eq=False)
class _Nothing:
    """`false`: no document."""


@dataclass(frozen=True, eq=False)
class _Unresolved:
    ref: str


_Constraint: TypeAlias = _Typed | _Alternatives | _Values | _Not | _If | _Nothing | _Unresolved


def json_problems(reader: JsonNode, writer: JsonNode) -> Problems:
    """Why `reader` does not accept all that `writer` accepts; each names a rule and a place."""
    constraints = _Constraints()
    refuted: frozenset[tuple[int, int]] = frozenset()
    while True:
        # A schema that contains itself is compared under the assumption that the pair fits.  Where another comparison
        # used the assumption and it does not hold, all is compared again without it: with each pass more pairs are
        # known not to fit, so there are few.
        comparison = _Comparison(constraints, refuted)
        problems = comparison.of(writer, reader, "#")
        if not comparison.assumed_some or comparison.refuted == refuted:
            return list(dict.fromkeys(problems))
        refuted = frozenset(comparison.refuted)


class _Comparison:
    """One pass.  Pairs are known by the identities of their objects, which `_Constraints` keeps."""

    def __init__(self, constraints: _Constraints, refuted: frozenset[tuple[int, int]]) -> None:
        self.assumed_some = False
        self.refuted = set(refuted)
        self._of_node: Final = constraints.of
        self._of_all: Final = constraints.of_all
        self._cases: Final = constraints.cases
        self._closed_for: Final = constraints.closed_for
        self._open: set[tuple[int, int]] = set()
        self._done: dict[tuple[int, int], Problems] = {}
        # Whether two conjunctions are known to be apart, for documents of some types.
        self._apart: dict[tuple[tuple[int, ...], tuple[int, ...], frozenset[str]], bool] = {}

    def of(self, writer: JsonNode, reader: JsonNode, path: str) -> Problems:
        return self._all(self._of_node(writer), self._of_node(reader), path)

    def _all(self, writer: Sequence[_Constraint], reader: Sequence[_Constraint], path: str) -> Problems:
        if any(isinstance(each, _Nothing) for each in writer):
            return []
        return [problem for constraint in reader for problem in self._follows(writer, constraint, path)]

    def _follows(self, writer: Sequence[_Constraint], constraint: _Constraint, path: str) -> Problems:
        key = (id(writer), id(constraint))
        if key in self._done:
            return self._done[key]
        if key in self._open:
            if key in self.refuted:
                return [f"SCHEMA_CHANGED at {path}"]
            self.assumed_some = True
            return []
        self._open.add(key)
        problems = self._compared(writer, constraint, path)
        self._open.remove(key)
        self._done[key] = problems
        if problems:
            self.refuted.add(key)
        return problems

    def _compared(self, writer: Sequence[_Constraint], constraint: _Constraint, path: str) -> Problems:
        match constraint:
            case _Typed():
                return self._typed_follows(writer, constraint, path)
            case _Alternatives():
                return self._alternatives_follow(writer, constraint, path)
            case _Values(values):
                return _values_follow(writer, values, path)
            case _Not(node):
                return self._not_follows(writer, node, path)
            case _If():
                return self._if_follows(writer, constraint, path)
            case _Nothing():
                return [f"SCHEMA_REMOVED at {path}"]
            case _Unresolved(ref):
                same = any(isinstance(each, _Unresolved) and each.ref == ref for each in writer)
                return [] if same else [f"UNRESOLVED_REFERENCE {ref[:200]} at {path}"]

    def _typed_follows(self, writer: Sequence[_Constraint], reader: _Typed, path: str) -> Problems:
        attempts: list[Problems] = []
        for each in writer:
            match each:
                case _Typed():
                    attempts.append(self._keywords(each, reader, path))
                case _Alternatives(branches):
                    parts = (self._follows(self._of_node(branch), reader, path) for branch in branches)
                    attempts.append([problem for part in parts for problem in part])
                case _Values(values) if all(_fits(value, reader) for value in values):
                    return []
                case _:
                    continue
            if not attempts[-1]:
                return []
        return min(attempts, key=len, default=[f"TYPE_CHANGED at {path}"])

    def _alternatives_follow(self, writer: Sequence[_Constraint], reader: _Alternatives, path: str) -> Problems:
        branches = [self._of_node(branch) for branch in reader.branches]
        found = None
        for number, branch in enumerate(branches):
            if not self._all(writer, branch, path):
                if not reader.is_exclusive or self._is_alone(number, branches, writer):
                    return []
                found = f"ONE_OF_BRANCHES_OVERLAP at {path}"
        for each in writer:
            match each:
                case _Alternatives(own, is_exclusive):
                    cases = [self._of_node(branch) for branch in own]
                case _Typed(_, types) if len(types) > 1:
                    # Of several types a document has one.
                    own, cases, is_exclusive = (), self._cases(each), True
                case _:
                    continue
            if reader.is_exclusive and not is_exclusive:
                found = found or f"COMBINED_TYPE_CHANGED at {path}"
                continue
            fitting = [
                [number for number, branch in enumerate(branches) if not self._all(case, branch, path)]
                for case in cases
            ]
            if not reader.is_exclusive and all(fitting):
                return []
            if reader.is_exclusive and _is_matched(fitting):
                alone = [
                    [
                        number
                        for number in numbers
                        if self._is_alone(
                            number,
                            branches,
                            self._known_of_case(writer, each, cases[index], own[index : index + 1]),
                            [*cases[:index], *cases[index + 1 :]],
                        )
                    ]
                    for index, numbers in enumerate(fitting)
                ]
                if _is_matched(alone):
                    return []
                found = f"ONE_OF_BRANCHES_OVERLAP at {path}"
                continue
            is_narrowed = len(cases) > len(branches)
            found = f"{'SUM_TYPE_NARROWED' if is_narrowed else 'COMBINED_TYPE_SUBSCHEMAS_CHANGED'} at {path}"
        return [found or f"TYPE_CHANGED at {path}"]

    def _known_of_case(
        self,
        writer: Sequence[_Constraint],
        divided: _Constraint,
        case: Sequence[_Constraint],
        branch: Sequence[JsonNode],
    ) -> list[_Constraint]:
        """What holds for a document of one case of a constraint of the writer's; `branch`: that of a `oneOf`."""
        known = [*case, *(each for each in writer if each is not divided)]
        closed = [self._closed_for(each, only) for each in writer if isinstance(each, _Typed) for only in branch]
        return [*known, *(each for each in closed if each is not None)]

    def _is_alone(
        self,
        number: int,
        branches: Sequence[Sequence[_Constraint]],
        known: Sequence[_Constraint],
        refusing: Sequence[Sequence[_Constraint]] = (),
    ) -> bool:
        """Whether of a `oneOf` no branch but this one accepts a document for which all of `known` holds.

        `refusing`: other cases of the writer's, which do not accept it.
        """
        return all(
            self._are_apart(known, other)
            or any(
                _types_of(known) & _types_of(other) <= _types_of(case) and not self._all(other, case, "#")
                for case in refusing
            )
            for index, other in enumerate(branches)
            if index != number
        )

    def _are_apart(
        self, known: Sequence[_Constraint], other: Sequence[_Constraint], types: frozenset[str] = TYPES
    ) -> bool:
        """Whether it is known that no document of these types fits both."""
        types &= _types_of(known) & _types_of(other)
        if not types:
            return True
        key = (tuple(map(id, known)), tuple(map(id, other)), types)
        found = self._apart.get(key)
        if found is None:
            # Of a schema that contains itself nothing is known.
            self._apart[key] = False
            found = any(self._excludes(one, two, types) for one in known for two in other)
            found = found or (types == {"object"} and self._differ_in_a_property(known, other))
            self._apart[key] = found
        return found

    def _excludes(self, one: _Constraint, two: _Constraint, types: frozenset[str]) -> bool:
        match one, two:
            case (_Nothing(), _) | (_, _Nothing()):
                return True
            case (_Alternatives(branches), _):
                return all(self._are_apart(self._of_node(branch), [two], types) for branch in branches)
            case (_, _Alternatives(branches)):
                return all(self._are_apart([one], self._of_node(branch), types) for branch in branches)
            case (_Values(values), constraint) | (constraint, _Values(values)):
                return all(self._refuses(constraint, value) for value in values)
            case (_Typed(), _Typed()):
                return all(_have_other_sizes(kind, one, two) for kind in types)
        return False

    def _differ_in_a_property(self, known: Sequence[_Constraint], other: Sequence[_Constraint]) -> bool:
        """Whether a property that one of them requires has values in one that it does not have in the other."""
        first, second = (
            [_ObjectModel(each, is_writer=True) for each in constraints if isinstance(each, _Typed)]
            for constraints in (known, other)
        )
        names = {name for model in (*first, *second) for name in model.required}
        return any(
            self._are_apart(self._known_of_property(first, name), self._known_of_property(second, name))
            for name in sorted(names)
        )

    def _known_of_property(self, models: Iterable[_ObjectModel], name: str) -> list[_Constraint]:
        return [each for model in models for node in model.schemas_for(name) for each in self._of_node(node)]

    def _refuses(self, constraint: _Constraint, value: Json) -> bool:
        """Whether it is known that a value does not fit."""
        match constraint:
            case _Values(values):
                return not _contains_all(values, [value])
            case _Alternatives(branches):
                return all(any(self._refuses(each, value) for each in self._of_node(branch)) for branch in branches)
            case _Typed():
                kind = _type_of(value)
                if kind not in _certain_types(constraint):
                    return True
                if kind in ("integer", "number"):
                    return any(_is_beyond(value, constraint, *bound) for bound in (("maximum", 1), ("minimum", -1)))
                if kind == "object":
                    model = _ObjectModel(constraint, is_writer=True)
                    return not model.required <= value.keys() or any(
                        self._refuses(each, value[name])
                        for name in value
                        for each in self._known_of_property([model], name)
                    )
                return False
        return isinstance(constraint, _Nothing)

    def _not_follows(self, writer: Sequence[_Constraint], refused: JsonNode, path: str) -> Problems:
        excluded = self._of_node(refused)
        for each in writer:
            # What the reader refuses, the writer refused, too.
            if isinstance(each, _Not) and not self.of(refused, each.node, f"{path}/not"):
                return []
            if isinstance(each, _Typed) and any(
                isinstance(other, _Typed) and not _widened(each.types) & _widened(other.types) for other in excluded
            ):
                return []
        return [f"NOT_TYPE_EXTENDED at {path}/not"]

    def _if_follows(self, writer: Sequence[_Constraint], reader: _If, path: str) -> Problems:
        for each in writer:
            if isinstance(each, _If) and each.condition.schema == reader.condition.schema:
                return [
                    *self.of(each.then, reader.then, f"{path}/then"),
                    *self.of(each.otherwise, reader.otherwise, f"{path}/else"),
                ]
        outcomes = (reader.then, reader.otherwise)
        if any(self._all(writer, self._of_node(outcome), path) for outcome in outcomes):
            return [f"CONDITION_CHANGED at {path}/if"]
        return []

    # The keywords of a type.

    def _keywords(self, writer: _Typed, reader: _Typed, path: str) -> Problems:
        accepted = _widened(reader.types)
        if not writer.types <= accepted:
            is_narrowed = bool(_widened(writer.types) & accepted)
            return [f"{'TYPE_NARROWED' if is_narrowed else 'TYPE_CHANGED'} at {path}"]
        if _has_unevaluated(reader) and _is_same(writer.node.schema, reader.node.schema):
            # What the parts evaluate is the same for each document, also where it is not known.
            return []
        problems: Problems = []
        if "string" in writer.types:
            problems += _strings(writer, reader, path)
        if writer.types & {"number", "integer"}:
            problems += _numbers(writer, reader, path)
        if "object" in writer.types:
            problems += self._objects(writer, reader, path)
        if "array" in writer.types:
            problems += self._arrays(writer, reader, path)
        return problems

    def _objects(self, writer: _Typed, reader: _Typed, path: str) -> Iterator[str]:
        yield from _at_most(writer, reader, "maxProperties", path)
        yield from _at_least(writer, reader, "minProperties", path)
        was, now = _ObjectModel(writer, is_writer=True), _ObjectModel(reader, is_writer=False)
        if now.is_closed_by_parts:
            now.evaluate(self._evaluated_by_branches(writer.node, reader.node, path))
        yield from self._required(was, now, path)
        for name in dict.fromkeys([*was.properties, *now.properties]):
            place = f"{path}/properties/{name}"
            if name not in now.properties:
                yield from self._property_removed(was, now, name, place)
            elif name not in was.properties:
                yield from self._property_added(was, now, name, place)
            else:
                yield from self._values_of(was.schemas_for(name), now.properties[name], place)
        yield from self._patterns(was, now, path)
        yield from self._rest(was.rest, now.rest, "ADDITIONAL_PROPERTIES", f"{path}/{now.rest_name}")
        if "propertyNames" in reader.node.schema:
            names = writer.get("propertyNames", True)
            accepted = reader.node.child(reader.get("propertyNames"))
            yield from self.of(writer.node.child(names), accepted, f"{path}/propertyNames")
        yield from self._dependencies(writer, reader, path)

    def _evaluated_by_branches(self, writer: JsonNode, reader: JsonNode, path: str) -> frozenset[_Named]:
        """What only branches of the writer's name, and in each case one of the reader's that holds then."""
        was, now = _certain_parts(writer), _certain_parts(reader)
        missing = {name for part in was for name in _own_names(part)}
        found: set[_Named] = set()
        for part in was:
            for kind, branch in _branches(part):
                names = _names_in_place(branch)
                found |= names
                for other_part in now:
                    for other_kind, other in _branches(other_part):
                        if kind == other_kind and self._holds_with(kind, (part, branch), (other_part, other), path):
                            names -= {name for each in _certain_parts(other) for name in _own_names(each)}
                missing |= names
        return frozenset(found - missing)

    def _holds_with(self, kind: str, was: tuple[JsonNode, JsonNode], now: tuple[JsonNode, JsonNode], path: str) -> bool:
        """Whether the reader's branch holds for each document that the writer's holds for."""
        (writer, branch), (reader, other) = was, now
        match kind:
            case "anyOf":
                return not self.of(branch, other, path)
            case "then" | "else":
                conditions = [node.child(node.schema.get("if", True)) for node in (writer, reader)]
                first, second = conditions if kind == "then" else reversed(conditions)
                return not self.of(first, second, f"{path}/if")
            case _:
                # Of one property on which both depend.
                return True

    def _required(self, was: _ObjectModel, now: _ObjectModel, path: str) -> Iterator[str]:
        for name in now.required - was.required:
            is_declared, default = name in now.properties, now.has_default(name)
            if is_declared and name not in was.properties and not was.is_open_for(name):
                # `_property_added` decides.
                continue
            if not default:
                yield f"REQUIRED_ATTRIBUTE_ADDED at {path}/required/{name}"

    def _property_removed(self, was: _ObjectModel, now: _ObjectModel, name: str, place: str) -> Iterator[str]:
        if now.is_open_for(name):
            return
        value, rest = was.schemas_for(name), now.schemas_for(name)
        if any(each.schema is False for each in rest):
            if not any(each.schema is False for each in value):
                yield f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {place}"
        elif problems := self._values_of(value, rest, place):
            yield from problems
            yield f"PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {place}"

    def _property_added(self, was: _ObjectModel, now: _ObjectModel, name: str, place: str) -> Iterator[str]:
        added = now.properties[name]
        is_required = name in now.required
        if was.is_open_for(name):
            if any(self._of_node(each) for each in added):
                yield f"{'REQUIRED' if is_required else 'OPTIONAL'}_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {place}"
            return
        if problems := self._values_of(was.schemas_for(name), added, place):
            yield from problems
            yield f"PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {place}"
        if is_required and name not in was.required and not now.has_default(name):
            yield f"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL at {place}"

    def _patterns(self, was: _ObjectModel, now: _ObjectModel, path: str) -> Iterator[str]:
        for pattern, schemas in now.patterns.items():
            place = f"{path}/patternProperties/{pattern}"
            if pattern in was.patterns:
                yield from self._values_of(was.patterns[pattern], schemas, place)
                continue
            # The names that it matches: some that the writer's schema gives, some of its patterns, and others.
            for name in was.properties:
                if _matches(pattern, name, if_unknown=True):
                    yield from self._values_of(was.schemas_for(name), schemas, f"{place}/{name}")
            for other, values in was.patterns.items():
                if not _are_disjoint(pattern, other):
                    yield from self._values_of(values, schemas, f"{place}/{other}")
            yield from self._values_of((was.rest,), schemas, place)
        for pattern, values in was.patterns.items():
            if pattern not in now.patterns and pattern not in now.patterns_of_branches:
                yield from self._values_of(values, (now.rest,), f"{path}/patternProperties/{pattern}")

    def _values_of(self, was: _Conjunction, now: _Conjunction, path: str) -> Problems:
        """Whether a value that all the writer's schemas accept is accepted by all the reader's."""
        writer = self._of_all(was)
        return [problem for each in now for problem in self._all(writer, self._of_node(each), path)]

    def _rest(self, was: JsonNode, now: JsonNode, name: str, path: str) -> Problems:
        """What the writer's and the reader's schema have for properties or items that are not named."""
        if self._is_false(now) and not self._is_false(was):
            return [f"{name}_REMOVED at {path}"]
        if not self._of_node(was) and self._of_node(now):
            return [f"{name}_NARROWED at {path}"]
        return self.of(was, now, path)

    def _dependencies(self, writer: _Typed, reader: _Typed, path: str) -> Iterator[str]:
        was_names, now_names = dict(_dependent_names(writer)), dict(_dependent_names(reader))
        for name, needed in now_names.items():
            if name not in was_names:
                yield f"DEPENDENCY_ARRAY_ADDED at {path}/dependencies/{name}"
            elif not needed <= was_names[name]:
                kind = "EXTENDED" if was_names[name] <= needed else "CHANGED"
                yield f"DEPENDENCY_ARRAY_{kind} at {path}/dependencies/{name}"
        was, now = dict(_dependent_schemas(writer)), dict(_dependent_schemas(reader))
        for name, schema in now.items():
            place = f"{path}/dependencies/{name}"
            if name in was:
                yield from self.of(writer.node.child(was[name]), reader.node.child(schema), place)
            elif self._of_node(reader.node.child(schema)):
                yield f"DEPENDENCY_SCHEMA_ADDED at {place}"

    def _arrays(self, writer: _Typed, reader: _Typed, path: str) -> Iterator[str]:
        yield from _at_most(writer, reader, "maxItems", path)
        yield from _at_least(writer, reader, "minItems", path)
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            yield f"UNIQUE_ITEMS_ADDED at {path}/uniqueItems"
        was_items, was_rest = _items(writer, is_writer=True)
        now_items, now_rest = _items(reader, is_writer=False)
        was, now = writer.node.child, reader.node.child
        for number in range(max(len(was_items), len(now_items))):
            place = f"{path}/items/{number}"
            before = was_items[number] if number < len(was_items) else was_rest
            after = now_items[number] if number < len(now_items) else now_rest
            problems = self.of(was(before), now(after), place)
            if number < len(was_items) and number < len(now_items):
                yield from problems
            elif problems:
                change = "ADDED" if number < len(now_items) else "REMOVED"
                where = "TO" if change == "ADDED" else "FROM"
                deciding = was(was_rest) if change == "ADDED" else now(now_rest)
                yield f"ITEM_{change}_{_open_model(self._of_node(deciding), where)} at {place}"
        yield from self._rest(was(was_rest), now(now_rest), "ADDITIONAL_ITEMS", f"{path}/items")
        yield from self._contains(writer, reader, path)

    def _contains(self, writer: _Typed, reader: _Typed, path: str) -> Iterator[str]:
        if "contains" not in reader.node.schema:
            return
        place = f"{path}/contains"
        if "contains" not in writer.node.schema:
            yield f"CONTAINS_ADDED at {place}"
            return
        was, now = writer.node.child(writer.get("contains")), reader.node.child(reader.get("contains"))
        yield from self.of(was, now, place)
        if "maxContains" in reader.node.schema:
            yield from _at_most(writer, reader, "maxContains", path)
            # At most so many match the reader's: none may that does not match the writer's.
            yield from self.of(now, was, place)
        if (least := reader.get("minContains", 1)) > writer.get("minContains", 1):
            yield f"MIN_CONTAINS_INCREASED to {least} at {path}/minContains"

    def _is_false(self, node: JsonNode) -> bool:
        return any(isinstance(each, _Nothing) for each in self._of_node(node))


class _Constraints:
    """Of the schemas of two documents."""

    def __init__(self) -> None:
        self._found: dict[int, Sequence[_Constraint]] = {}
        self._of_several: dict[tuple[int, ...], Sequence[_Constraint]] = {}
        self._cases: dict[int, list[Sequence[_Constraint]]] = {}
        self._closed: dict[tuple[int, int], _Typed | None] = {}

    def of(self, node: JsonNode) -> Sequence[_Constraint]:
        """Empty for a schema that accepts every document."""
        if node.schema is True:
            return _EVERYTHING
        if node.schema is False:
            return _FALSE
        found = self._found.get(id(node.schema))
        if found is None:
            found = list(_constraints(node, frozenset()))
            self._found[id(node.schema)] = found
        return found

    def of_all(self, nodes: _Conjunction) -> Sequence[_Constraint]:
        if len(nodes) < 2:
            return self.of(nodes[0]) if nodes else _EVERYTHING
        parts = [self.of(node) for node in nodes]
        key = tuple(id(part) for part in parts)
        found = self._of_several.get(key)
        if found is None:
            found = [constraint for part in parts for constraint in part]
            self._of_several[key] = found
        return found

    def cases(self, typed: _Typed) -> list[Sequence[_Constraint]]:
        """One for each of its types; a whole number is of the type number, where that is among them."""
        found = self._cases.get(id(typed))
        if found is None:
            types = typed.types - {"integer"} if "number" in typed.types else typed.types
            found = [[replace(typed, types=frozenset({kind}))] for kind in sorted(types)]
            self._cases[id(typed)] = found
        return found

    def closed_for(self, typed: _Typed, branch: JsonNode) -> _Typed | None:
        """The names of an object that is closed by `unevaluatedProperties`, where of its `oneOf` this branch holds.

        The other branches do not, so what they name is not evaluated.  None where the names are not known.
        """
        key = (id(typed), id(branch.schema))
        if key not in self._closed:
            self._closed[key] = _closed_for(typed, branch)
        return self._closed[key]


_EVERYTHING: Final[Sequence[_Constraint]] = ()
_FALSE: Final[Sequence[_Constraint]] = (_Nothing(),)


def _constraints(node: JsonNode, followed: frozenset[int]) -> Iterator[_Constraint]:
    schema = node.schema
    if schema is True or id(schema) in followed:
        return
    if schema is False:
        yield _Nothing()
        return
    followed |= {id(schema)}
    if (ref := schema.get("$ref", schema.get("$dynamicRef"))) is not None:
        try:
            resolved = node.resolver.lookup(ref)
        except (Unresolvable, UnknownDialect, ValueError):
            yield _Unresolved(ref)
        else:
            if isinstance(resolved.contents, Mapping | bool):
                inner = replace(node, schema=resolved.contents, resolver=resolved.resolver)
                yield from _constraints(inner, followed)
            else:  # a number, say: the reference names no schema
                yield _Unresolved(ref)
        if node.has_ref_alone:
            return
    types = _types(schema)
    if types is not None:
        yield _Typed(node, types)
    if "const" in schema:
        yield _Values((schema["const"],))
    if isinstance(schema.get("enum"), list):
        yield _Values(tuple(schema["enum"]))
    for part in schema.get("allOf", ()):
        yield from _constraints(node.child(part), followed)
    for name in ("anyOf", "oneOf"):
        branches = tuple(node.child(branch) for branch in schema.get(name, ()))
        if len(branches) == 1:
            yield from _constraints(branches[0], followed)
        elif branches:
            yield _Alternatives(branches, name == "oneOf")
    if "not" in schema:
        yield _Not(node.child(schema["not"]))
    if "if" in schema and ("then" in schema or "else" in schema):
        parts = (node.child(schema.get(name, True)) for name in ("if", "then", "else"))
        yield _If(*parts)


def _types(schema: Mapping[str, Json]) -> frozenset[str] | None:
    """None: no keyword constrains the type, or a value of any."""
    given = schema.get("type")
    if given is not None:
        return frozenset([given] if isinstance(given, str) else given) & TYPES
    named = [kind for kind, keywords in _KEYWORDS.items() if keywords & schema.keys()]
    if not named:
        return None
    return frozenset(named) if len(named) == 1 else TYPES


def _has_unevaluated(typed: _Typed) -> bool:
    return not typed.node.schema.keys().isdisjoint(("unevaluatedProperties", "unevaluatedItems"))


def _is_same(schema: Json, other: Json) -> bool:
    """Whether they are equal and without references, which might name different schemas."""
    one, two = (json.dumps(each, sort_keys=True) for each in (schema, other))
    return one == two and not any(name in one for name in ('"$ref"', '"$dynamicRef"', '"$recursiveRef"'))


def _types_of(constraints: Iterable[_Constraint]) -> frozenset[str]:
    """All that a document may have for which these hold."""
    found = TYPES
    for each in constraints:
        if isinstance(each, _Typed):
            found &= _certain_types(each)
    return found


def _certain_types(typed: _Typed) -> frozenset[str]:
    """All that a document may have: keywords without a type do not exclude the others."""
    return _widened(typed.types) if "type" in typed.node.schema else TYPES


def _widened(types: frozenset[str]) -> frozenset[str]:
    return types | {"integer"} if "number" in types else types


def _closed_for(typed: _Typed, branch: JsonNode) -> _Typed | None:
    schema = typed.node.schema
    is_own = any(each is branch.schema for each in schema.get("oneOf", ()))
    if not is_own or schema.get("unevaluatedProperties") is not False or "additionalProperties" in schema:
        return None
    alone = replace(typed.node, schema={**schema, "oneOf": [branch.schema]})
    parts = [part.node for part in _parts_in_place(alone)]
    if any(part is None or not part.schema.keys().isdisjoint(_RESTS_OF_OBJECTS) for part in parts):
        return None
    names: dict[str, dict[str, Json]] = {"properties": {}, "patternProperties": {}}
    for keyword, name in _names_in_place(alone):
        names[keyword][name] = True
    kind = {"type": schema["type"]} if "type" in schema else {}
    return replace(typed, node=typed.node.child({**kind, **names, "additionalProperties": False}))


class _ObjectModel:
    """Which properties an object has, and what holds for the others."""

    def __init__(self, typed: _Typed, *, is_writer: bool) -> None:
        schema = typed.node.schema
        self.required = frozenset(typed.get("required", ())) if isinstance(typed.get("required"), list) else frozenset()
        self.rest_name = "additionalProperties" if "additionalProperties" in schema else "unevaluatedProperties"
        self.rest = typed.node.child(typed.get(self.rest_name, True))
        self.properties: dict[str, _Conjunction] = {}
        self.patterns: dict[str, _Conjunction] = {}
        # Not in `patterns`: they need not hold where another schema names a property that they match.
        self.patterns_of_branches: set[str] = set()
        self._is_writer: Final = is_writer
        self._own_properties: Mapping[str, Json] = typed.get("properties", {})
        self._add(typed.node, "properties", self.properties)
        self._add(typed.node, "patternProperties", self.patterns)
        self.is_closed_by_parts = "additionalProperties" not in schema and "unevaluatedProperties" in schema
        if not self.is_closed_by_parts:
            return
        for part in _parts_in_place(typed.node):
            if not is_writer and not part.is_certain:
                continue
            if part.node is None or not part.node.schema.keys().isdisjoint(_RESTS_OF_OBJECTS):
                self.rest = typed.node.child(True)
            if part.node is not None:
                # The part constrains such a property itself, and there it is compared with the reader's.
                is_known = is_writer and part.is_certain
                self._add(part.node, "properties", self.properties, is_known=is_known)
                self._add(part.node, "patternProperties", self.patterns, is_known=is_known)

    def _add(self, node: JsonNode, keyword: str, found: dict[str, _Conjunction], *, is_known: bool = True) -> None:
        for name, schema in node.schema.get(keyword, {}).items():
            found[name] = (*found.get(name, ()), *([node.child(schema)] if is_known else []))

    def evaluate(self, names: Iterable[_Named]) -> None:
        """A branch names them whenever the other schema does: `unevaluatedProperties` does not hold for them."""
        for keyword, name in names:
            if keyword == "properties":
                self.properties.setdefault(name, ())
            else:
                self.patterns_of_branches.add(name)

    def has_default(self, name: str) -> bool:
        schema = self._own_properties.get(name)
        return isinstance(schema, Mapping) and "default" in schema

    def schemas_for(self, name: str) -> _Conjunction:
        """All that a property has to fit."""
        matching = [schemas for pattern, schemas in self.patterns.items() if _matches(pattern, name, if_unknown=False)]
        if name not in self.properties and not matching:
            # The writer's limits the others alone, and a pattern that cannot be read may match this one.
            is_certain = not self._is_writer or all(_is_readable(pattern) for pattern in self.patterns)
            return (self.rest,) if is_certain else ()
        return tuple(each for schemas in (self.properties.get(name, ()), *matching) for each in schemas)

    def is_open_for(self, name: str) -> bool:
        return all(each.schema in (True, {}) for each in self.schemas_for(name))


# A property or a pattern: the keyword, and its name there.
_Named: TypeAlias = tuple[str, str]
_RESTS_OF_OBJECTS: Final = ("additionalProperties", "unevaluatedProperties")


@dataclass(frozen=True)
class _Part:
    """A schema that another one applies to the same value, which `unevaluated...` of the other heeds."""

    # None: of a reference that does not resolve, or only while a document is validated.
    node: JsonNode | None
    # Whether it holds for each value that the other schema accepts.
    is_certain: bool


def _parts_in_place(
    node: JsonNode, *, is_certain: bool = True, followed: frozenset[int] = frozenset()
) -> Iterator[_Part]:
    schema = node.schema
    if not isinstance(schema, Mapping):
        return
    followed |= {id(schema)}
    children: list[tuple[JsonNode, bool]] = [(node.child(each), True) for each in schema.get("allOf", ())]
    children += [(branch, False) for _, branch in _branches(node)]
    if "$ref" in schema:
        try:
            resolved = node.resolver.lookup(schema["$ref"])
        except (Unresolvable, UnknownDialect, ValueError):
            yield _Part(None, is_certain=False)
        else:
            children.append((replace(node, schema=resolved.contents, resolver=resolved.resolver), True))
    if "$dynamicRef" in schema or "$recursiveRef" in schema:
        yield _Part(None, is_certain=False)
    for child, holds in children:
        if isinstance(child.schema, Mapping) and id(child.schema) not in followed:
            yield _Part(child, is_certain and holds)
            yield from _parts_in_place(child, is_certain=is_certain and holds, followed=followed)


def _branches(node: JsonNode) -> Iterator[tuple[str, JsonNode]]:
    """The parts that hold for some values alone.  Two of one kind hold together when their conditions do."""
    schema = node.schema
    for name in ("anyOf", "oneOf"):
        for branch in schema.get(name, ()):
            yield "anyOf", node.child(branch)
    for name in ("if", "then", "else"):
        if name in schema:
            # What matches a condition counts as a branch that matches.
            yield "anyOf" if name == "if" else name, node.child(schema[name])
    for name in ("dependencies", "dependentSchemas"):
        for needing, branch in schema.get(name, {}).items():
            if not isinstance(branch, list):
                yield f"dependent {needing}", node.child(branch)


def _certain_parts(node: JsonNode) -> list[JsonNode]:
    """With the schema itself."""
    return [node, *(part.node for part in _parts_in_place(node) if part.node is not None and part.is_certain)]


def _names_in_place(node: JsonNode) -> set[_Named]:
    """What a schema names, and what all its parts do."""
    nodes = [node, *(part.node for part in _parts_in_place(node) if part.node is not None)]
    return {name for each in nodes for name in _own_names(each)}


def _own_names(node: JsonNode) -> Iterator[_Named]:
    if isinstance(node.schema, Mapping):
        for keyword in ("properties", "patternProperties"):
            yield from ((keyword, name) for name in node.schema.get(keyword, {}))


def _matches(pattern: str, name: str, *, if_unknown: bool) -> bool:
    return re.search(pattern, name) is not None if _is_readable(pattern) else if_unknown


def _is_readable(pattern: str) -> bool:
    """Not for an expression of another language."""
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _are_disjoint(pattern: str, other: str) -> bool:
    """Whether it is known that no name matches both: they begin with different texts."""
    one, two = _beginning(pattern), _beginning(other)
    return not one.startswith(two) and not two.startswith(one)


def _beginning(pattern: str) -> str:
    """Of all names that match; empty where it is not known."""
    found = re.match(r"\^([A-Za-z0-9_-]*)([*?{]?)", pattern)
    if found is None or "|" in pattern:
        return ""
    # A quantifier may leave out the last character.
    return found[1][:-1] if found[2] else found[1]


def _dependent_names(typed: _Typed) -> Iterator[tuple[str, frozenset[str]]]:
    for keyword in ("dependencies", "dependentRequired"):
        for name, needed in typed.get(keyword, {}).items():
            if isinstance(needed, list):
                yield name, frozenset(needed)


def _dependent_schemas(typed: _Typed) -> Iterator[tuple[str, Json]]:
    for keyword in ("dependencies", "dependentSchemas"):
        for name, schema in typed.get(keyword, {}).items():
            if not isinstance(schema, list):
                yield name, schema


def _items(typed: _Typed, *, is_writer: bool) -> tuple[Sequence[Json], Json]:
    """The schemas of the first items, and that of all others."""
    first, rest = typed.get("prefixItems"), typed.get("items")
    if first is None and isinstance(rest, list):
        first, rest = rest, typed.get("additionalItems")
    first = first or ()
    if rest is not None or "unevaluatedItems" not in typed.node.schema:
        return first, True if rest is None else rest
    rest = typed.get("unevaluatedItems")
    evaluated = len(first)
    if is_writer and "contains" in typed.node.schema:
        rest = True
    for part in _parts_in_place(typed.node):
        if not is_writer and not part.is_certain:
            continue
        if part.node is None or (is_writer and "contains" in part.node.schema):
            rest = True
            continue
        own, items = part.node.schema.get("prefixItems", ()), part.node.schema.get("items")
        evaluated = max(evaluated, len(items if isinstance(items, list) else own))
        rests = ("additionalItems" if isinstance(items, list) else "items", "unevaluatedItems")
        if not part.node.schema.keys().isdisjoint(rests):
            rest = True
    # The part constrains such an item itself.
    return (*first, *[True] * (evaluated - len(first))), rest


def _open_model(rest: Sequence[_Constraint], preposition: str) -> str:
    if not rest:
        return f"{preposition}_OPEN_CONTENT_MODEL"
    if any(isinstance(each, _Nothing) for each in rest):
        return f"{preposition}_CLOSED_CONTENT_MODEL"
    return "NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"


def _strings(writer: _Typed, reader: _Typed, path: str) -> Iterator[str]:
    yield from _at_most(writer, reader, "maxLength", path)
    yield from _at_least(writer, reader, "minLength", path)
    was, now = writer.get("pattern"), reader.get("pattern")
    if now is not None and now != was:
        yield f"PATTERN_{'ADDED' if was is None else 'CHANGED'} at {path}/pattern"


def _numbers(writer: _Typed, reader: _Typed, path: str) -> Iterator[str]:
    for bound, sign, change in (("maximum", 1, "DECREASED"), ("minimum", -1, "INCREASED")):
        was, now = _limit(writer, bound, sign), _limit(reader, bound, sign)
        if now is not None and (was is None or was > now):
            yield f"{bound.upper()}_{'ADDED' if was is None else change} at {path}/{bound}"
    step, multiple = _fraction(writer.get("multipleOf")), _fraction(reader.get("multipleOf"))
    if step is None and "number" not in writer.types:
        step = Fraction(1)
    if multiple and (step is None or step % multiple):
        is_added = writer.get("multipleOf") is None
        is_expanded = step is not None and step != 0 and multiple % step == 0
        change = "ADDED" if is_added else "EXPANDED" if is_expanded else "CHANGED"
        yield f"MULTIPLE_OF_{change} at {path}/multipleOf"


def _limit(typed: _Typed, bound: str, sign: int) -> tuple[float, bool] | None:
    """The upper bound of the number times `sign`; greater is weaker, and one that may be reached is weaker, too."""
    name = f"exclusive{bound.capitalize()}"
    inclusive, exclusive = typed.get(bound), typed.get(name)
    if exclusive is True:
        # Draft 4: it says how `maximum` is meant.
        inclusive, exclusive = None, inclusive
    found = [
        (sign * value, is_reached) for value, is_reached in ((inclusive, True), (exclusive, False)) if _is_number(value)
    ]
    return min(found, default=None)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fraction(value: Json) -> Fraction | None:
    return Fraction(str(value)) if _is_number(value) and math.isfinite(value) else None


def _at_most(writer: _Typed, reader: _Typed, name: str, path: str) -> Iterator[str]:
    was, now = writer.get(name), reader.get(name)
    if now is not None and (was is None or was > now):
        yield f"{_upper(name)}_{'ADDED' if was is None else 'DECREASED'} at {path}/{name}"


def _at_least(writer: _Typed, reader: _Typed, name: str, path: str) -> Iterator[str]:
    was, now = writer.get(name), reader.get(name)
    if now and (was is None or was < now):
        yield f"{_upper(name)}_{'ADDED' if was is None else 'INCREASED'} at {path}/{name}"


def _have_other_sizes(kind: str, one: _Typed, two: _Typed) -> bool:
    """Whether the limits of one leave no value of this type that those of the other leave."""
    if kind in ("integer", "number"):
        return _is_above(one, two) or _is_above(two, one)
    noun = {"string": "Length", "array": "Items", "object": "Properties"}.get(kind)
    return noun is not None and (_needs_more(one, two, noun) or _needs_more(two, one, noun))


def _needs_more(typed: _Typed, other: _Typed, noun: str) -> bool:
    """Whether one has at least more than the other at most: `minItems` and `maxItems` for the noun `Items`."""
    least, most = typed.get(f"min{noun}"), other.get(f"max{noun}")
    return least is not None and most is not None and least > most


def _is_above(typed: _Typed, other: _Typed) -> bool:
    """Whether all numbers of one are greater than all of the other's."""
    lower, upper = _limit(typed, "minimum", -1), _limit(other, "maximum", 1)
    if lower is None or upper is None:
        return False
    (negated, is_reached), (most, may_reach) = lower, upper
    return -negated > most or (-negated == most and not (is_reached and may_reach))


def _is_beyond(value: Json, typed: _Typed, bound: str, sign: int) -> bool:
    limit = _limit(typed, bound, sign)
    return limit is not None and (sign * value, True) > limit


def _upper(name: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", name).upper()


def _values_follow(writer: Sequence[_Constraint], values: Sequence[Json], path: str) -> Problems:
    own = [each.values for each in writer if isinstance(each, _Values)]
    if any(_contains_all(values, each) for each in own):
        return []
    if not own:
        return [f"ENUM_ARRAY_ADDED at {path}/enum"]
    is_narrowed = any(_contains_all(each, values) for each in own)
    return [f"ENUM_ARRAY_{'NARROWED' if is_narrowed else 'CHANGED'} at {path}/enum"]


def _contains_all(values: Iterable[Json], others: Iterable[Json]) -> bool:
    known = {_identity(value) for value in values}
    return all(_identity(other) in known for other in others)


def _identity(value: Json) -> object:
    """Equal for values that are equal in JSON, where true is not 1, and 1 is 1.0."""
    if isinstance(value, Mapping):
        return ("object", frozenset((name, _identity(each)) for name, each in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_identity(each) for each in value))
    return (_type_of(value).replace("integer", "number"), value)


def _type_of(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names = {float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _fits(value: Json, reader: _Typed) -> bool:
    """Whether a value of an `enum` is known to fit a reader that limits only types."""
    kind = _type_of(value)
    keywords = _KEYWORDS.get("number" if kind == "integer" else kind, frozenset())
    return kind in _widened(reader.types) and not keywords & reader.node.schema.keys()


def _is_matched(fitting: Sequence[Sequence[int]]) -> bool:
    """Whether the cases have different branches: a bipartite matching, by augmenting paths."""
    taken_by: dict[int, int] = {}

    def place(case: int, tried: set[int]) -> bool:
        for branch in fitting[case]:
            if branch in tried:
                continue
            tried.add(branch)
            if branch not in taken_by or place(taken_by[branch], tried):
                taken_by[branch] = case
                return True
        return False

    return all(place(case, set()) for case in range(len(fitting)))
