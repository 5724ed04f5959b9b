from __future__ import annotations

import json
from uuid import UUID

import pytest

from ottla.model.errors import WireError
from ottla.model.json_fields import JsonFields


def fields(**content: object) -> JsonFields:
    return JsonFields("an entry", json.dumps(content).encode(), 200)


def test_fields_have_their_types() -> None:
    found = fields(topic="t", first=3, ended=False, id=str(UUID(int=7)), none=None)
    assert (found.text("topic"), found.number("first", 0), found.truth("ended")) == ("t", 3, False)
    assert found.uuid("id") == UUID(int=7)
    assert ("none" in found, "other" in found) == (True, False)
    assert (found.is_null("none"), found.is_null("other"), found.is_null("first")) == (True, True, False)


@pytest.mark.parametrize("value", [True, "3", 3.0, None, -1, 11])
def test_value_that_is_no_number_of_the_range_is_refused(value: object) -> None:
    with pytest.raises(WireError, match="an entry: first is no whole number from 0 to 10"):
        fields(first=value).number("first", 0, 10)


def test_value_of_another_type_is_refused_by_its_name() -> None:
    found = fields(topic=3, ended=1, id="7")
    with pytest.raises(WireError, match="an entry: topic is no text"):
        found.text("topic")
    with pytest.raises(WireError, match="an entry: ended is neither true nor false"):
        found.truth("ended")
    with pytest.raises(WireError, match="an entry: id is no UUID"):
        found.uuid("id")


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b"[]", b"null", b'{"a": "' + b"x" * 200 + b'"}'])
def test_data_that_is_no_object_of_a_bounded_size_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="an entry"):
        JsonFields("an entry", data, 200 if len(data) < 1_000 else 200_000)
