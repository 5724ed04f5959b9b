"""What is asked of a check, and its limits that need no process."""

from __future__ import annotations

import json

import pytest

from ottla.registry.checks import (
    REFERENCED_CHARS_MAX,
    REFERENCES_DEPTH_MAX,
    REFERENCES_MAX,
    Answers,
    Check,
    ChecksMissing,
    Comparison,
    Descriptor,
    KeptForm,
    Source,
    check_object,
    check_of,
    kept,
)
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.schema import Reference, Schema, SchemaType
from tests.unit.registry.small_registry import schema

SOURCE = Source(SchemaType.PROTOBUF, "text", (("a", "b"), ("c", "d")))


@pytest.mark.parametrize(
    "check", [KeptForm(SOURCE, True), Comparison(SOURCE, Source(SchemaType.AVRO, "")), Descriptor(SOURCE)]
)
def test_check_goes_through_json_unchanged(check: Check) -> None:
    assert check_of(json.loads(json.dumps(check_object(check)))) == check


def test_decision_says_which_checks_it_needs_and_is_made_when_they_are_there() -> None:
    answers = Answers()
    with pytest.raises(ChecksMissing) as raised:
        kept(schema('"int"'), lambda _, __: None, answers)
    [check] = raised.value.checks
    answers.add(check, "kept")
    assert kept(schema('"int"'), lambda _, __: None, answers).text == "kept"


def test_error_is_an_outcome() -> None:
    answers = Answers()
    check = KeptForm(SOURCE, False)
    answers.add(check, RegistryError(RegistryCode.INVALID_SCHEMA, "no schema"))
    with pytest.raises(RegistryError, match="no schema"):
        answers.of([check])


def refusal(count: int, depth: int = 1, chars: int = 1) -> RegistryError | None:
    """Of a schema with `count` references, each of which begins a chain of `depth`."""

    def lookup(subject: str, number: int) -> Schema:
        deeper = number < depth
        text = "x" * chars
        return schema(text, references=[Reference(f"{subject}-{number}", subject, number + 1)] if deeper else [])

    references = [Reference(f"r{index}", f"s{index}", 1) for index in range(count)]
    try:
        kept(schema("x", references=references), lookup, Answers())
    except ChecksMissing:
        return None
    except RegistryError as error:
        return error
    raise AssertionError("nothing was asked")


def test_references_are_limited_in_depth_number_and_size() -> None:
    assert refusal(1, depth=REFERENCES_DEPTH_MAX) is None
    assert refusal(REFERENCES_MAX) is None
    for refused in (
        refusal(1, depth=REFERENCES_DEPTH_MAX + 1),
        refusal(1, depth=100_000),
        refusal(REFERENCES_MAX + 1),
        refusal(9, chars=REFERENCED_CHARS_MAX // 8),
    ):
        assert refused is not None
        assert refused.code is RegistryCode.SCHEMA_TOO_LARGE
        assert refused.status == 422
