"""A message class behaves as `dataclass(slots=True)`, although it compiles its `__init__` late."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace

import pytest

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int32, opaque, string, string_array


@message
class Part:
    name: str = string(default="none")


@message
class Whole:
    """With fields of each kind of default."""

    count: int = int32(default=-1)
    names: list[str] = string_array()
    parts: list[Part] = array(Part)


@message
class Hidden:
    secret: bytes = opaque()

    def __repr__(self) -> str:
        return "Hidden(...)"


def test_fields_are_given_by_place_or_name_and_have_their_defaults() -> None:
    assert Whole(3, parts=[Part("a")]) == Whole(parts=[Part("a")], count=3, names=[])
    assert Whole().count == -1
    assert [each.name for each in fields(Whole)] == ["count", "names", "parts"]


def test_first_instance_compiles_the_constructor_and_is_like_later_ones() -> None:
    @message
    class Fresh:
        count: int = int32()
        names: list[str] = string_array()

    before = Fresh.__init__
    first = Fresh(1)
    compiled = Fresh.__init__
    second = Fresh(1)
    assert before is not compiled
    assert Fresh.__init__ is compiled
    assert first == second
    assert first.names == []
    assert first.names is not second.names


@pytest.mark.parametrize("wrong", [{"unknown": 1}, {"count": 1, "names": [], "parts": [], "more": 1}])
def test_unknown_field_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        Whole(**wrong)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        Whole().unknown = 1  # type: ignore[attr-defined]


def test_messages_of_other_values_or_classes_differ() -> None:
    assert Whole(1) != Whole(2)
    other: object = Hidden(b"x")
    assert Part("x") != other
    with pytest.raises(TypeError):
        hash(Part())


def test_text_has_all_fields_unless_the_class_has_its_own() -> None:
    assert repr(Whole(1, ["a"], [Part("b")])) == "Whole(count=1, names=['a'], parts=[Part(name='b')])"
    assert repr(Hidden(b"x")) == "Hidden(...)"


def test_messages_are_copied() -> None:
    whole = Whole(1, ["a"], [Part("b")])
    assert replace(whole, count=2) == Whole(2, ["a"], [Part("b")])
    assert copy.deepcopy(whole) == pickle.loads(pickle.dumps(whole)) == whole
