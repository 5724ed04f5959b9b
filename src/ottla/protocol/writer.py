"""Writers of message classes, compiled once for each class and version from its fields."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from operator import attrgetter
from uuid import UUID

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.protocol.primitives import INT16, INT16_MAX, INT32, write_uvarint
from ottla.protocol.reader import FIXED_SIZE_BYTES, default_factory, wire_field
from ottla.protocol.schema import Kind, WireField

Writer = Callable[[bytearray, object], None]


def write_message(message: object, version: int, flexible: bool, *, strict: bool) -> bytes:
    """The message's body in this version.

    `strict`: raise `RequestError` when a field is set that this version lacks and that is not ignorable.
    """
    out = bytearray()
    message_class: type = type(message)
    try:
        struct_writer(message_class, version, flexible, strict)(out, message)
    except struct.error as error:
        raise number_out_of_range(message_class, error) from None
    return bytes(out)


def number_out_of_range(message_class: type, error: struct.error) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, f"{message_class.__name__}: a number is out of its range ({error})")


@cache
def struct_writer(struct_class: type, version: int, flexible: bool, strict: bool) -> Writer:
    steps = [write for _, write in field_writers(struct_class, version, flexible, strict=strict)]
    if len(steps) == 1:
        return steps[0]

    def write(out: bytearray, message: object) -> None:
        for step in steps:
            step(out, message)

    return write


def field_writers(
    struct_class: type, version: int, flexible: bool, *, strict: bool
) -> list[tuple[Field[object] | None, Writer]]:
    """A writer for each field, in order; None in place of the field: a run of numbers, a check, the tagged fields."""
    steps: list[tuple[Field[object] | None, Writer]] = []
    run: list[Field[object]] = []
    tagged: list[tuple[int, Writer]] = []
    for declared in fields(struct_class):
        wire = wire_field(declared)
        if version not in wire.versions:
            if strict and not wire.ignorable:
                steps.append((None, _absent_check(struct_class, declared, version)))
        elif wire.tag is not None:
            tagged.append((wire.tag, _tagged_writer(wire.tag, declared, wire, version, flexible, strict)))
        elif not wire.is_array and wire.kind in FIXED_SIZE_BYTES:
            run.append(declared)
            continue
        else:
            if run:
                steps.append((None, _numbers_writer(run)))
                run = []
            steps.append((declared, _field_writer(declared.name, wire, version, flexible, strict)))
    if run:
        steps.append((None, _numbers_writer(run)))
    if flexible:
        in_order = [write for _, write in sorted(tagged, key=lambda pair: pair[0])]
        steps.append((None, _tagged_section_writer(in_order)))
    return steps


def _absent_check(struct_class: type, declared: Field[object], version: int) -> Writer:
    get, default = attrgetter(declared.name), default_factory(declared)()

    def check(out: bytearray, message: object) -> None:
        if get(message) != default:
            raise RequestError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{struct_class.__name__} v{version} has no field {declared.name}, and it was set to {get(message)!r}",
            )

    return check


def _numbers_writer(run: list[Field[object]]) -> Writer:
    pack = struct.Struct(">" + "".join(wire_field(declared).kind.value for declared in run)).pack
    get = attrgetter(*(declared.name for declared in run))
    if len(run) == 1:

        def write_one(out: bytearray, message: object) -> None:
            out += pack(get(message))

        return write_one

    def write(out: bytearray, message: object) -> None:
        out += pack(*get(message))

    return write


def _tagged_section_writer(writers: list[Writer]) -> Writer:
    def write(out: bytearray, message: object) -> None:
        count_at = len(out)
        out.append(0)
        for write_field in writers:
            before = len(out)
            write_field(out, message)
            if len(out) > before:
                out[count_at] += 1

    assert len(writers) < 0x80
    return write


def _tagged_writer(
    tag: int, declared: Field[object], wire: WireField, version: int, flexible: bool, strict: bool
) -> Writer:  # fmt: skip
    """Writes tag, length and value, or nothing for the default value."""
    get, default = attrgetter(declared.name), default_factory(declared)()
    write_value = _value_writer(declared.name, wire, version, flexible, strict)

    def write(out: bytearray, message: object) -> None:
        value = get(message)
        if value != default:
            encoded = bytearray()
            write_value(encoded, value)
            write_uvarint(out, tag)
            write_uvarint(out, len(encoded))
            out += encoded

    return write


def _field_writer(name: str, wire: WireField, version: int, flexible: bool, strict: bool) -> Writer:
    get, write_value = attrgetter(name), _value_writer(name, wire, version, flexible, strict)

    def write(out: bytearray, message: object) -> None:
        write_value(out, get(message))

    return write


def _value_writer(name: str, wire: WireField, version: int, flexible: bool, strict: bool) -> Writer:
    nullable = version in wire.nullable
    if wire.is_array:
        if wire.kind in FIXED_SIZE_BYTES:
            return _number_array_writer(name, wire.kind.value, flexible, nullable)
        return _array_writer(name, wire, version, flexible, strict)
    if wire.kind is Kind.STRING:
        return _string_writer(name, flexible, nullable)
    if wire.kind in (Kind.RECORDS, Kind.OPAQUE):
        return _records_writer(flexible)
    if wire.kind is Kind.UUID:
        return _write_uuid
    if wire.kind is Kind.STRUCT:
        assert wire.struct_class is not None
        write_struct = struct_writer(wire.struct_class, version, flexible, strict)
        return _nullable_writer(write_struct) if nullable else write_struct
    pack = struct.Struct(">" + wire.kind.value).pack

    def write_number(out: bytearray, value: object) -> None:
        out += pack(value)

    return write_number


def _write_uuid(out: bytearray, value: object) -> None:
    assert isinstance(value, UUID)
    out += value.bytes


def _null_refused(name: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, f"{name} must not be null in this version")


def _string_writer(name: str, flexible: bool, nullable: bool) -> Writer:
    def write(out: bytearray, value: object) -> None:
        if value is None:
            if not nullable:
                raise _null_refused(name)
            out += b"\x00" if flexible else b"\xff\xff"
            return
        assert isinstance(value, str)
        encoded = value.encode()
        if flexible:
            write_uvarint(out, len(encoded) + 1)
        elif len(encoded) > INT16_MAX:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"{name} has {len(encoded)} bytes, {INT16_MAX} are allowed in this version"
            )
        else:
            out += INT16.pack(len(encoded))
        out += encoded

    return write


def _records_writer(flexible: bool) -> Writer:
    def write(out: bytearray, value: object) -> None:
        if value is None:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        assert isinstance(value, (bytes, bytearray, memoryview))
        if flexible:
            write_uvarint(out, len(value) + 1)
        else:
            out += INT32.pack(len(value))
        out += value

    return write


def _nullable_writer(write_struct: Writer) -> Writer:
    def write(out: bytearray, value: object) -> None:
        out += b"\xff" if value is None else b"\x01"
        if value is not None:
            write_struct(out, value)

    return write


def _number_array_writer(name: str, format_: str, flexible: bool, nullable: bool) -> Writer:
    def write(out: bytearray, value: object) -> None:
        if value is None:
            if not nullable:
                raise _null_refused(name)
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        assert isinstance(value, (list, tuple))
        count = len(value)
        if flexible:
            write_uvarint(out, count + 1)
            out += struct.pack(f">{count}{format_}", *value)
        else:
            out += struct.pack(f">i{count}{format_}", count, *value)

    return write


def _array_writer(name: str, wire: WireField, version: int, flexible: bool, strict: bool) -> Writer:
    nullable = version in wire.nullable
    write_element = element_writer(name, wire, version, flexible, strict=strict)

    def write(out: bytearray, value: object) -> None:
        if value is None:
            if not nullable:
                raise _null_refused(name)
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        assert isinstance(value, (list, tuple))
        write_count(out, len(value), flexible)
        for element in value:
            write_element(out, element)

    return write


def element_writer(name: str, wire: WireField, version: int, flexible: bool, *, strict: bool) -> Writer:
    """Of one element of an array of structures or texts."""
    if wire.kind is Kind.STRUCT:
        assert wire.struct_class is not None
        return struct_writer(wire.struct_class, version, flexible, strict)
    assert wire.kind is Kind.STRING
    return _string_writer(name, flexible, nullable=False)


def write_count(out: bytearray, count: int, flexible: bool) -> None:
    """Of an array."""
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += INT32.pack(count)
