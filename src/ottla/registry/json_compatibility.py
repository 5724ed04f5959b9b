"""Whether a JSON Schema accepts all documents of another one, by the documented rules of Confluent's registry.

A document of the writer's schema may have properties that the schema does not name, unless it is closed
(`additionalProperties: false`).  So a reader may not constrain another property of an open object: an earlier
document may have it with another type.  It may in a closed one.

A schema is a conjunction of constraints: its keywords by type, its alternatives (`anyOf`, `oneOf`), its values
(`enum`), `not`, `if`, and those of `allOf` and of `$ref`.  A reader's schema accepts the writer's documents when each
of its constraints follows from one of the writer's.  That is sufficient and not necessary: two constraints of the
writer's may imply a third together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from referencing.exceptions import Unresolvable
from referencing.jsonschema import UnknownDialect

from ottla.registry.json_format import JsonNode

Json = Any
Problems: TypeAlias = list[str]

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
        self._cases: Final = constraints.cases
        self._open: set[tuple[int, int]] = set()
        self._done: dict[tuple[int, int], Problems] = {}

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
        if any(not self._all(writer, branch, path) for branch in branches):
            return []
        found = None
        for each in writer:
            match each:
                case _Alternatives(own, is_exclusive):
                    cases = [self._of_node(branch) for branch in own]
                case _Typed(_, types) if len(types) > 1:
                    # Of several types a document has one.
                    cases, is_exclusive = self._cases(each), True
                case _:
                    continue
            if reader.is_exclusive and not is_exclusive:
                found = found or f"COMBINED_TYPE_CHANGED at {path}"
                continue
            fitting = [
                [number for number, branch in enumerate(branches) if not self._all(case, branch, path)]
                for case in cases
            ]
            if _is_matched(fitting) if reader.is_exclusive else all(fitting):
                return []
            is_narrowed = len(cases) > len(branches)
            found = f"{'SUM_TYPE_NARROWED' if is_narrowed else 'COMBINED_TYPE_SUBSCHEMAS_CHANGED'} at {path}"
        return [found or f"TYPE_CHANGED at {path}"]

    def _not_follows(self, writer: Sequence[_Constraint], refused: JsonNode, path: str) -> Problems:
        excluded = self._of_node(refused)
        for each in writer:
            # What the reader refuses, the writer refused, too.
            if isinstance(each, _Not) and not self.of(refused, each.node, f"{path}/not"):
                return []
            if isinstance(each, _Typed) and any(
                isinstance(other, _Typed) and not each.types & _widened(other.types) for other in excluded
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
        was, now = _ObjectModel(writer), _ObjectModel(reader)
        yield from self._required(was, now, path)
        for name in dict.fromkeys([*was.properties, *now.properties]):
            place = f"{path}/properties/{name}"
            if name not in now.properties:
                yield from self._property_removed(was, now, name, place)
            elif name not in was.properties:
                yield from self._property_added(was, now, name, place)
            else:
                yield from self.of(was.child(was.properties[name]), now.child(now.properties[name]), place)
        yield from self._patterns(was, now, path)
        yield from self._rest(
            was.child(was.rest), now.child(now.rest), "ADDITIONAL_PROPERTIES", f"{path}/{now.rest_name}"
        )
        if "propertyNames" in reader.node.schema:
            names = writer.get("propertyNames", True)
            yield from self.of(was.child(names), now.child(reader.get("propertyNames")), f"{path}/propertyNames")
        yield from self._dependencies(writer, reader, path)

    def _required(self, was: _ObjectModel, now: _ObjectModel, path: str) -> Iterator[str]:
        for name in now.required - was.required:
            is_declared, default = name in now.properties, _has_default(now.properties.get(name))
            if is_declared and name not in was.properties and not was.is_open_for(name):
                # `_property_added` decides.
                continue
            if not default:
                yield f"REQUIRED_ATTRIBUTE_ADDED at {path}/required/{name}"

    def _property_removed(self, was: _ObjectModel, now: _ObjectModel, name: str, place: str) -> Iterator[str]:
        if now.is_open_for(name):
            return
        rest = now.schema_for(name)
        if rest is False:
            if was.properties[name] is not False:
                yield f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {place}"
        elif problems := self.of(was.child(was.properties[name]), now.child(rest), place):
            yield from problems
            yield f"PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {place}"

    def _property_added(self, was: _ObjectModel, now: _ObjectModel, name: str, place: str) -> Iterator[str]:
        added = now.properties[name]
        is_required = name in now.required
        if was.is_open_for(name):
            if self._of_node(now.child(added)):
                yield f"{'REQUIRED' if is_required else 'OPTIONAL'}_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {place}"
            return
        rest = was.schema_for(name)
        if rest is not False and (problems := self.of(was.child(rest), now.child(added), place)):
            yield from problems
            yield f"PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {place}"
        if is_required and name not in was.required and not _has_default(added):
            yield f"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL at {place}"

    def _patterns(self, was: _ObjectModel, now: _ObjectModel, path: str) -> Iterator[str]:
        for pattern, schema in now.patterns.items():
            before = was.patterns.get(pattern, was.rest)
            yield from self.of(was.child(before), now.child(schema), f"{path}/patternProperties/{pattern}")
        for pattern in was.patterns.keys() - now.patterns.keys():
            place = f"{path}/patternProperties/{pattern}"
            yield from self.of(was.child(was.patterns[pattern]), now.child(now.rest), place)

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
        (was_items, was_rest), (now_items, now_rest) = _items(writer), _items(reader)
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
        self._cases: dict[int, list[Sequence[_Constraint]]] = {}

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

    def cases(self, typed: _Typed) -> list[Sequence[_Constraint]]:
        """One for each of its types."""
        found = self._cases.get(id(typed))
        if found is None:
            found = [[replace(typed, types=frozenset({kind}))] for kind in sorted(typed.types)]
            self._cases[id(typed)] = found
        return found


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


def _widened(types: frozenset[str]) -> frozenset[str]:
    return types | {"integer"} if "number" in types else types


class _ObjectModel:
    """Which properties an object has, and what holds for the others."""

    def __init__(self, typed: _Typed) -> None:
        self.child: Callable[[Json], JsonNode] = typed.node.child
        self.properties: Mapping[str, Json] = typed.get("properties", {})
        self.patterns: Mapping[str, Json] = typed.get("patternProperties", {})
        self.required = frozenset(typed.get("required", ())) if isinstance(typed.get("required"), list) else frozenset()
        is_given = "additionalProperties" in typed.node.schema
        self.rest_name = "additionalProperties" if is_given else "unevaluatedProperties"
        self.rest: Json = typed.get(self.rest_name, True)

    def schema_for(self, name: str) -> Json:
        """Of a property that the schema does not name."""
        return next((schema for pattern, schema in self.patterns.items() if _matches(pattern, name)), self.rest)

    def is_open_for(self, name: str) -> bool:
        return self.schema_for(name) in (True, {})


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        # An expression of another language: no property is known to match it.
        return False


def _has_default(schema: Json) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


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


def _items(typed: _Typed) -> tuple[Sequence[Json], Json]:
    """The schemas of the first items, and that of all others."""
    first, rest = typed.get("prefixItems"), typed.get("items")
    if first is None and isinstance(rest, list):
        first, rest = rest, typed.get("additionalItems")
    if rest is None:
        rest = typed.get("unevaluatedItems", True)
    return first or (), rest


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
    """Whether each case has a branch of its own: a bipartite matching, by augmenting paths."""
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
