"""Readers of large messages in short steps: the same values and errors as `reader`, with pauses between the elements.

A message of 65,536 elements takes a tenth of a second to read; other clients do not wait for it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from typing import Final

from ottla.protocol.reader import (
    FIXED_SIZE_BYTES,
    Budget,
    Reader,
    Step,
    count_reader,
    element_reader,
    ends_inside,
    field_steps,
    has_bytes_after,
    tagged_step,
    wire_field,
)
from ottla.protocol.schema import Kind, WireField
from ottla.runtime.steps import Steps

# Elements that are read between two pauses, each in some microseconds.
_ELEMENTS_OF_STEP: Final = 64

_Reader = Callable[[memoryview, int, Budget], Steps[tuple[object, int]]]


def message_steps(
    message_class: type,
    version: int,
    flexible: bool,
    data: memoryview,
    elements_max: int,
    *,
    allow_bytes_after: bool = False,
) -> Steps[object]:
    """See `reader.read_message`."""
    try:
        message, position = yield from _struct_reader(message_class, version, flexible)(data, 0, Budget(elements_max))
    except struct.error:
        raise ends_inside(message_class, version, data) from None
    if position != len(data) and not allow_bytes_after:
        raise has_bytes_after(message_class, version, len(data) - position)
    return message


@cache
def _struct_reader(struct_class: type, version: int, flexible: bool) -> _Reader:
    """One generator for a structure with long arrays; the fields between them are read at once."""
    plain = [each for each in fields(struct_class) if wire_field(each).tag is None]
    tagged = [each for each in fields(struct_class) if wire_field(each).tag is not None]
    parts: list[tuple[list[Step], _Reader | None]] = []
    before: list[Field[object]] = []
    for declared in plain:
        wire = wire_field(declared)
        if version in wire.versions and wire.is_array and wire.kind not in FIXED_SIZE_BYTES:
            read_array = _array_reader(declared.name, wire, version, flexible)
            parts.append((field_steps(before, version, flexible), read_array))
            before = []
        else:
            before.append(declared)
    rest = field_steps(before, version, flexible)
    if tagged or flexible:
        rest.append(tagged_step(tagged, version, flexible))
    parts.append((rest, None))

    def read(data: memoryview, position: int, budget: Budget) -> Steps[tuple[object, int]]:
        values: list[object] = []
        for steps, read_in_steps in parts:
            for step in steps:
                position = step(data, position, budget, values)
            if read_in_steps is not None:
                value, position = yield from read_in_steps(data, position, budget)
                values.append(value)
        return struct_class(*values), position

    return read


def _array_reader(name: str, wire: WireField, version: int, flexible: bool) -> _Reader:
    read_count = count_reader(name, wire, version, flexible, version in wire.nullable)
    if wire.kind is Kind.STRUCT:
        assert wire.struct_class is not None
        if _has_arrays(wire.struct_class, version):
            read_inner = _struct_reader(wire.struct_class, version, flexible)

            def read_deep(data: memoryview, position: int, budget: Budget) -> Steps[tuple[object, int]]:
                count, position = read_count(data, position, budget)
                if count < 0:
                    return None, position
                elements = []
                for number in range(count):
                    if number % _ELEMENTS_OF_STEP == 0:
                        yield
                    element, position = yield from read_inner(data, position, budget)
                    elements.append(element)
                return elements, position

            return read_deep
    return _flat_reader(read_count, element_reader(name, wire, version, flexible))


def _flat_reader(
    read_count: Callable[[memoryview, int, Budget], tuple[int, int]], read_element: Reader
) -> _Reader:  # fmt: skip
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


def _has_arrays(struct_class: type, version: int) -> bool:
    """Of structures or texts; an array of numbers is read at once."""
    found = [wire_field(each) for each in fields(struct_class)]
    return any(
        wire.is_array and wire.kind not in FIXED_SIZE_BYTES for wire in found if version in wire.versions
    )  # fmt: skip
