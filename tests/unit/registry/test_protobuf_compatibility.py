"""The documented rules of Confluent's registry for Protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from ottla.registry.checks import incompatibilities, kept
from ottla.registry.protobuf_compatibility import protobuf_problems
from ottla.registry.protobuf_format import descriptors
from ottla.registry.schema import Level, Schema, SchemaType
from tests.unit.registry.small_registry import DirectAnswers, schema

NO_FILES: Final[Mapping[str, str]] = {}


def rules(old: str, new: str, *, syntax: str = "proto3") -> list[str]:
    return [problem.split(" ")[0] for problem in problems(old, new, syntax=syntax)]


def problems(old: str, new: str, *, syntax: str = "proto3") -> list[str]:
    """Of the new file, as a reader of what the old one wrote."""
    was, now = (descriptors(f'syntax = "{syntax}"; {text}', NO_FILES) for text in (old, new))
    return protobuf_problems(now, was)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("string a = 1;", "string a = 1; string b = 2;", []),
        ("string a = 1; string b = 2;", "string a = 1;", []),
        ("string a = 1;", "string renamed = 1;", []),
        ("int32 a = 1;", "uint64 a = 1;", []),
        ("int32 a = 1;", "bool a = 1;", []),
        ("int32 a = 1;", "E a = 1; enum E { ZERO = 0; }", []),
        ("int32 a = 1;", "sint32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("fixed32 a = 1;", "sfixed32 a = 1;", []),
        ("fixed32 a = 1;", "fixed64 a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("float a = 1;", "double a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("string a = 1;", "bytes a = 1;", []),
        ("string a = 1;", "int32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("string a = 1;", "Inner a = 1; message Inner {}", ["FIELD_KIND_CHANGED"]),
        ("string a = 1;", "repeated string a = 1;", []),
        ("int32 a = 1;", "repeated int32 a = 1;", ["FIELD_NUMERIC_LABEL_CHANGED"]),
        ("int32 a = 1;", "optional int32 a = 1;", []),
        ("map<string, int32> a = 1;", "map<string, int64> a = 1;", []),
        ("map<string, int32> a = 1;", "map<string, string> a = 1;", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("map<string, int32> a = 1;", "string a = 1;", ["FIELD_KIND_CHANGED"]),
        ("enum E { ZERO = 0; ONE = 1; }", "enum E { NOTHING = 0; }", []),
        (
            "Inner a = 1; message Inner {}",
            "Other a = 1; message Inner {} message Other {}",
            ["FIELD_NAMED_TYPE_CHANGED"],
        ),
        ("message Inner {}", "", ["MESSAGE_REMOVED"]),
        (
            "Inner a = 1; message Inner { int32 x = 1; }",
            "Inner a = 1; message Inner { string x = 1; }",
            ["FIELD_SCALAR_KIND_CHANGED"],
        ),
    ],
)
def test_fields_fit_by_number_and_kind(old: str, new: str, expected: list[str]) -> None:
    assert rules(f"message M {{ {old} }}", f"message M {{ {new} }}") == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("string a = 1; string b = 2;", "oneof o { string a = 1; } string b = 2;", []),
        ("string a = 1; string b = 2;", "oneof o { string a = 1; string b = 2; }", ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"]),
        (
            "oneof o { string a = 1; } string b = 2;",
            "oneof o { string a = 1; string b = 2; }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF"],
        ),
        ("oneof o { string a = 1; }", "oneof o { string a = 1; string b = 2; }", []),
        ("oneof o { string a = 1; string b = 2; }", "oneof o { string a = 1; }", ["ONEOF_FIELD_REMOVED"]),
        ("oneof o { string a = 1; string b = 2; }", "string a = 1; string b = 2;", []),
        ("oneof o { string a = 1; string b = 2; } int32 c = 3;", "int32 c = 3;", []),
        ("oneof o { string a = 1; string b = 2; }", "string a = 1;", ["ONEOF_FIELD_REMOVED"]),
        ("oneof o { string a = 1; string b = 2; }", "oneof p { string a = 1; string b = 2; }", []),
    ],
)
def test_fields_of_a_oneof_may_leave_it_and_not_come_together(old: str, new: str, expected: list[str]) -> None:
    assert rules(f"message M {{ {old} }}", f"message M {{ {new} }}") == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("optional string a = 1;", "optional string a = 1; required string b = 2;", ["REQUIRED_FIELD_ADDED"]),
        ("optional string a = 1; required string b = 2;", "optional string a = 1;", ["REQUIRED_FIELD_REMOVED"]),
        ("optional int32 a = 1;", "required int32 a = 1;", ["FIELD_NUMERIC_LABEL_CHANGED"]),
        ("optional group G = 1 { optional string a = 1; }", "optional string a = 1;", ["MESSAGE_REMOVED"]),
    ],
)
def test_required_fields_of_proto2_stay(old: str, new: str, expected: list[str]) -> None:
    found = rules(f"message M {{ {old} }}", f"message M {{ {new} }}", syntax="proto2")
    assert found[-1:] == expected


def test_problem_names_the_message_and_the_field() -> None:
    old = "package shop; message M { message In { int32 a = 1; } repeated In ins = 1; }"
    assert problems(old, old.replace("int32 a", "string b")) == [
        "FIELD_SCALAR_KIND_CHANGED shop.M.In.a: number to string"
    ]
    assert problems(old, old.replace("shop", "store")) == ["PACKAGE_CHANGED from 'shop' to 'store'"]
    assert problems(old, old.replace("M", "N")) == ["MESSAGE_REMOVED shop.M"]


def test_order_and_place_of_messages_do_not_matter() -> None:
    assert problems("message A {} message B {}", "message B {} message A {}") == []


def test_messages_that_contain_themselves_are_compared_and_end() -> None:
    old = "message Tree { int32 value = 1; repeated Tree children = 2; }"
    assert problems(old, old.replace("int32", "int64")) == []
    assert rules(old, old.replace("int32", "string")) == ["FIELD_SCALAR_KIND_CHANGED"]


def test_imported_messages_are_compared_where_a_field_has_them() -> None:
    text = 'syntax = "proto3"; import "money.proto"; message Order { shop.Money price = 1; }'
    money = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; } message Unused { int32 a = 1; }'

    def file(imported: str) -> tuple[object, ...]:
        return descriptors(text, {"money.proto": imported})

    assert protobuf_problems(file(money.replace("message Unused { int32 a = 1; }", "")), file(money)) == []
    [problem] = protobuf_problems(file(money.replace("int64", "string")), file(money))
    assert problem == "FIELD_SCALAR_KIND_CHANGED shop.Money.cents: number to string"


def nothing(_: str, __: int) -> Schema | None:
    return None


def test_all_levels_hold_protobuf_schemas() -> None:
    def allowed(new: str, *previous: str) -> set[str]:
        texts = [f'syntax = "proto2"; message M {{ {each} }}' for each in (*previous, new)]
        schemas = [kept(schema(text, type=SchemaType.PROTOBUF), nothing, DirectAnswers()) for text in texts]
        return {
            level.value
            for level in Level
            if not incompatibilities(level, schemas[-1], schemas[:-1], nothing, DirectAnswers())
        }

    everything = {level.value for level in Level}
    assert allowed("optional int64 a = 1;", "optional int32 a = 1;") == everything
    assert allowed("optional int32 b = 2;", "optional string a = 1;") == everything
    assert allowed("optional int32 a = 1;", "optional string a = 1;") == {"NONE"}
    # Each step is fine; the first and the last version do not fit.
    transitive = {level for level in everything if level.endswith("_TRANSITIVE")}
    assert (
        allowed("optional int32 a = 1;", "optional string a = 1;", "optional int64 b = 2;") == everything - transitive
    )
    # A oneof that loses a field loses data; what gains one does not.
    smaller, larger = "oneof o { string a = 1; }", "oneof o { string a = 1; string b = 2; }"
    assert allowed(larger, smaller) == {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE"}
    assert allowed(smaller, larger) == {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}


def test_descriptors_and_texts_are_compared_with_each_other() -> None:
    text = 'syntax = "proto3"; message M { string a = 1; }'
    other = schema(text.replace("string", "int32"), type=SchemaType.PROTOBUF)
    [problem] = incompatibilities(
        Level.BACKWARD, other, [schema(text, type=SchemaType.PROTOBUF)], nothing, DirectAnswers()
    )
    assert "FIELD_SCALAR_KIND_CHANGED M.a" in problem
