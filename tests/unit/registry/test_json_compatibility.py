"""The documented rules of Confluent's registry for JSON Schema: what each change means for readers and for writers."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from ottla.registry.checks import incompatibilities, kept
from ottla.registry.json_compatibility import json_problems
from ottla.registry.json_format import json_root
from ottla.registry.schema import Level, Reference, Schema, SchemaType
from tests.unit.registry.small_registry import DirectAnswers, schema

Json = Any
BOTH: Final = (True, True)
# The new schema accepts what the old one accepted; and the other way round.
BACKWARD: Final = (True, False)
FORWARD: Final = (False, True)
NEITHER: Final = (False, False)

STRING: Final = {"type": "string"}
INTEGER: Final = {"type": "integer"}
NUMBER: Final = {"type": "number"}
NULL: Final = {"type": "null"}
LOW: Final = {"type": "integer", "maximum": 0}
HIGH: Final = {"type": "integer", "minimum": 5}


def problems(old: Json, new: Json, **referenced: Json) -> list[str]:
    """Of the new schema, as a reader of what the old one wrote."""
    others = [(name, json.dumps(text)) for name, text in referenced.items()]
    return json_problems(*(json_root(json.dumps(each), others) for each in (new, old)))


def rules(old: Json, new: Json) -> list[str]:
    return [problem.partition(" at ")[0] for problem in problems(old, new)]


def fits(old: Json, new: Json) -> tuple[bool, bool]:
    return not problems(old, new), not problems(new, old)


def an_object(*required: str, closed: bool = False, rest: Json = None, **properties: Json) -> Json:
    found: dict[str, Json] = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    if closed or rest is not None:
        found["additionalProperties"] = False if closed else rest
    return found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (STRING, STRING, BOTH),
        (STRING, {**STRING, "title": "t", "description": "d", "default": "x", "$id": "i"}, BOTH),
        (STRING, {}, BACKWARD),
        (STRING, True, BACKWARD),
        (False, STRING, BACKWARD),
        (STRING, INTEGER, NEITHER),
        (INTEGER, NUMBER, BACKWARD),
        (STRING, {"type": ["string", "null"]}, BACKWARD),
        ({"type": ["string", "integer"]}, {"type": ["number", "string"]}, BACKWARD),
        ({**STRING, "maxLength": 5}, {**STRING, "maxLength": 6}, BACKWARD),
        ({**STRING, "minLength": 5}, {**STRING, "minLength": 4}, BACKWARD),
        ({**STRING, "pattern": "a"}, STRING, BACKWARD),
        ({**STRING, "pattern": "a"}, {**STRING, "pattern": "b"}, NEITHER),
        ({**NUMBER, "maximum": 5}, {**NUMBER, "maximum": 6}, BACKWARD),
        ({**NUMBER, "exclusiveMaximum": 5}, {**NUMBER, "maximum": 5}, BACKWARD),
        ({**NUMBER, "maximum": 5, "exclusiveMaximum": True}, {**NUMBER, "exclusiveMaximum": 5}, BOTH),
        ({**NUMBER, "minimum": 5}, {**NUMBER, "minimum": 4.5}, BACKWARD),
        ({**NUMBER, "exclusiveMinimum": 4}, {**NUMBER, "minimum": 4}, BACKWARD),
        ({**NUMBER, "multipleOf": 10}, {**NUMBER, "multipleOf": 5}, BACKWARD),
        ({**NUMBER, "multipleOf": 0.3}, {**NUMBER, "multipleOf": 0.1}, BACKWARD),
        ({**NUMBER, "multipleOf": 4}, {**NUMBER, "multipleOf": 6}, NEITHER),
        (INTEGER, {**INTEGER, "multipleOf": 1}, BOTH),
        ({"enum": ["a", "b"]}, {"enum": ["c", "b", "a"]}, BACKWARD),
        ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}, NEITHER),
        ({"enum": [1, {"a": [True]}]}, {"enum": [{"a": [True]}, 1.0]}, BOTH),
        ({"enum": [1]}, {"enum": [True]}, NEITHER),
        ({"const": "a"}, {"enum": ["a", "b"]}, BACKWARD),
        ({"enum": ["a", "b"]}, STRING, BACKWARD),
        ({"enum": ["a", 1]}, STRING, NEITHER),
        ({**STRING, "enum": ["a"]}, STRING, BACKWARD),
    ],
)
def test_scalars_fit_when_the_reader_accepts_all_values(old: Json, new: Json, expected: tuple[bool, bool]) -> None:
    assert fits(old, new) == expected


ONE: Final = an_object(a=STRING)
TWO: Final = an_object(a=STRING, b=STRING)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # An open object may have had b with another type; a closed one had no b.
        (ONE, TWO, FORWARD),
        (ONE, an_object(a=STRING, b=True), BOTH),
        (an_object(a=STRING, closed=True), an_object(a=STRING, b=STRING, closed=True), BACKWARD),
        (an_object(a=STRING, closed=True), TWO, BACKWARD),
        (an_object(a=STRING, closed=True), ONE, BACKWARD),
        # Partly open: what the schema of the others covers may come and go.
        (an_object(a=STRING, rest=STRING), an_object(a=STRING, b=STRING, rest=STRING), BOTH),
        (an_object(a=STRING, rest=STRING), an_object(a=STRING, b=INTEGER, rest=STRING), NEITHER),
        (an_object(rest=INTEGER), an_object(rest=NUMBER), BACKWARD),
        (an_object(rest=STRING), an_object(), BACKWARD),
        (an_object(a=STRING, b=False, closed=True), an_object(a=STRING, closed=True), BOTH),
        # Required properties.
        (an_object("a", a=STRING), ONE, BACKWARD),
        (an_object(a=STRING), an_object("a", a={**STRING, "default": ""}), BOTH),
        (an_object(a=STRING, closed=True), an_object("b", a=STRING, b=STRING, closed=True), NEITHER),
        (
            an_object(a=STRING, closed=True),
            an_object("b", a=STRING, b={**STRING, "default": ""}, closed=True),
            BACKWARD,
        ),
        (ONE, {**ONE, "required": ["c"]}, FORWARD),
        # Within.
        (an_object(a=INTEGER), an_object(a=NUMBER), BACKWARD),
        (an_object(a=an_object(b=INTEGER)), an_object(a=an_object(b=STRING)), NEITHER),
        ({**ONE, "maxProperties": 5}, {**ONE, "maxProperties": 6}, BACKWARD),
        ({**ONE, "minProperties": 1}, ONE, BACKWARD),
        (ONE, {**ONE, "propertyNames": {"pattern": "^a"}}, FORWARD),
        (
            {"type": "object", "patternProperties": {"^s_": STRING}, "additionalProperties": False},
            {"type": "object", "patternProperties": {"^s_": STRING}, "properties": {"s_a": STRING}},
            BACKWARD,
        ),
        (
            {"type": "object", "patternProperties": {"^s_": INTEGER}},
            {"type": "object", "patternProperties": {"^s_": NUMBER}},
            BACKWARD,
        ),
        ({**TWO, "dependentRequired": {"a": ["b"]}}, TWO, BACKWARD),
        ({**TWO, "dependencies": {"a": ["b"]}}, {**TWO, "dependentRequired": {"a": ["b"]}}, BOTH),
        ({**TWO, "dependentRequired": {"a": ["b"]}}, {**TWO, "dependentRequired": {"a": ["b", "c"]}}, FORWARD),
        ({**TWO, "dependentSchemas": {"a": {"required": ["b"]}}}, TWO, BACKWARD),
        # Keywords for objects alone make it one.
        ({"properties": {"a": STRING}}, an_object(a=STRING), BOTH),
    ],
)
def test_objects_fit_by_their_content_model(old: Json, new: Json, expected: tuple[bool, bool]) -> None:
    assert fits(old, new) == expected


def an_array(items: Json = None, **more: Json) -> Json:
    found: dict[str, Json] = {"type": "array", **more}
    if items is not None:
        found["items"] = items
    return found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (an_array(INTEGER), an_array(NUMBER), BACKWARD),
        (an_array(INTEGER), an_array(), BACKWARD),
        (an_array(INTEGER), an_array(STRING), NEITHER),
        (an_array(maxItems=3), an_array(maxItems=4), BACKWARD),
        (an_array(minItems=3), an_array(minItems=2), BACKWARD),
        (an_array(uniqueItems=True), an_array(), BACKWARD),
        (an_array(prefixItems=[STRING]), an_array([STRING]), BOTH),
        (an_array(prefixItems=[STRING]), an_array(prefixItems=[STRING, INTEGER]), FORWARD),
        (an_array(False, prefixItems=[STRING]), an_array(False, prefixItems=[STRING, INTEGER]), BACKWARD),
        (an_array(INTEGER, prefixItems=[STRING]), an_array(INTEGER, prefixItems=[STRING, NUMBER]), BACKWARD),
        (an_array([STRING], additionalItems=False), an_array(False, prefixItems=[STRING]), BOTH),
        (an_array(contains=INTEGER), an_array(contains=NUMBER), BACKWARD),
        (an_array(contains=INTEGER), an_array(), BACKWARD),
        (an_array(contains=INTEGER, minContains=2), an_array(contains=INTEGER), BACKWARD),
        (an_array(contains=INTEGER, maxContains=2), an_array(contains=INTEGER, maxContains=3), BACKWARD),
    ],
)
def test_arrays_fit_item_by_item(old: Json, new: Json, expected: tuple[bool, bool]) -> None:
    assert fits(old, new) == expected


def unevaluated(*parts: Json, rest: Json = False, **more: Json) -> Json:
    return {"type": "object", "allOf": list(parts), "unevaluatedProperties": rest, **more}


A_TEXT: Final = {"properties": {"a": STRING}}
A_NUMBER: Final = {"properties": {"a": INTEGER}}
AB_TEXT: Final = {"properties": {"a": STRING, "b": STRING}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # Without other schemas for the same value, it is additionalProperties.
        (
            {**an_object(a=STRING), "unevaluatedProperties": False},
            {**an_object(a=STRING, b=STRING), "unevaluatedProperties": False},
            BACKWARD,
        ),
        # A part names a, so the schema is not closed for it.
        (unevaluated(A_TEXT), unevaluated(A_TEXT), BOTH),
        (unevaluated(A_TEXT), unevaluated(A_NUMBER), NEITHER),
        (unevaluated(A_NUMBER), unevaluated({"properties": {"a": NUMBER}}), BACKWARD),
        (unevaluated(A_TEXT), unevaluated(AB_TEXT), BACKWARD),
        (unevaluated(A_TEXT), unevaluated(A_TEXT, properties={"b": STRING}), BACKWARD),
        (unevaluated(A_TEXT), an_object(a=STRING, closed=True), BOTH),
        (unevaluated(A_TEXT), an_object(a=INTEGER, closed=True), NEITHER),
        (unevaluated(A_TEXT, rest=INTEGER), unevaluated(A_TEXT, rest=NUMBER), BACKWARD),
        (unevaluated(A_TEXT, {"additionalProperties": True}), unevaluated(A_TEXT), FORWARD),
        (unevaluated({"patternProperties": {"^a": STRING}}), unevaluated(A_NUMBER), NEITHER),
        (unevaluated({"$ref": "#/$defs/a"}, **{"$defs": {"a": A_TEXT}}), unevaluated(A_NUMBER), NEITHER),
        (unevaluated({"$ref": "#/$defs/a"}, **{"$defs": {"a": A_TEXT}}), unevaluated(AB_TEXT), BACKWARD),
        (unevaluated({"$ref": "nowhere.json"}), unevaluated(A_NUMBER), NEITHER),
        (unevaluated(anyOf=[A_TEXT, {"required": ["c"]}]), an_object(a=STRING, closed=True), NEITHER),
        (unevaluated(oneOf=[A_TEXT, {"required": ["c"]}]), an_object(a=STRING, closed=True), NEITHER),
        (unevaluated(**{"if": A_TEXT, "then": {"properties": {"b": STRING}}}), unevaluated(AB_TEXT), NEITHER),
        (unevaluated(dependentSchemas={"c": A_TEXT}, properties={"c": NULL}), unevaluated(A_NUMBER), NEITHER),
    ],
)
def test_what_other_schemas_name_is_not_closed_by_unevaluated_properties(
    old: Json, new: Json, expected: tuple[bool, bool]
) -> None:
    assert fits(old, new) == expected


CAT: Final = {"required": ["lives"], "properties": {"lives": INTEGER}}
OLD_CAT: Final = {"required": ["lives"], "properties": {"lives": NUMBER}}
DOG: Final = {"required": ["bones"], "properties": {"bones": STRING}}
ALSO_BONES: Final = {"properties": {"bones": STRING}}
ANY_DOG: Final = {"required": ["bones"]}
A_PATTERN: Final = {"patternProperties": {"^a": STRING}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (unevaluated(oneOf=[CAT, DOG]), unevaluated(oneOf=[CAT, DOG], title="t"), BOTH),
        (unevaluated(oneOf=[CAT, DOG]), unevaluated(oneOf=[DOG, OLD_CAT]), BACKWARD),
        (unevaluated(anyOf=[CAT, DOG]), unevaluated(anyOf=[CAT, DOG, NULL]), BACKWARD),
        (
            an_object(pet=unevaluated(anyOf=[CAT, {"anyOf": [DOG, {"additionalProperties": STRING}]}])),
            {
                "title": "t",
                **an_object(pet=unevaluated(anyOf=[CAT, {"anyOf": [DOG, {"additionalProperties": STRING}]}])),
            },
            BOTH,
        ),
        # The branch that a dog fits does not name bones any more, and the one that does may not hold.
        (unevaluated(anyOf=[CAT, DOG]), unevaluated(anyOf=[CAT, ANY_DOG]), NEITHER),
        (unevaluated(anyOf=[CAT, DOG]), unevaluated(anyOf=[CAT, ANY_DOG, {**CAT, **ALSO_BONES}]), NEITHER),
        # A branch of a part counts as one of the schema.
        (
            unevaluated({"anyOf": [{"$ref": "#/$defs/cat"}, DOG]}, **{"$defs": {"cat": CAT}}),
            unevaluated(anyOf=[OLD_CAT, DOG]),
            BACKWARD,
        ),
        (unevaluated(anyOf=[A_PATTERN, NULL]), unevaluated(anyOf=[A_PATTERN, NULL, INTEGER]), BACKWARD),
        # What a part that always holds names, a branch need not.
        (
            unevaluated(anyOf=[A_PATTERN, ANY_DOG], properties={"a": True}),
            unevaluated(anyOf=[{**A_PATTERN, "title": "t"}, ANY_DOG]),
            FORWARD,
        ),
        (unevaluated(ALSO_BONES, anyOf=[CAT, DOG]), unevaluated(anyOf=[CAT, DOG]), NEITHER),
        (unevaluated(**{"if": CAT, "then": ALSO_BONES}), unevaluated(**{"if": CAT, "then": ALSO_BONES}), BOTH),
        (unevaluated(**{"if": CAT, "else": ALSO_BONES}), unevaluated(**{"if": CAT, "else": ALSO_BONES}), BOTH),
        (unevaluated(**{"if": CAT, "then": ALSO_BONES}), unevaluated(**{"if": DOG, "then": ALSO_BONES}), NEITHER),
        (
            unevaluated(dependentSchemas={"c": A_TEXT}, properties={"c": NULL}),
            unevaluated(
                dependentSchemas={"c": {"properties": {"a": {"type": ["string", "null"]}}}}, properties={"c": {}}
            ),
            BACKWARD,
        ),
        (
            unevaluated(dependentSchemas={"c": A_TEXT}, properties={"c": NULL, "d": NULL}),
            unevaluated(dependentSchemas={"d": A_TEXT}, properties={"c": NULL, "d": NULL}),
            NEITHER,
        ),
    ],
)
def test_property_that_a_branch_names_stays_if_the_branch_for_the_same_documents_names_it(
    old: Json, new: Json, expected: tuple[bool, bool]
) -> None:
    assert fits(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            an_array(prefixItems=[STRING], unevaluatedItems=False),
            an_array(prefixItems=[STRING, INTEGER], unevaluatedItems=False),
            BACKWARD,
        ),
        (
            an_array(allOf=[{"prefixItems": [STRING]}], unevaluatedItems=False),
            an_array(allOf=[{"prefixItems": [STRING]}], unevaluatedItems=False),
            BOTH,
        ),
        (
            an_array(allOf=[{"prefixItems": [STRING]}], unevaluatedItems=False),
            an_array(allOf=[{"prefixItems": [INTEGER]}], unevaluatedItems=False),
            NEITHER,
        ),
        (an_array(allOf=[{"items": STRING}], unevaluatedItems=False), an_array(INTEGER), NEITHER),
        (an_array(contains=STRING, unevaluatedItems=False), an_array(INTEGER), NEITHER),
        (an_array(anyOf=[{"prefixItems": [STRING]}, NULL], unevaluatedItems=False), an_array(INTEGER), NEITHER),
        # It has no effect without a list of items, so it leaves the rest to unevaluatedItems.
        (an_array(), an_array(allOf=[{"additionalItems": True}], unevaluatedItems=False), FORWARD),
    ],
)
def test_what_other_schemas_name_is_not_closed_by_unevaluated_items(
    old: Json, new: Json, expected: tuple[bool, bool]
) -> None:
    assert fits(old, new) == expected


def patterned(rest: Json = False, properties: Json = None, **patterns: Json) -> Json:
    """`s_=STRING` is the pattern `^s_`."""
    named = {f"^{beginning}": pattern for beginning, pattern in patterns.items()}
    return {**an_object(rest=rest, **(properties or {})), "patternProperties": named}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # A pattern that is added holds for the properties that the writer names, too.
        (an_object(a_x=INTEGER, closed=True), patterned(properties={"a_x": INTEGER}, a_=STRING), NEITHER),
        (an_object(a_x=INTEGER, closed=True), patterned(properties={"a_x": INTEGER}, a_=NUMBER), BACKWARD),
        (an_object(a_x=INTEGER, closed=True), patterned(properties={"a_x": INTEGER}, b_=STRING), BACKWARD),
        # And for those that another pattern matches.
        (patterned(a=STRING), patterned(ab=INTEGER), NEITHER),
        (patterned(a=STRING), patterned(a=STRING, ab=INTEGER), NEITHER),
        (patterned(a=INTEGER), patterned(a=INTEGER, ab=NUMBER), BACKWARD),
        (patterned(a_=STRING), patterned(a_=STRING, b_=INTEGER), BACKWARD),
        (patterned(**{"a*": STRING}), patterned(**{"a*": STRING, "b": INTEGER}), NEITHER),
        (patterned(**{"a|c": STRING}), patterned(**{"a|c": STRING, "b": INTEGER}), NEITHER),
        # All patterns that match a removed property hold for it.
        (
            patterned(properties={"a_b": STRING}, a=STRING),
            {**an_object(closed=True), "patternProperties": {"^a": STRING, "b$": INTEGER}},
            NEITHER,
        ),
        (
            an_object(a_b=STRING, closed=True),
            {**an_object(closed=True), "patternProperties": {"^a": STRING, "b$": {"type": ["string", "null"]}}},
            BACKWARD,
        ),
        # And all that the writer has for a property that is added.
        (patterned(a={}, ab=INTEGER), patterned(properties={"abc": NUMBER}, a={}, ab=INTEGER), BOTH),
        # A pattern of another language may match each name.
        (
            an_object(a=STRING, closed=True),
            {**an_object(a=STRING, closed=True), "patternProperties": {"(?<x>a)": INTEGER}},
            NEITHER,
        ),
        (
            {**an_object(closed=True), "patternProperties": {"(?<x>a)": INTEGER}},
            {**an_object(a=STRING, closed=True), "patternProperties": {"(?<x>a)": INTEGER}},
            NEITHER,
        ),
    ],
)
def test_all_patterns_that_match_a_property_hold_for_it(old: Json, new: Json, expected: tuple[bool, bool]) -> None:
    assert fits(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (STRING, {"oneOf": [NULL, STRING]}, BACKWARD),
        ({"oneOf": [NULL, STRING]}, {"oneOf": [STRING, NULL, INTEGER]}, BACKWARD),
        ({"oneOf": [NULL, STRING]}, {"anyOf": [STRING, NULL]}, BACKWARD),
        ({"oneOf": [STRING]}, STRING, BOTH),
        ({"type": ["string", "null"]}, {"oneOf": [NULL, STRING]}, BOTH),
        ({"oneOf": [NULL, INTEGER]}, {"oneOf": [NULL, NUMBER]}, BACKWARD),
        # Each old branch of a oneOf needs another new one.
        ({"oneOf": [LOW, HIGH, STRING]}, {"oneOf": [INTEGER, STRING, NULL]}, NEITHER),
        ({"oneOf": [LOW, HIGH, STRING]}, {"anyOf": [INTEGER, STRING, NULL]}, BACKWARD),
        ({"oneOf": [LOW, HIGH]}, {"oneOf": [INTEGER, STRING]}, BACKWARD),
        ({"anyOf": [INTEGER, STRING]}, {"oneOf": [INTEGER, STRING]}, FORWARD),
        # Of a number that is whole there are two cases, and they are one.
        ({"type": ["integer", "number"]}, {"oneOf": [NUMBER, STRING]}, BACKWARD),
        (NUMBER, {**NUMBER, "not": INTEGER}, FORWARD),
        ({"allOf": [ONE, {"required": ["a"]}]}, ONE, BACKWARD),
        ({"allOf": [ONE, {"required": ["a"]}]}, {"allOf": [{"required": ["a"]}, ONE]}, BOTH),
        ({**STRING, "not": {"enum": ["a"]}}, STRING, BACKWARD),
        ({**STRING, "not": {"enum": ["a", "b"]}}, {**STRING, "not": {"enum": ["a"]}}, BACKWARD),
        (STRING, {**STRING, "not": INTEGER}, BOTH),
        (ONE, {**ONE, "if": {"required": ["a"]}, "then": {"required": ["b"]}}, FORWARD),
        (
            {**ONE, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
            {**ONE, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
            BOTH,
        ),
    ],
)
def test_alternatives_fit_branch_by_branch(old: Json, new: Json, expected: tuple[bool, bool]) -> None:
    assert fits(old, new) == expected


SHORT: Final = {"type": "string", "maxLength": 5}
LONG: Final = {"type": "string", "minLength": 6}
CLICK: Final = an_object("kind", kind={"const": "click"}, at=INTEGER)
VIEW: Final = an_object("kind", kind={"enum": ["view", "seen"]}, at=INTEGER)
OLD_VIEW: Final = an_object("kind", kind={"enum": ["view", "seen"]}, at=NUMBER)
NAMED: Final = an_object("name", name=STRING)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # A document of the old branch would match two of the new ones.
        (STRING, {"oneOf": [STRING, SHORT]}, FORWARD),
        ({"oneOf": [NULL, STRING]}, {"oneOf": [NULL, STRING, SHORT]}, NEITHER),
        ({"oneOf": [LOW, HIGH]}, {"oneOf": [INTEGER, HIGH]}, NEITHER),
        ({"oneOf": [LOW, HIGH]}, {"oneOf": [LOW, {"type": "integer", "minimum": 0}]}, NEITHER),
        ({"oneOf": [LOW, HIGH]}, {"oneOf": [LOW, {"type": "integer", "exclusiveMinimum": 0}]}, BACKWARD),
        ({"oneOf": [SHORT, NULL]}, {"oneOf": [SHORT, NULL, LONG]}, BACKWARD),
        ({"oneOf": [SHORT, NULL]}, {"oneOf": [SHORT, NULL, {"enum": [1, "abcdef"]}]}, NEITHER),
        ({"oneOf": [INTEGER, NULL]}, {"oneOf": [INTEGER, NULL, {"enum": ["a", 1.5]}]}, BACKWARD),
        ({"type": ["string", "null"]}, {"oneOf": [{"type": ["string", "null"]}, STRING]}, FORWARD),
        # Equal branches that overlap accept the same documents as before.
        ({"oneOf": [STRING, SHORT]}, {"oneOf": [SHORT, STRING]}, BOTH),
        ({"oneOf": [STRING, SHORT]}, {"oneOf": [SHORT, STRING, NULL]}, BACKWARD),
        ({"oneOf": [CLICK, NAMED]}, {"oneOf": [CLICK, NAMED]}, BOTH),
        # A wider branch that may overlap with the other one.
        ({"oneOf": [STRING, SHORT]}, {"oneOf": [STRING, {"type": "string", "maxLength": 6}]}, NEITHER),
        # Limits without a type hold for numbers alone.
        ({"oneOf": [NULL, {**NUMBER, "minimum": 5}]}, {"oneOf": [NULL, {"minimum": 5}]}, FORWARD),
        # Objects are apart by a property that one requires, and open ones by nothing else.
        ({"oneOf": [CLICK, VIEW]}, {"oneOf": [OLD_VIEW, CLICK]}, BACKWARD),
        ({"oneOf": [CLICK]}, {"oneOf": [CLICK, VIEW]}, BACKWARD),
        (CLICK, {"oneOf": [CLICK, NAMED]}, NEITHER),
        (
            {**an_object("kind"), "oneOf": [{"properties": CLICK["properties"]}]},
            {**an_object("kind"), "oneOf": [{"properties": CLICK["properties"]}, {"properties": VIEW["properties"]}]},
            BACKWARD,
        ),
        (CLICK, {"oneOf": [CLICK, an_object("name", closed=True, name=STRING)]}, BACKWARD),
        ({"oneOf": [CLICK, STRING]}, {"oneOf": [CLICK, STRING, NAMED]}, NEITHER),
        (
            {"oneOf": [{"type": "array", "maxItems": 1}, NULL]},
            {"oneOf": [{"type": "array", "maxItems": 1}, {"type": "array", "minItems": 2}, NULL]},
            BACKWARD,
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [NULL, an_object("a", a={"$ref": "#/$defs/a"})]}}},
            {
                "$ref": "#/$defs/a",
                "$defs": {
                    "a": {
                        "oneOf": [
                            NULL,
                            an_object("a", a={"$ref": "#/$defs/a"}),
                            an_object("a", a={"$ref": "#/$defs/a"}, b=STRING),
                        ]
                    }
                },
            },
            NEITHER,
        ),
    ],
)
def test_one_of_fits_where_no_document_can_match_two_of_its_branches(
    old: Json, new: Json, expected: tuple[bool, bool]
) -> None:
    assert fits(old, new) == expected


def test_overlap_of_branches_is_named() -> None:
    assert problems({"oneOf": [NULL, STRING]}, {"oneOf": [NULL, STRING, SHORT]}) == ["ONE_OF_BRANCHES_OVERLAP at #"]
    old, new = an_object(a=STRING), an_object(a={"oneOf": [STRING, SHORT]})
    assert problems(old, new) == ["ONE_OF_BRANCHES_OVERLAP at #/properties/a"]


def test_problem_names_the_rule_and_the_place() -> None:
    old = an_object(a=an_object(b=INTEGER), c=STRING)
    new = an_object(a=an_object(b=STRING), c={**STRING, "maxLength": 3})
    assert problems(old, new) == [
        "TYPE_CHANGED at #/properties/a/properties/b",
        "MAX_LENGTH_ADDED at #/properties/c/maxLength",
    ]
    assert rules(ONE, TWO) == ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]
    closed = an_object(a=STRING, b=STRING, closed=True)
    assert rules(closed, an_object(a=STRING, closed=True)) == ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]
    assert rules(ONE, an_object(a=STRING, closed=True)) == ["ADDITIONAL_PROPERTIES_REMOVED"]


def test_references_are_followed_within_a_document_and_into_others() -> None:
    old = {"$ref": "#/$defs/a", "$defs": {"a": INTEGER}}
    assert fits(old, {"$ref": "#/$defs/b", "$defs": {"b": NUMBER}}) == BACKWARD
    assert fits(old, INTEGER) == BOTH
    anchored = {"$ref": "#here", "$defs": {"a": {"$anchor": "here", **INTEGER}}}
    assert fits(anchored, old) == BOTH
    with_other = {"type": "object", "properties": {"a": {"$ref": "money.json"}}}
    assert problems(an_object(a=INTEGER), with_other, **{"money.json": NUMBER}) == []
    [problem] = problems(an_object(a=STRING), with_other, **{"money.json": NUMBER})
    assert problem == "TYPE_CHANGED at #/properties/a"


def test_reference_that_does_not_resolve_fits_itself_alone() -> None:
    old = an_object(a={"$ref": "nowhere.json"})
    assert problems(old, old) == []
    assert problems(an_object(a=STRING), old) == ["UNRESOLVED_REFERENCE nowhere.json at #/properties/a"]


def test_keywords_beside_a_reference_count_from_draft_2019_on() -> None:
    def with_length(draft: str) -> Json:
        return {"$schema": draft, "$ref": "#/definitions/s", "maxLength": 3, "definitions": {"s": STRING}}

    assert problems(STRING, with_length("http://json-schema.org/draft-07/schema#")) == []
    assert rules(STRING, with_length("https://json-schema.org/draft/2019-09/schema")) == ["MAX_LENGTH_ADDED"]


def tree(value: Json, *children: str) -> Json:
    refs: dict[str, Json] = {name: {"$ref": "#"} for name in children}
    return {"type": "object", "properties": {"value": value, **refs}, "additionalProperties": False}


def test_schemas_that_contain_themselves_are_compared_and_end() -> None:
    assert fits(tree(INTEGER, "left"), tree(NUMBER, "left")) == BACKWARD
    assert fits(tree(INTEGER, "left"), tree(INTEGER, "left", "right")) == BACKWARD
    assert fits({"$ref": "#"}, {"$ref": "#"}) == BOTH


def test_assumption_about_a_cycle_is_taken_back_where_it_does_not_hold() -> None:
    """b is compared while a is: were a believed to fit for good, the branch with b would hide that it does not."""

    def circle(value: Json) -> Json:
        defs = {
            "a": an_object(b={"$ref": "#/$defs/b"}, value=value),
            "b": an_object(a={"$ref": "#/$defs/a"}),
        }
        return {
            **an_object(first={"$ref": "#/$defs/a"}, second={"anyOf": [{"$ref": "#/$defs/b"}, NULL]}),
            "$defs": defs,
        }

    found = problems(circle(INTEGER), circle(STRING))
    assert any(problem.endswith("#/properties/second") for problem in found), found


def nothing(_: str, __: int) -> Schema | None:
    return None


def allowed(new: Json, *previous: Json) -> set[str]:
    texts = [json.dumps(each) for each in (*previous, new)]
    schemas = [kept(schema(text, type=SchemaType.JSON), nothing, DirectAnswers()) for text in texts]
    return {
        level.value
        for level in Level
        if not incompatibilities(level, schemas[-1], schemas[:-1], nothing, DirectAnswers())
    }


def test_all_levels_hold_json_schemas() -> None:
    everything = {level.value for level in Level}
    assert allowed(an_object(a=STRING, b=STRING), ONE) == {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}
    assert allowed(STRING, {**STRING, "title": "t"}) == everything
    # The last version accepts it, and the first does not.
    assert allowed(STRING, INTEGER, {}) == {"NONE", "FORWARD"}
    assert allowed({}, INTEGER, STRING) == {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE"}


def test_reference_of_the_registry_is_compared_by_the_schema_that_it_names() -> None:
    def lookup(_: str, version: int) -> Schema:
        return schema(json.dumps(INTEGER if version == 1 else STRING), type=SchemaType.JSON)

    text = json.dumps(an_object(price={"$ref": "price.json"}))
    old, new = (
        schema(text, type=SchemaType.JSON, references=[Reference("price.json", "price", version)]) for version in (1, 2)
    )
    [problem] = incompatibilities(Level.BACKWARD, new, [old], lookup, DirectAnswers())
    assert problem.endswith("TYPE_CHANGED at #/properties/price")


def test_schemas_of_two_types_do_not_fit() -> None:
    [problem] = incompatibilities(
        Level.BACKWARD, schema("{}", type=SchemaType.JSON), [schema('"int"')], nothing, DirectAnswers()
    )
    assert problem.endswith("SCHEMA_TYPE_CHANGED from AVRO to JSON")
