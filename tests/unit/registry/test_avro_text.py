from __future__ import annotations

import json

import pytest

from ottla.registry.avro_format import read_avro
from ottla.registry.errors import RegistryCode, RegistryError


def test_order_of_keys_and_spaces_make_no_other_schema() -> None:
    one = '{"type": "record", "name": "R", "namespace": "a.b", "fields": [{"name": "f", "type": "int"}]}'
    two = '{"fields":[{"type":{"type":"int"},"name":"f"}],"namespace":"a.b","name":"R","type":"record"}'
    three = '{"fields":[{"type":"int","name":"f","order":"ascending"}],"name":"a.b.R","type":"record"}'
    assert read_avro(one).text == read_avro(two).text == read_avro(three).text
    assert read_avro(one).text == (
        '{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"f","type":"int"}]}'
    )


def test_docs_defaults_aliases_and_properties_stay() -> None:
    text = (
        '{"type":"record","name":"R","doc":"d","fields":[{"name":"f","type":["null","string"],"doc":"e","default":null,'
        '"order":"ignore","aliases":["g"],"pii":true},{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}},'
        '{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}}],"owner":"x","aliases":["Old"]}'
    )
    assert read_avro(text).text == text


def test_names_are_relative_to_where_they_stand() -> None:
    inner = {"type": "record", "name": "Inner", "namespace": "a", "fields": []}
    other = {"type": "fixed", "name": "b.Other", "size": 4}
    fields = [
        {"name": "one", "type": inner},
        {"name": "two", "type": "a.Inner"},
        {"name": "three", "type": other},
        {"name": "four", "type": {"type": "array", "items": "b.Other"}},
    ]
    text = read_avro(json.dumps({"type": "record", "name": "a.R", "fields": fields})).text
    assert json.loads(text) == {
        "type": "record",
        "name": "R",
        "namespace": "a",
        "fields": [
            {"name": "one", "type": {"type": "record", "name": "Inner", "fields": []}},
            {"name": "two", "type": "Inner"},
            {"name": "three", "type": {"type": "fixed", "name": "Other", "namespace": "b", "size": 4}},
            {"name": "four", "type": {"type": "array", "items": "b.Other"}},
        ],
    }


def test_name_without_a_namespace_inside_of_one_says_so() -> None:
    plain = {"type": "fixed", "name": "P", "namespace": "", "size": 1}
    outer = {"type": "record", "name": "a.R", "fields": [{"name": "f", "type": plain}]}
    written = json.loads(read_avro(json.dumps(outer)).text)
    assert written["fields"][0]["type"]["namespace"] == ""


def test_text_that_was_written_is_written_the_same_again() -> None:
    text = read_avro(
        '{"type":"record","name":"a.R","fields":[{"name":"next","type":["null","a.R"],"default":null}]}'
    ).text
    assert read_avro(text).text == text
    assert '["null","R"]' in text


def test_order_of_properties_goes_only_when_it_is_requested() -> None:
    one, two = '{"type":"string","b":1,"a":2}', '{"type":"string","a":2,"b":1}'
    assert read_avro(one).text != read_avro(two).text
    assert read_avro(one, normalize=True).text == read_avro(two, normalize=True).text


def test_types_of_references_are_named_and_not_written_again() -> None:
    address = read_avro('{"type":"record","name":"a.Address","fields":[{"name":"city","type":"string"}]}').text
    person = '{"type":"record","name":"a.Person","fields":[{"name":"home","type":"a.Address"}]}'
    assert '"type":"Address"' in read_avro(person, [address]).text
    with pytest.raises(RegistryError, match=r'"a\.Address" is not a type of Avro'):
        read_avro(person)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        "null and void",
        '{"name":"R"}',
        '{"type":"nothing"}',
        '{"type":"record","name":"R"}',
        '{"type":"record","name":"R","fields":[{"name":"a"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","fields":[]}',
        '{"type":"record","name":"1R","fields":[]}',
        '{"type":"record","name":"R","namespace":7,"fields":[]}',
        '{"type":"record","name":"R","aliases":7,"fields":[]}',
        '{"type":"enum","name":"E"}',
        '{"type":"enum","name":"E","symbols":["A","A"]}',
        '{"type":"fixed","name":"F","size":-1}',
        '{"type":"fixed","name":"F"}',
        '{"type":"array"}',
        '["null","null"]',
        '["int",["string"]]',
        '[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]',
        '{"type":"array","items":' * 300 + '"int"' + "}" * 300,
        "[" * 100_000,
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RegistryError) as raised:
        read_avro(text)
    assert raised.value.code is RegistryCode.INVALID_SCHEMA
    assert raised.value.status == 422
