"""Writers of message classes, compiled once for each class and version from its fields.

Arrays of structures and texts are written in steps (runtime/steps.py), as `reader` reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError, WireError
from ottla.protocol.primitives import INT16, INT16_MAX, INT32, write_uvarint
from ottla.protocol.reader import FIXED_SIZE_BYTES, default_factory, has_steps, struct_has_steps, wire_field
from ottla.protocol.schema import Kind, WireField
from ottla.runtime.steps import Steps

# Elements that are written between two pauses.
_ELEMENTS_OF_STEP: Final = 64

Writer = Callable[[bytearray, object], None]
StepsWriter = Callable[[bytearray, Any], Steps[None]]


def write_message(message: object, version: int, flexible: bool, *, strict: bool) -> bytes:
    """The message's body in this version.

    `strict`: raise `RequestError` when a field is set that this version lacks and that is not ignorable.
    """
    out = bytearray()
    message_class: type = type(message)
    try:
        struct_writer(message_class, version, flexible, strict)(out, message)
    except struct.error as error:
        raise _number_out_of_range(message_class, error) from None
    return bytes(out)


def response_steps(
    message: object, version: int, flexible: bool, size_bytes_max: int | None = None
) -> Steps[bytearray]:
    """`write_message` with pauses; fields that this version lacks are left out.

    Raises `WireError` when there are more than `size_bytes_max`.
    """
    out = bytearray()
    message_class: type = type(message)
    try:
        for _ in _struct_steps(message_class, version, flexible, False)(out, message):
            if size_bytes_max is not None and len(out) > size_bytes_max:
                name = message_class.__name__
                raise WireError(f"the {name} would have more than {size_bytes_max} bytes: ask for less at a time")
            yield
    except struct.error as error:
        raise _number_out_of_range(message_class, error) from None
    return out


def _number_out_of_range(message_class: type, error: struct.error) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, f"{message_class.__name__}: a number is out of its range ({error})")


def is_long(message: object, elements_count: int) -> bool:
    """Whether the message has more than so many elements in its arrays; looks at no more than these."""
    message_class: type = type(message)
    arrays = _arrays(message_class)
    return arrays is not None and _left_after(message, arrays, elements_count) < 0


# How to get each array of a structure, and the arrays of its elements.
_Arrays = list[tuple[Callable[[Any], Any], Any]]


@cache
def _arrays(struct_class: type) -> _Arrays | None:
    found: _Arrays = []
    for declared in fields(struct_class):
        wire = wire_field(declared)
        if wire.is_array:
            found.append((attrgetter(declared.name), None if wire.struct_class is None else _arrays(wire.struct_class)))
    return found or None


def _left_after(message: Any, arrays: _Arrays, left: int) -> int:
    """What is left of a count after the message's elements; negative when they are more."""
    for get, deeper in arrays:
        elements = get(message)
        if elements:
            left -= len(elements)
            if left < 0:
                return left
            if deeper is not None:
                for element in elements:
                    left = _left_after(element, deeper, left)
                    if left < 0:
                        return left
    return left


@cache
def struct_writer(struct_class: type, version: int, flexible: bool, strict: bool) -> Writer:
    """Writes a structure at once."""
    if struct_has_steps(struct_class, version):
        return _at_once(_struct_steps(struct_class, version, flexible, strict))
    parts = [write for write, _ in _parts(struct_class, version, flexible, strict)]
    if len(parts) == 1:
        return parts[0]

    def write(out: bytearray, message: object) -> None:
        for write_part in parts:
            write_part(out, message)

    return write


@cache
def _struct_steps(struct_class: type, version: int, flexible: bool, strict: bool) -> StepsWriter:
    """One generator for a structure; the fields between its long arrays are written at once."""
    parts = _parts(struct_class, version, flexible, strict)

    def write_parts(out: bytearray, message: object) -> Steps[None]:
        for write, array in parts:
            if array is None:
                write(out, message)
            else:
                yield from array(out, message)

    return write_parts


def _at_once(steps: StepsWriter) -> Writer:
    def write(out: bytearray, value: object) -> None:
        for _ in steps(out, value):
            pass

    return write


def _parts(struct_class: type, version: int, flexible: bool, strict: bool) -> list[tuple[Writer, StepsWriter | None]]:
    """A writer for each field, in order, or for a run of numbers, a check, the tagged fields; the steps of an array."""
    parts: list[tuple[Writer, StepsWriter | None]] = []
    run: list[Field[object]] = []
    tagged: list[tuple[int, Writer]] = []
    for declared in fields(struct_class):
        wire = wire_field(declared)
        if version not in wire.versions:
            if strict and not wire.ignorable:
                parts.append((_absent_check(struct_class, declared, version), None))
        elif wire.tag is not None:
            tagged.append((wire.tag, _tagged_writer(wire.tag, declared, wire, version, flexible, strict)))
        elif not wire.is_array and wire.kind in FIXED_SIZE_BYTES:
            run.append(declared)
            continue
        else:
            if run:
                parts.append((_numbers_writer(run), None))
                run = []
            steps = _array_field_steps(declared.name, wire, version, flexible, strict)
            write = _field_writer(declared.name, wire, version, flexible, strict) if steps is None else _at_once(steps)
            parts.append((write, steps))
    if run:
        parts.append((_numbers_writer(run), None))
    if flexible:
        in_order = [write for _, write in sorted(tagged, key=lambda pair: pair[0])]
        parts.append((_tagged_section_writer(in_order), None))
    return parts


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
) -> Writer:
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
        return _at_once(_array_steps(name, wire, version, flexible, strict))
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


def _array_field_steps(name: str, wire: WireField, version: int, flexible: bool, strict: bool) -> StepsWriter | None:
    if not has_steps(wire, version):
        return None
    get, steps = attrgetter(name), _array_steps(name, wire, version, flexible, strict)

    def write(out: bytearray, message: object) -> Steps[None]:
        return steps(out, get(message))

    return write


def _array_steps(name: str, wire: WireField, version: int, flexible: bool, strict: bool) -> StepsWriter:
    """Writes an array of structures or texts."""
    nullable = version in wire.nullable
    element_class = wire.struct_class
    element_steps = None
    if element_class is None:
        assert wire.kind is Kind.STRING
        write_element = _string_writer(name, flexible, nullable=False)
    else:
        write_element = struct_writer(element_class, version, flexible, strict)
        if struct_has_steps(element_class, version):
            element_steps = _struct_steps(element_class, version, flexible, strict)

    def write(out: bytearray, elements: object) -> Steps[None]:
        if elements is None:
            if not nullable:
                raise _null_refused(name)
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        assert isinstance(elements, (list, tuple))
        if flexible:
            write_uvarint(out, len(elements) + 1)
        else:
            out += INT32.pack(len(elements))
        for number, element in enumerate(elements):
            if number % _ELEMENTS_OF_STEP == 0:
                yield
            if element_steps is None:
                write_element(out, element)
            else:
                yield from element_steps(out, element)

    return write
