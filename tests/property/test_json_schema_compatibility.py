"""What the registry calls compatible is compatible: each document of the old schema is one of the new schema.

The validator of the package jsonschema is the oracle.  Two of the registry's rules are left out: a required property
with a default counts as given, and keywords without a type have the one that they are for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from hypothesis import event, given
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator

from ottla.registry.json_compatibility import json_problems
from ottla.registry.json_format import json_root
from tests.property.property_settings import example_settings

Json = Any
NAMES: Final = ("a", "b", "c")
SMALL: Final = st.integers(-1, 3)

SCALARS: Final = st.one_of(
    st.none(), st.booleans(), SMALL, st.sampled_from([0.5, 1.0]), st.sampled_from(["", "a", "bb"])
)
DOCUMENTS: Final = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=4,
)


def some_of(**keywords: st.SearchStrategy[Json]) -> st.SearchStrategy[dict[str, Json]]:
    return st.fixed_dictionaries({}, optional=keywords)


def typed(kind: str | list[str], **keywords: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return some_of(**keywords).map(lambda found: {"type": kind, **found})


LEAVES: Final = st.one_of(
    st.just(True),
    st.just(False),
    st.sampled_from(
        [{"type": "null"}, {"type": "boolean"}, {"type": ["integer", "number"]}, {"type": ["string", "null"]}]
    ),
    typed("integer", minimum=SMALL, exclusiveMaximum=SMALL),
    typed("number", maximum=SMALL, exclusiveMinimum=SMALL, multipleOf=st.sampled_from([0.5, 1, 2])),
    typed("string", minLength=st.integers(0, 2), maxLength=st.integers(0, 2), pattern=st.sampled_from(["a", "^b"])),
    st.lists(SCALARS, min_size=1, max_size=2).map(lambda values: {"enum": values}),
    SCALARS.map(lambda value: {"const": value}),
)


def composed(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    several = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)
    objects = typed(
        "object",
        properties=by_name,
        required=st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        additionalProperties=inner,
        maxProperties=st.integers(0, 2),
    )
    arrays = typed("array", items=inner, prefixItems=several, minItems=st.integers(0, 2), uniqueItems=st.booleans())
    alternatives = st.sampled_from(["oneOf", "oneOf", "anyOf", "allOf"])
    return st.one_of(
        objects,
        arrays,
        st.builds(lambda keyword, branches: {keyword: branches}, alternatives, several),
        st.builds(lambda some, refused: {**(some if isinstance(some, dict) else {}), "not": refused}, inner, inner),
    )


SCHEMAS: Final = st.recursive(LEAVES, composed, max_leaves=6)


def changed(schema: Json, draw: Callable[[st.SearchStrategy[Json]], Json]) -> Json:
    """Another schema that is near: most of two independent ones would have nothing to do with each other."""
    kind = draw(st.sampled_from(["same", "new", "wrapped", "inside", "inside", "inside"]))
    if kind == "new":
        return draw(SCHEMAS)
    if kind == "wrapped":
        return {draw(st.sampled_from(["oneOf", "anyOf"])): draw(st.permutations([schema, draw(SCHEMAS)]))}
    if kind == "same" or not isinstance(schema, dict) or not schema:
        return schema
    found = dict(schema)
    keyword = draw(st.sampled_from(sorted(found)))
    value = found[keyword]
    if keyword in ("oneOf", "anyOf", "allOf", "prefixItems"):
        branches = [changed(branch, draw) if draw(st.booleans()) else branch for branch in value]
        found[keyword] = draw(st.permutations([*branches, *draw(st.lists(SCHEMAS, max_size=1))]))
    elif keyword in ("items", "additionalProperties", "not"):
        found[keyword] = changed(value, draw)
    elif keyword == "properties" and value:
        name = draw(st.sampled_from(sorted(value)))
        found[keyword] = {**value, name: changed(value[name], draw)}
    elif keyword != "type" and len(found) > 1:
        del found[keyword]
    return found


@st.composite
def pairs(draw: Callable[[st.SearchStrategy[Json]], Json]) -> tuple[Json, Json]:
    old = draw(SCHEMAS)
    return old, changed(old, draw)


def is_compatible(old: Json, new: Json) -> bool:
    reader, writer = (json_root(json.dumps(schema), ()) for schema in (new, old))
    return not json_problems(reader, writer)


@example_settings(600)
@given(pairs(), st.lists(DOCUMENTS, min_size=1, max_size=12))
def test_compatible_schema_accepts_each_document_of_the_schema_before(
    schemas: tuple[Json, Json], documents: list[Json]
) -> None:
    old, new = schemas
    if not is_compatible(old, new):
        return
    before, after = Draft202012Validator(old), Draft202012Validator(new)
    accepted = [document for document in documents if before.is_valid(document)]
    event(f"compatible, {'some' if accepted else 'no'} documents")
    for document in accepted:
        assert after.is_valid(document), (old, new, document)


@example_settings(300)
@given(SCHEMAS)
def test_schema_is_compatible_with_itself(schema: Json) -> None:
    assert is_compatible(schema, json.loads(json.dumps(schema)))
