"""Readers of message classes, compiled once for each class and version from its fields.

Hostile bytes end in `WireError`: a count is compared with the bytes that are left (divided by the smallest element)
before anything is allocated for it.  An element may have two bytes on the wire and some hundred in memory, so the
elements of all arrays of a message together are limited too.  Nesting is as deep as the classes and no deeper.

Arrays of structures and texts are read in steps (runtime/steps.py), with a pause after some elements: a message of
65,536 elements takes a tenth of a second.  `read_message` takes the same steps without a pause; structures without
such arrays need none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Final
from uuid import UUID

from ottla.model.errors import WireError
from ottla.protocol.primitives import (
    STRING_BYTES_MAX,
    ends_early,
    read_compact_length,
    read_length16,
    read_length32,
    read_tagged_count,
    read_uvarint,
    take,
    take_text,
)
from ottla.protocol.schema import METADATA_KEY, Kind, WireField
from ottla.runtime.steps import Steps, run_steps

# Of one request from any client: at most some 15 MB.  To free as many at once takes 10 ms of the event loop.
REQUEST_ELEMENTS_MAX: Final = 65_536
# Of one response: Metadata of 300,000 partitions with their replicas.
RESPONSE_ELEMENTS_MAX: Final = 3_000_000
# Memory for each element, without its text: an object of up to eight fields and its place in a list.
ELEMENT_BYTES: Final = 250

# Elements that are read between two pauses, each in some microseconds.
_ELEMENTS_OF_STEP: Final = 64

FIXED_SIZE_BYTES: Final = {
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.INT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.BOOLEAN: 1,
}


class Budget:
    """The count of elements that the message may still have."""

    __slots__ = ("_elements_max", "_left")

    def __init__(self, elements_max: int) -> None:
        self._elements_max = elements_max
        self._left = elements_max

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise WireError(f"the message has more than {self._elements_max} elements")


# The byte before a nullable structure; -1 as a signed one.
_IS_PRESENT: Final = 1
_IS_NULL: Final = 0xFF

Reader = Callable[[memoryview, int, Budget], tuple[object, int]]
StepsReader = Callable[[memoryview, int, Budget], Steps[tuple[object, int]]]
# Adds the values of some fields of a structure; returns the position after them.
_Fields = Callable[[memoryview, int, Budget, list[object]], int]


def read_message(
    message_class: type,
    version: int,
    flexible: bool,
    data: memoryview,
    elements_max: int,
    *,
    allow_bytes_after: bool = False,
) -> object:
    """The message that fills `data` (a view of single bytes) from its first byte to its last.

    `allow_bytes_after`: more bytes may follow, and are ignored.
    """
    try:
        message, position = struct_reader(message_class, version, flexible)(data, 0, Budget(elements_max))
    except struct.error:
        raise _ends_inside(message_class, version, data) from None
    _check_end(message_class, version, data, position, allow_bytes_after)
    return message


def message_steps(
    message_class: type,
    version: int,
    flexible: bool,
    data: memoryview,
    elements_max: int,
    *,
    allow_bytes_after: bool = False,
) -> Steps[object]:
    """`read_message` with pauses."""
    try:
        message, position = yield from _struct_steps(message_class, version, flexible)(data, 0, Budget(elements_max))
    except struct.error:
        raise _ends_inside(message_class, version, data) from None
    _check_end(message_class, version, data, position, allow_bytes_after)
    return message


def _ends_inside(message_class: type, version: int, data: memoryview) -> WireError:
    return WireError(f"{message_class.__name__} v{version} ends early, after {len(data)} bytes")


def _check_end(message_class: type, version: int, data: memoryview, position: int, allow_bytes_after: bool) -> None:
    count = len(data) - position
    if count and not allow_bytes_after:
        raise WireError(f"{message_class.__name__} v{version} has {count} bytes after its end")


def wire_field(declared: Field[object]) -> WireField:
    found = declared.metadata[METADATA_KEY]
    assert isinstance(found, WireField)
    return found


def default_factory(declared: Field[object]) -> Callable[[], object]:
    """Makes the field's default, a fresh one where it can be changed."""
    if declared.default_factory is not MISSING:
        return declared.default_factory
    default = declared.default
    return lambda: default


def has_steps(wire: WireField, version: int) -> bool:
    """Whether a field is an array that is read and written in steps.  Tagged fields and arrays of numbers have none."""
    return version in wire.versions and wire.tag is None and wire.is_array and wire.kind not in FIXED_SIZE_BYTES


def struct_has_steps(struct_class: type, version: int) -> bool:
    return any(has_steps(wire_field(declared), version) for declared in fields(struct_class))


@cache
def struct_reader(struct_class: type, version: int, flexible: bool) -> Reader:
    """Reads a structure at once."""
    if struct_has_steps(struct_class, version):
        return _at_once(_struct_steps(struct_class, version, flexible))
    plain, tagged = _plain_and_tagged(struct_class)
    readers = _field_readers(plain, version, flexible)
    if tagged or flexible:
        readers.append(_tagged_reader(tagged, version, flexible))

    if len(readers) == 1:
        only = readers[0]

        def read_only(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
            values: list[object] = []
            position = only(data, position, budget, values)
            return struct_class(*values), position

        return read_only

    def read(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
        values: list[object] = []
        for read_fields in readers:
            position = read_fields(data, position, budget, values)
        return struct_class(*values), position

    return read


@cache
def _struct_steps(struct_class: type, version: int, flexible: bool) -> StepsReader:
    """One generator for a structure; the fields between its long arrays are read at once."""
    plain, tagged = _plain_and_tagged(struct_class)
    parts: list[tuple[list[_Fields], StepsReader]] = []
    before: list[Field[object]] = []
    for declared in plain:
        wire = wire_field(declared)
        if has_steps(wire, version):
            array = _array_steps(declared.name, wire, version, flexible, version in wire.nullable)
            parts.append((_field_readers(before, version, flexible), array))
            before = []
        else:
            before.append(declared)
    rest = _field_readers(before, version, flexible)
    if tagged or flexible:
        rest.append(_tagged_reader(tagged, version, flexible))

    def read(data: memoryview, position: int, budget: Budget) -> Steps[tuple[object, int]]:
        values: list[object] = []
        for readers, array in parts:
            for read_fields in readers:
                position = read_fields(data, position, budget, values)
            value, position = yield from array(data, position, budget)
            values.append(value)
        for read_fields in rest:
            position = read_fields(data, position, budget, values)
        return struct_class(*values), position

    return read


def _at_once(steps: StepsReader) -> Reader:
    def read(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
        return run_steps(steps(data, position, budget))

    return read


def _plain_and_tagged(struct_class: type) -> tuple[list[Field[object]], list[Field[object]]]:
    declared = fields(struct_class)
    plain = [each for each in declared if wire_field(each).tag is None]
    tagged = [each for each in declared if wire_field(each).tag is not None]
    assert [*plain, *tagged] == list(declared), f"{struct_class.__name__}: tagged fields come last"
    return plain, tagged


@cache
def smallest_size_bytes(struct_class: type, version: int, flexible: bool) -> int:
    """The smallest size of one structure, its section of tagged fields included."""
    total = 1 if flexible else 0
    for declared in fields(struct_class):
        wire = wire_field(declared)
        if wire.tag is None and version in wire.versions:
            total += _smallest_field_bytes(wire, version, flexible)
    return total


def _smallest_field_bytes(wire: WireField, version: int, flexible: bool) -> int:
    if wire.is_array or wire.kind in (Kind.RECORDS, Kind.OPAQUE):
        return 1 if flexible else 4
    if wire.kind is Kind.STRUCT and version in wire.nullable:
        return 1
    return smallest_value_bytes(wire, version, flexible)


def smallest_value_bytes(wire: WireField, version: int, flexible: bool) -> int:
    if wire.kind is Kind.STRUCT:
        assert wire.struct_class is not None
        return smallest_size_bytes(wire.struct_class, version, flexible)
    if wire.kind is Kind.STRING:
        return 1 if flexible else 2
    if wire.kind is Kind.UUID:
        return 16
    return FIXED_SIZE_BYTES[wire.kind]


def _field_readers(plain: list[Field[object]], version: int, flexible: bool) -> list[_Fields]:
    """One reader for each field, and one for a whole run of numbers."""
    readers: list[_Fields] = []
    run = ""
    for declared in plain:
        wire = wire_field(declared)
        present = version in wire.versions
        if present and not wire.is_array and wire.kind in FIXED_SIZE_BYTES:
            run += wire.kind.value
            continue
        if run:
            readers.append(_numbers_reader(run))
            run = ""
        if present:
            readers.append(_value_reader(_field_reader(declared.name, wire, version, flexible)))
        else:
            readers.append(_default_reader(default_factory(declared)))
    if run:
        readers.append(_numbers_reader(run))
    return readers


def _numbers_reader(formats: str) -> _Fields:
    numbers = struct.Struct(">" + formats)
    unpack_from, size_bytes = numbers.unpack_from, numbers.size

    def read_fields(data: memoryview, position: int, budget: Budget, values: list[object]) -> int:
        values += unpack_from(data, position)
        return position + size_bytes

    return read_fields


def _default_reader(factory: Callable[[], object]) -> _Fields:
    def read_fields(data: memoryview, position: int, budget: Budget, values: list[object]) -> int:
        values.append(factory())
        return position

    return read_fields


def _value_reader(read: Reader) -> _Fields:
    def read_fields(data: memoryview, position: int, budget: Budget, values: list[object]) -> int:
        value, position = read(data, position, budget)
        values.append(value)
        return position

    return read_fields


def _tagged_reader(tagged: list[Field[object]], version: int, flexible: bool) -> _Fields:
    """The section of tagged fields at a structure's end; unknown ones are skipped."""
    factories = [default_factory(declared) for declared in tagged]
    known: dict[int, tuple[int, Reader]] = {}
    for index, declared in enumerate(tagged):
        wire = wire_field(declared)
        if version in wire.versions:
            assert wire.tag is not None
            known[wire.tag] = (index, _field_reader(declared.name, wire, version, flexible))

    def read_fields(data: memoryview, position: int, budget: Budget, values: list[object]) -> int:
        found = [factory() for factory in factories]
        if flexible:
            count, position = read_tagged_count(data, position)
            for _ in range(count):
                tag, position = read_uvarint(data, position)
                length, position = read_uvarint(data, position)
                value_end = position + length
                if value_end > len(data):
                    raise ends_early("a tagged field", length, len(data) - position)
                if tag in known:
                    index, read = known[tag]
                    found[index], reached = read(data[:value_end], position, budget)
                    if reached != value_end:
                        raise WireError(f"the tagged field {tag} claims {length} bytes and has {reached - position}")
                position = value_end
        values += found
        return position

    return read_fields


def _field_reader(name: str, wire: WireField, version: int, flexible: bool) -> Reader:
    nullable = version in wire.nullable
    if wire.is_array:
        if wire.kind in FIXED_SIZE_BYTES:
            return _number_array_reader(name, wire.kind.value, flexible, nullable)
        return _at_once(_array_steps(name, wire, version, flexible, nullable))
    if wire.kind is Kind.STRING:
        return _string_reader(name, flexible, nullable)
    if wire.kind is Kind.RECORDS:
        return _records_reader(flexible)
    if wire.kind is Kind.OPAQUE:
        return _opaque_reader(name, flexible)
    if wire.kind is Kind.UUID:
        return _read_uuid
    if wire.kind is Kind.STRUCT:
        assert wire.struct_class is not None
        read = struct_reader(wire.struct_class, version, flexible)
        return _nullable_reader(name, read) if nullable else read
    return _number_reader(wire.kind.value)


def _number_reader(format_: str) -> Reader:
    number = struct.Struct(">" + format_)

    def read(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
        return number.unpack_from(data, position)[0], position + number.size

    return read


def _read_uuid(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
    return UUID(bytes=bytes(take(data, position, 16))), position + 16


def _string_reader(name: str, flexible: bool, nullable: bool) -> Reader:
    read_length = read_compact_length if flexible else read_length16

    def read(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
        length, position = read_length(data, position)
        if length < 0:
            if nullable:
                return None, position
            raise WireError(f"{name} must not be null")
        if length > STRING_BYTES_MAX:
            raise WireError(f"{name} has {length} bytes, {STRING_BYTES_MAX} are allowed")
        return take_text(data, position, length), position + length

    return read


def _records_reader(flexible: bool) -> Reader:
    read_length = read_compact_length if flexible else read_length32

    def read(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
        length, position = read_length(data, position)
        if length < 0:
            return None, position
        return take(data, position, length), position + length

    return read


def _opaque_reader(name: str, flexible: bool) -> Reader:
    read_length = read_compact_length if flexible else read_length32

    def read(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
        length, position = read_length(data, position)
        if length < 0:
            raise WireError(f"{name} must not be null")
        return bytes(take(data, position, length)), position + length

    return read


def _nullable_reader(name: str, read_struct: Reader) -> Reader:
    def read(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
        (presence,) = take(data, position, 1)
        if presence == _IS_NULL:
            return None, position + 1
        if presence != _IS_PRESENT:
            raise WireError(f"{name} is neither there nor null: {presence}")
        return read_struct(data, position + 1, budget)

    return read


def _number_array_reader(name: str, format_: str, flexible: bool, nullable: bool) -> Reader:
    read_length = read_compact_length if flexible else read_length32
    element_bytes = struct.calcsize(">" + format_)

    def read(data: memoryview, position: int, budget: Budget) -> tuple[object, int]:
        count, position = read_length(data, position)
        if count < 0:
            if nullable:
                return None, position
            raise WireError(f"{name} must not be null")
        if count * element_bytes > len(data) - position:
            raise WireError(f"{name} cannot have {count} elements in {len(data) - position} bytes")
        budget.take(count)
        return list(struct.unpack_from(f">{count}{format_}", data, position)), position + element_bytes * count

    return read


def _array_steps(name: str, wire: WireField, version: int, flexible: bool, nullable: bool) -> StepsReader:
    """Reads an array of structures or texts."""
    read_count = _count_reader(name, wire, version, flexible, nullable)
    if wire.struct_class is not None and struct_has_steps(wire.struct_class, version):
        element_steps = _struct_steps(wire.struct_class, version, flexible)

        def read_deep(data: memoryview, position: int, budget: Budget) -> Steps[tuple[object, int]]:
            count, position = read_count(data, position, budget)
            if count < 0:
                return None, position
            elements = []
            for number in range(count):
                if number % _ELEMENTS_OF_STEP == 0:
                    yield
                element, position = yield from element_steps(data, position, budget)
                elements.append(element)
            return elements, position

        return read_deep

    if wire.struct_class is not None:
        read_element = struct_reader(wire.struct_class, version, flexible)
    else:
        assert wire.kind is Kind.STRING
        read_element = _string_reader(name, flexible, nullable=False)

    def read(data: memoryview, position: int, budget: Budget) -> Steps[tuple[object, int]]:
        count, position = read_count(data, position, budget)
        if count < 0:
            return None, position
        elements = []
        for number in range(count):
            if number % _ELEMENTS_OF_STEP == 0:
                yield
            element, position = read_element(data, position, budget)
            elements.append(element)
        return elements, position

    return read


def _count_reader(
    name: str, wire: WireField, version: int, flexible: bool, nullable: bool
) -> Callable[[memoryview, int, Budget], tuple[int, int]]:
    """Of an array of structures or texts: the count of its elements, for which there is room, or -1 for null."""
    read_length = read_compact_length if flexible else read_length32
    smallest_bytes = smallest_value_bytes(wire, version, flexible)
    assert smallest_bytes > 0

    def read(data: memoryview, position: int, budget: Budget) -> tuple[int, int]:
        count, position = read_length(data, position)
        if count < 0:
            if nullable:
                return -1, position
            raise WireError(f"{name} must not be null")
        if count * smallest_bytes > len(data) - position:
            raise WireError(f"{name} cannot have {count} elements in {len(data) - position} bytes")
        budget.take(count)
        return count, position

    return read
