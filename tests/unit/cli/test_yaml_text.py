"""YAML of what verbs show: as a parser of YAML reads it."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.yaml_text import yaml_lines

# It comes with other packages of the tests.
yaml: Final[Any] = pytest.importorskip("yaml")
DATA: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
)


def test_objects_and_lists_are_blocks() -> None:
    found = yaml_lines({"topic": "clicks", "partitions": [{"partition": 0, "replicas": [1, 2]}], "configs": {}})
    assert found == [
        "---",
        "topic: clicks",
        "partitions:",
        "  - partition: 0",
        "    replicas:",
        "      - 1",
        "      - 2",
        "configs: {}",
    ]


@pytest.mark.parametrize(
    "text", ["no", "On", "null", "~", "1e3", "0x10", "2026-03-01", "12:30:00", "-", "", "a: b", "#x"]
)
def test_text_that_is_like_another_type_is_quoted(text: str) -> None:
    assert yaml.safe_load("\n".join(yaml_lines({"name": text}))) == {"name": text}


def test_numbers_without_an_end_are_those_of_yaml() -> None:
    found = yaml.safe_load("\n".join(yaml_lines([math.inf, -math.inf, math.nan])))
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])


@given(DATA)
def test_data_is_read_as_it_was(data: object) -> None:
    assert yaml.safe_load("\n".join(yaml_lines(data))) == data
