"""One message of every class and version, with something in every field that the version has."""

from __future__ import annotations

from dataclasses import fields
from uuid import UUID

from ottla.protocol.reader import wire_field
from ottla.protocol.schema import Kind, WireField

SAMPLE_UUID = UUID("12345678-1234-5678-1234-567812345678")


def sample(struct_class: type, version: int) -> object:
    """Arrays have two elements, texts three letters, numbers are 1; fields of other versions have their defaults."""
    present = {
        declared.name: _sample_value(wire_field(declared), version)
        for declared in fields(struct_class)
        if version in wire_field(declared).versions
    }
    message: object = struct_class(**present)
    return message


def _sample_value(wire: WireField, version: int) -> object:
    return [_one(wire, version), _one(wire, version)] if wire.is_array else _one(wire, version)


def _one(wire: WireField, version: int) -> object:
    if wire.kind is Kind.STRUCT:
        assert wire.struct_class is not None
        return sample(wire.struct_class, version)
    values: dict[Kind, object] = {
        Kind.STRING: "abc",
        Kind.RECORDS: b"0123456789",
        Kind.OPAQUE: b"012",
        Kind.UUID: SAMPLE_UUID,
        Kind.BOOLEAN: True,
    }
    return values.get(wire.kind, 1)
