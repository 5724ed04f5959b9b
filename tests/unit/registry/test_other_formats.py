from __future__ import annotations

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.json_format import read_json_schema
from ottla.registry.protobuf_format import descriptors, read_protobuf, serialized

MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "money.proto";
import "google/protobuf/timestamp.proto";
message Order { string id = 1; Money price = 2; google.protobuf.Timestamp at = 3; }
"""


def in_base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_json_schema_is_kept_in_one_line() -> None:
    text = '{\n "type": "object", "properties": {"b": {}, "a": true}}'
    assert read_json_schema(text) == '{"type":"object","properties":{"b":{},"a":true}}'
    assert read_json_schema(text, normalize=True) == '{"properties":{"a":true,"b":{}},"type":"object"}'


@pytest.mark.parametrize("text", ["{", "7", "[]", '{"type": "objekt"}', '{"properties": 7}', "[" * 100_000])
def test_what_is_no_json_schema_is_refused(text: str) -> None:
    with pytest.raises(RegistryError) as raised:
        read_json_schema(text)
    assert raised.value.code is RegistryCode.INVALID_SCHEMA


def test_protobuf_text_becomes_the_descriptor_that_python_clients_ask_for() -> None:
    found = FileDescriptorProto()
    found.ParseFromString(base64.b64decode(serialized(ORDER, {"money.proto": MONEY})))
    assert [field.name for field in found.message_type[0].field] == ["id", "price", "at"]
    assert list(found.dependency) == ["money.proto", "google/protobuf/timestamp.proto"]


def test_protobuf_descriptor_stays_as_it_is() -> None:
    *_, money = descriptors(MONEY, {})
    money.name = "money.proto"
    *_, order = descriptors(ORDER, {"money.proto": MONEY})
    order.name = "order.proto"
    texts = {"money.proto": in_base64(money)}
    assert read_protobuf(f" {in_base64(order)}\n", texts) == in_base64(order)
    assert serialized(in_base64(order), texts) == in_base64(order)
    names = [file.name for file in descriptors(in_base64(order), texts)]
    assert names == ["money.proto", "google/protobuf/timestamp.proto", "order.proto"]


def test_protobuf_descriptor_may_refer_to_text() -> None:
    *_, order = descriptors(ORDER, {"money.proto": MONEY})
    order.name = "order.proto"
    assert read_protobuf(in_base64(order), {"money.proto": MONEY}) == in_base64(order)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('syntax = "proto3"; message M { strin a = 1; }', '"strin" is not defined'),
        ('import "other.proto";', "other.proto"),
        ("nothing", "no Protobuf schema"),
        (base64.b64encode(b"\xff\xff").decode(), "of no descriptor"),
        (in_base64(FileDescriptorProto(name="a.proto", dependency=["b.proto"])), "no reference has this name"),
    ],
)
def test_what_is_no_protobuf_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RegistryError, match=reason) as raised:
        read_protobuf(text, {})
    assert raised.value.code is RegistryCode.INVALID_SCHEMA
    assert "/tmp" not in str(raised.value)


@pytest.mark.parametrize("name", ["../out.proto", "/etc/out.proto", "", "a\0b"])
def test_reference_is_no_way_out_of_the_compilers_folder(name: str) -> None:
    with pytest.raises(RegistryError, match="no path of an import"):
        read_protobuf(MONEY, {name: MONEY})


def test_protobuf_descriptors_that_refer_to_many_are_read_in_as_many_steps() -> None:
    files = [
        FileDescriptorProto(name=f"f{number}.proto", dependency=[f"f{number - 1}.proto"] if number else [])
        for number in range(60)
    ]
    texts = {file.name: in_base64(file) for file in files[:-1]}
    assert read_protobuf(in_base64(files[-1]), texts) == in_base64(files[-1])
