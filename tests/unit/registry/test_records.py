"""Records in the very bytes that Confluent's registry writes and compares."""

from __future__ import annotations

import pytest

from ottla.registry.records import (
    ClearSubjectKey,
    ConfigKey,
    DeleteSubjectKey,
    Key,
    ModeKey,
    NoopKey,
    SchemaKey,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    version_change,
    version_of,
)
from ottla.registry.schema import Reference, Schema, SchemaType, SubjectVersion


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (SchemaKey("orders-value", 3), b'{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}'),
        (DeleteSubjectKey("a"), b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}'),
        (ClearSubjectKey("a"), b'{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}'),
        (ConfigKey("a"), b'{"keytype":"CONFIG","subject":"a","magic":0}'),
        (ConfigKey(None), b'{"keytype":"CONFIG","magic":0}'),
        (ModeKey(None), b'{"keytype":"MODE","magic":0}'),
        (NoopKey(), b'{"keytype":"NOOP","magic":0}'),
    ],
)
def test_key_is_written_as_confluents_registry_does(key: Key, data: bytes) -> None:
    assert encode_key(key) == data
    assert decode_key(data) == key


def test_setting_of_all_subjects_is_read_in_the_older_form_too() -> None:
    assert decode_key(b'{"keytype":"CONFIG","subject":null,"magic":0}') == ConfigKey(None)


def test_keys_of_newer_registries_are_no_error() -> None:
    assert decode_key(b'{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}') is None


@pytest.mark.parametrize(
    "data",
    [None, b"", b"\xff", b"7", b"{", b'{"keytype":"SCHEMA","version":1}', b'{"keytype":"CONFIG_","subject":7}' + b"}"],
)
def test_what_is_no_key_is_refused(data: bytes | None) -> None:
    with pytest.raises(ValueError):
        decode_key(data)


def test_version_is_the_same_after_writing_and_reading() -> None:
    references = (Reference("money.proto", "money", 2),)
    schema = Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; // é', references)
    version = SubjectVersion("a", 3, 7, schema, is_deleted=True, others={"md5": "x", "ruleSet": {"domainRules": []}})
    change = version_change(version)
    assert change.key == SchemaKey("a", 3)
    value = decode_value(encode_value(change.value))
    assert value is not None
    assert version_of(value) == version


def test_avro_is_the_type_that_is_not_named() -> None:
    version = SubjectVersion("a", 1, 1, Schema(SchemaType.AVRO, '"int"'))
    data = encode_value(version_change(version).value)
    assert data == b'{"subject":"a","version":1,"id":1,"schema":"\\"int\\"","deleted":false}'
    value = decode_value(data)
    assert value is not None
    assert version_of(value) == version
