"""Each level, for each way in which a schema of Avro's can change."""

from __future__ import annotations

import json
from typing import Final

import pytest

from ottla.registry.avro_format import PROBLEMS_SHOWN, problems_of_reader, read_avro
from ottla.registry.checks import incompatibilities, kept
from ottla.registry.schema import Level, Schema
from tests.unit.registry.small_registry import DirectAnswers, optional, record, schema

PLAIN: Final = record("a")
WITH_OPTIONAL: Final = record("a", optional("b"))
WITH_REQUIRED: Final = record("a", "b")


def nothing(_: str, __: int) -> Schema | None:
    return None


def allowed(new: str, *previous: str) -> set[str]:
    """The levels at which `new` may come after `previous`."""
    schemas = [kept(schema(text), nothing, DirectAnswers()) for text in (*previous, new)]
    return {
        level.value
        for level in Level
        if not incompatibilities(level, schemas[-1], schemas[:-1], nothing, DirectAnswers())
    }


ALL: Final = {level.value for level in Level}
BACKWARD: Final = {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE"}
FORWARD: Final = {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}


def test_first_schema_is_compatible_at_all_levels() -> None:
    assert allowed(PLAIN) == ALL


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (PLAIN, PLAIN, ALL),
        (PLAIN, WITH_OPTIONAL, ALL),
        (WITH_OPTIONAL, PLAIN, ALL),
        (PLAIN, WITH_REQUIRED, FORWARD),
        (WITH_REQUIRED, PLAIN, BACKWARD),
        ('"int"', '"long"', BACKWARD),
        ('"long"', '"int"', FORWARD),
        ('"string"', '"bytes"', ALL),
        ('"int"', '"string"', {"NONE"}),
        ('"string"', '["null","string"]', BACKWARD),
        ('["null","string"]', '"string"', FORWARD),
        (
            '{"type":"enum","name":"E","symbols":["A"]}',
            '{"type":"enum","name":"E","symbols":["A","B"]}',
            BACKWARD,
        ),
        (
            '{"type":"enum","name":"E","symbols":["A"],"default":"A"}',
            '{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}',
            ALL,
        ),
        ('{"type":"fixed","name":"F","size":4}', '{"type":"fixed","name":"F","size":8}', {"NONE"}),
        (record("a"), record("a", name="Other"), {"NONE"}),
        (record(name="n.Old"), '{"type":"record","name":"n.New","aliases":["Old"],"fields":[]}', BACKWARD),
        (record("a"), record({"name": "b", "type": "string", "aliases": ["a"]}), BACKWARD),
        ('{"type":"array","items":"int"}', '{"type":"array","items":"long"}', BACKWARD),
        ('{"type":"map","values":"int"}', '{"type":"map","values":"boolean"}', {"NONE"}),
        (
            '{"type":"error","name":"E","fields":[]}',
            '{"type":"error","name":"E","fields":[{"name":"a","type":"int"}]}',
            FORWARD,
        ),
        ('{"type":"long","logicalType":"timestamp-millis"}', '"long"', ALL),
    ],
)
def test_levels_that_a_change_is_allowed_at(old: str, new: str, expected: set[str]) -> None:
    assert allowed(new, old) == expected


def test_transitive_levels_look_at_all_versions_and_the_others_at_the_last() -> None:
    # b comes with a default and loses it: each step is fine, the first and the last schema do not fit.
    assert allowed(WITH_REQUIRED, PLAIN, WITH_OPTIONAL) == ALL - {"BACKWARD_TRANSITIVE", "FULL_TRANSITIVE"}
    assert allowed(PLAIN, WITH_REQUIRED, WITH_OPTIONAL) == ALL - {"FORWARD_TRANSITIVE", "FULL_TRANSITIVE"}


def test_recursive_types_are_compared_and_end() -> None:
    old = '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}'
    new = '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]},{"name":"v","type":"int"}]}'
    assert allowed(new, old) == FORWARD


def test_reason_says_where() -> None:
    reader, writer = read_avro(record("a", "b")), read_avro(record("a"))
    [problem] = problems_of_reader(reader, writer)
    assert problem == "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1: b"
    assert problems_of_reader(writer, reader) == []


def union(prefix: str, count: int, field: dict[str, object] | str = "f") -> str:
    return f"[{','.join(record(field, name=f'{prefix}{number}') for number in range(count))}]"


def test_branches_of_unions_are_compared_by_name() -> None:
    old = read_avro(union("R", 300))
    assert problems_of_reader(read_avro(union("R", 301)), old) == []
    [why] = problems_of_reader(read_avro(union("S", 300)), old)
    assert "MISSING_UNION_BRANCH" in why
    [why] = problems_of_reader(read_avro(union("R", 300, "g")), old)
    assert "MISSING_UNION_BRANCH" in why
    # An alias names the writer's record, too.
    renamed = json.loads(union("S", 1))
    renamed[0]["aliases"] = ["R0"]
    assert problems_of_reader(read_avro(json.dumps(renamed)), read_avro(union("R", 1))) == []


def test_locations_of_many_problems_are_counted() -> None:
    old = read_avro(record("a"))
    [why] = problems_of_reader(read_avro(record("a", *[f"f{number:03}" for number in range(PROBLEMS_SHOWN + 7)])), old)
    assert why.endswith("; 7 more")
    assert "/fields/1," in why
