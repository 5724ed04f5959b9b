from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.registry import decisions
from ottla.registry.decisions import RegistryDecision
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.records import version_change
from ottla.registry.schema import Reference, SchemaType
from tests.unit.registry.small_registry import DirectAnswers, SmallState, optional, record, schema

ONE = record("a")
TWO = record("a", optional("b"))
BAD = record("a", "b")


def code_of(raised: pytest.ExceptionInfo[RegistryError]) -> RegistryCode:
    return raised.value.code


def test_ids_are_of_schemas_and_versions_of_subjects() -> None:
    small = SmallState()
    first = small.register("orders", ONE)
    second = small.register("orders", TWO)
    other = small.register("returns", TWO)
    assert [(each.version, each.id) for each in (first, second, other)] == [(1, 1), (2, 2), (1, 2)]
    assert small.now.subjects() == ["orders", "returns"]
    assert [each.subject for each in small.now.places(2)] == ["orders", "returns"]


def test_schema_that_is_there_is_found_and_not_registered_again() -> None:
    small = SmallState()
    small.register("orders", ONE)
    decision = decisions.register(small.now, "orders", schema(ONE.replace(" ", "")), DirectAnswers())
    assert decision.changes == ()
    assert decision.answer.version == 1


def test_incompatible_schema_is_refused_and_changes_nothing() -> None:
    small = SmallState()
    small.register("orders", ONE)
    with pytest.raises(RegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE") as raised:
        small.register("orders", BAD)
    assert code_of(raised) is RegistryCode.INCOMPATIBLE_SCHEMA
    assert raised.value.status == 409
    assert len(small.now.versions("orders")) == 1


def test_level_of_a_subject_wins_over_that_of_all() -> None:
    small = SmallState()
    small.register("orders", ONE)
    assert decisions.config(small.now, None) == {"compatibilityLevel": "BACKWARD"}
    small.take(decisions.set_config(small.now, None, {"compatibility": "none"}))
    small.take(decisions.set_config(small.now, "orders", {"compatibility": "FULL"}))
    with pytest.raises(RegistryError, match="compatibility level FULL"):
        small.register("orders", BAD)
    assert small.take(decisions.remove_config(small.now, "orders")) == {"compatibilityLevel": "FULL"}
    assert small.register("orders", BAD).version == 2
    with pytest.raises(RegistryError) as raised:
        decisions.config(small.now, "orders")
    assert code_of(raised) is RegistryCode.SUBJECT_COMPATIBILITY_NOT_SET
    assert decisions.config(small.now, "orders", default_to_global=True) == {"compatibilityLevel": "NONE"}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"compatibility": "SOME"}, RegistryCode.INVALID_COMPATIBILITY_LEVEL),
        ({"compatibility": 7}, RegistryCode.INVALID_COMPATIBILITY_LEVEL),
        ({"compatibility": "FULL", "alias": "other"}, RegistryCode.OPERATION_NOT_PERMITTED),
        ({"defaultRuleSet": {"domainRules": []}}, RegistryCode.OPERATION_NOT_PERMITTED),
    ],
)
def test_setting_that_is_not_offered_is_refused(asked: dict[str, object], code: RegistryCode) -> None:
    with pytest.raises(RegistryError) as raised:
        decisions.set_config(SmallState().now, "orders", asked)
    assert code_of(raised) is code


def test_json_schemas_are_held_to_the_level() -> None:
    small = SmallState()
    small.register("page", '{"type":"object"}', type=SchemaType.JSON)
    with pytest.raises(RegistryError, match="TYPE_CHANGED at #") as raised:
        small.register("page", '{"type":"array"}', type=SchemaType.JSON)
    assert raised.value.code is RegistryCode.INCOMPATIBLE_SCHEMA
    assert small.register("page", '{"type":["object","null"]}', type=SchemaType.JSON).version == 2
    small.take(decisions.set_config(small.now, "page", {"compatibility": "FULL"}))
    with pytest.raises(RegistryError, match="the old schema cannot read"):
        small.register("page", "{}", type=SchemaType.JSON)
    small.take(decisions.set_config(small.now, "page", {"compatibility": "NONE"}))
    assert small.register("page", '{"type":"array"}', type=SchemaType.JSON).version == 3


def test_newest_version_with_some_metadata_is_found() -> None:
    """Another registry wrote it: here schemas get none."""
    small = SmallState()
    for number, owner in ((1, "search"), (2, "ads"), (3, "search")):
        found = small.register("s", json.dumps({"type": "string", "number": number}))
        assert found.version == number
        others = {"metadata": {"properties": {"owner": owner, "tier": "1"}}}
        small.take(decisions.RegistryDecision(None, [version_change(replace(found, others=others))]))
    assert decisions.with_metadata(small.now, "s", {"owner": "ads"}).version == 2
    assert decisions.with_metadata(small.now, "s", {"owner": "search", "tier": "1"}).version == 3
    assert decisions.with_metadata(small.now, "s", {}).version == 3
    with pytest.raises(RegistryError) as raised:
        decisions.with_metadata(small.now, "s", {"owner": "mail"})
    assert raised.value.code is RegistryCode.SCHEMA_NOT_FOUND
    with pytest.raises(RegistryError) as raised:
        decisions.with_metadata(small.now, "t", {})
    assert raised.value.code is RegistryCode.SUBJECT_NOT_FOUND


def test_normalize_may_be_set_for_a_subject() -> None:
    small = SmallState()
    small.take(decisions.set_config(small.now, "s", {"normalize": True}))
    one = small.register("s", '{"type":"string","b":1,"a":2}')
    assert small.register("s", '{"type":"string","a":2,"b":1}') == one


def test_deleted_version_still_has_its_id_and_number() -> None:
    small = SmallState()
    small.register("orders", ONE)
    second = small.register("orders", TWO)
    assert small.take(decisions.delete_version(small.now, "orders", -1, permanent=False)) == 2
    assert [each.version for each in small.now.versions("orders")] == [1]
    assert small.now.schema(second.id) == second.schema
    with pytest.raises(RegistryError) as raised:
        decisions.delete_version(small.now, "orders", 2, permanent=False)
    assert code_of(raised) is RegistryCode.VERSION_SOFT_DELETED
    again = small.register("orders", TWO)
    assert (again.version, again.id) == (3, second.id)


def test_permanent_deletion_comes_after_the_soft_one() -> None:
    small = SmallState()
    small.register("orders", ONE)
    small.register("orders", TWO)
    small.take(decisions.set_config(small.now, "orders", {"compatibility": "FULL"}))
    with pytest.raises(RegistryError) as raised:
        decisions.delete_subject(small.now, "orders", permanent=True)
    assert code_of(raised) is RegistryCode.SUBJECT_NOT_SOFT_DELETED
    with pytest.raises(RegistryError) as raised:
        decisions.delete_version(small.now, "orders", 1, permanent=True)
    assert code_of(raised) is RegistryCode.VERSION_NOT_SOFT_DELETED
    assert small.take(decisions.delete_subject(small.now, "orders", permanent=False)) == [1, 2]
    assert small.now.subjects() == []
    assert small.now.subjects(deleted=True) == ["orders"]
    with pytest.raises(RegistryError) as raised:
        decisions.delete_subject(small.now, "orders", permanent=False)
    assert code_of(raised) is RegistryCode.SUBJECT_SOFT_DELETED
    assert small.take(decisions.delete_subject(small.now, "orders", permanent=True)) == [1, 2]
    assert small.now.subjects(deleted=True) == []
    assert small.now.config("orders") is None
    with pytest.raises(RegistryError) as raised:
        decisions.delete_subject(small.now, "orders", permanent=True)
    assert code_of(raised) is RegistryCode.SUBJECT_NOT_FOUND


def test_id_of_a_schema_that_is_gone_is_never_given_again() -> None:
    small = SmallState()
    gone = small.register("orders", ONE)
    small.take(decisions.delete_subject(small.now, "orders", permanent=False))
    small.take(decisions.delete_subject(small.now, "orders", permanent=True))
    assert small.now.schema(gone.id) is None
    assert small.register("orders", TWO).id == gone.id + 1


def test_what_is_referred_to_cannot_be_deleted() -> None:
    small = SmallState()
    small.register("address", '{"type":"record","name":"a.Address","fields":[]}')
    person = '{"type":"record","name":"a.Person","fields":[{"name":"home","type":"a.Address"}]}'
    reference = Reference("a.Address", "address", 1)
    small.register("person", person, references=[reference])
    assert [each.subject for each in small.now.referrers("address", 1)] == ["person"]
    refused: list[Callable[[], RegistryDecision]] = [
        lambda: decisions.delete_version(small.now, "address", 1, permanent=False),
        lambda: decisions.delete_subject(small.now, "address", permanent=False),
    ]
    for decide in refused:
        with pytest.raises(RegistryError, match="person version 1 refers to address version 1") as raised:
            decide()
        assert code_of(raised) is RegistryCode.REFERENCE_EXISTS
    small.take(decisions.delete_subject(small.now, "person", permanent=False))
    small.take(decisions.delete_version(small.now, "address", 1, permanent=False))
    with pytest.raises(RegistryError):
        decisions.delete_version(small.now, "address", 1, permanent=True)
    small.take(decisions.delete_subject(small.now, "person", permanent=True))
    small.take(decisions.delete_version(small.now, "address", 1, permanent=True))
    assert small.now.subjects(deleted=True) == []


def test_reference_to_what_is_not_there_is_refused() -> None:
    with pytest.raises(RegistryError, match="address has no version 1"):
        SmallState().register("person", record("a"), references=[Reference("a.Address", "address", 1)])


def test_references_of_references_are_followed() -> None:
    small = SmallState()
    small.register("city", '{"type":"record","name":"City","fields":[]}')
    address = record({"name": "city", "type": "City"}, name="Address")
    small.register("address", address, references=[Reference("City", "city", 1)])
    person = record({"name": "home", "type": "Address"}, {"name": "born", "type": "City"}, name="Person")
    made = small.register("person", person, references=[Reference("Address", "address", 1)])
    assert made.schema.text.count("record") == 1


def test_subject_that_is_readonly_takes_no_changes() -> None:
    small = SmallState()
    small.register("orders", ONE)
    small.take(decisions.set_mode(small.now, "orders", "readonly"))
    refused: list[Callable[[], RegistryDecision]] = [
        lambda: decisions.register(small.now, "orders", schema(TWO), DirectAnswers()),
        lambda: decisions.delete_subject(small.now, "orders", permanent=False),
        lambda: decisions.set_config(small.now, "orders", {"compatibility": "NONE"}),
    ]
    for decide in refused:
        with pytest.raises(RegistryError, match="READONLY") as raised:
            decide()
        assert code_of(raised) is RegistryCode.OPERATION_NOT_PERMITTED
    small.take(decisions.remove_mode(small.now, "orders"))
    assert small.register("orders", TWO).version == 2
    small.take(decisions.set_mode(small.now, None, "READONLY"))
    with pytest.raises(RegistryError, match="READONLY"):
        small.register("returns", ONE)
    assert decisions.mode(small.now, "orders", default_to_global=True) == {"mode": "READONLY"}
    with pytest.raises(RegistryError) as raised:
        decisions.set_mode(small.now, None, "IMPORT")
    assert code_of(raised) is RegistryCode.INVALID_MODE


@pytest.mark.parametrize("subject", ["", ":.context:orders", ":*:", "__GLOBAL", "a\nb"])
def test_subject_that_means_something_else_is_refused(subject: str) -> None:
    with pytest.raises(RegistryError) as raised:
        SmallState().register(subject, ONE)
    assert code_of(raised) is RegistryCode.INVALID_SUBJECT


def test_look_up_says_what_is_missing() -> None:
    small = SmallState()
    with pytest.raises(RegistryError) as raised:
        decisions.look_up(small.now, "orders", schema(ONE), DirectAnswers())
    assert code_of(raised) is RegistryCode.SUBJECT_NOT_FOUND
    small.register("orders", ONE)
    assert decisions.look_up(small.now, "orders", schema(ONE), DirectAnswers()).version == 1
    with pytest.raises(RegistryError) as raised:
        decisions.look_up(small.now, "orders", schema(TWO), DirectAnswers())
    assert code_of(raised) is RegistryCode.SCHEMA_NOT_FOUND
    with pytest.raises(RegistryError) as raised:
        decisions.version_at(small.now, "orders", 2)
    assert code_of(raised) is RegistryCode.VERSION_NOT_FOUND


def test_compatibility_is_checked_without_registering() -> None:
    small = SmallState()
    small.register("orders", ONE)
    small.register("orders", TWO)
    small.take(decisions.set_config(small.now, "orders", {"compatibility": "BACKWARD_TRANSITIVE"}))
    assert decisions.compatibility_problems(small.now, "orders", None, schema(BAD), DirectAnswers()) != []
    assert decisions.compatibility_problems(small.now, "orders", -1, schema(BAD), DirectAnswers()) == []
    assert decisions.compatibility_problems(small.now, "orders", 1, schema(BAD), DirectAnswers()) != []
    assert decisions.compatibility_problems(small.now, "nothing", None, schema(BAD), DirectAnswers()) == []
    with pytest.raises(RegistryError) as raised:
        decisions.compatibility_problems(small.now, "orders", 9, schema(BAD), DirectAnswers())
    assert code_of(raised) is RegistryCode.VERSION_NOT_FOUND
