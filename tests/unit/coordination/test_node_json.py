"""Node data that is not what we write is named, never guessed at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.node_json import Fields, NodeDamaged, encode

CONTENT = {"version": 1, "n": 7, "s": "x", "none": None, "ns": [1, 2], "ss": ["a"], "map": {"k": "v"}}


def fields() -> Fields:
    return Fields.parse("/path", encode(CONTENT))


def test_fields_come_back_with_their_types() -> None:
    read = fields()
    assert (read.integer("n"), read.text("s"), read.text_or_none("none")) == (7, "x", None)
    assert (read.integers("ns"), read.texts("ss"), read.text_map("map")) == ([1, 2], ["a"], {"k": "v"})
    assert read.nested("map").text("k") == "v"


def test_data_is_compact_json() -> None:
    assert encode({"version": 1, "leader": 2}) == b'{"version":1,"leader":2}'


@pytest.mark.parametrize(
    "read",
    [
        lambda read: read.integer("s"),
        lambda read: read.integer("absent"),
        lambda read: read.text("n"),
        lambda read: read.text("none"),
        lambda read: read.text_or_none("n"),
        lambda read: read.integers("ss"),
        lambda read: read.integers("n"),
        lambda read: read.texts("ns"),
        lambda read: read.text_map("ns"),
        lambda read: read.nested("s"),
        lambda read: read.uuid_of("short"),
    ],
)
def test_field_of_another_type_is_damage_that_names_the_node(read: Callable[[Fields], object]) -> None:
    with pytest.raises(NodeDamaged, match="/path") as failure:
        read(fields())
    assert failure.value.hint is not None


def test_true_is_no_number() -> None:
    with pytest.raises(NodeDamaged):
        Fields.parse("/path", b'{"version":1,"n":true}').integer("n")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"7", b"{}", b'{"version":0}', b'{"version":2}', b"\xff", b"[" * 9999]
)
def test_data_that_is_no_object_of_a_known_version_is_damage(data: bytes) -> None:
    with pytest.raises(NodeDamaged):
        Fields.parse("/path", data)


@given(st.binary(max_size=200))
def test_no_data_does_anything_but_raise_damage(data: bytes) -> None:
    try:
        Fields.parse("/path", data)
    except NodeDamaged:
        return
    assert data.lstrip().startswith((b"{", b"\xef\xbb\xbf", b"\x00", b"\xfe\xff", b"\xff\xfe"))
