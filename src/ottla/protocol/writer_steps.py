"""Writers of large responses in short steps: the same bytes as `writer`, with pauses between the elements."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, Final

from ottla.model.errors import WireError
from ottla.protocol.reader import FIXED_SIZE_BYTES, wire_field
from ottla.protocol.schema import WireField
from ottla.protocol.writer import Writer, element_writer, field_writers, number_out_of_range, write_count
from ottla.runtime.steps import Steps

_ELEMENTS_OF_STEP: Final = 64

_Writer = Callable[[bytearray, Any], Steps[None]]


def response_steps(
    message: object, version: int, flexible: bool, size_bytes_max: int | None = None
) -> Steps[bytearray]:  # fmt: skip
    """See `writer.write_message`; fields that this version lacks are left out.

    Raises `WireError` when there are more than `size_bytes_max`.
    """
    out = bytearray()
    message_class: type = type(message)
    try:
        for _ in _struct_writer(message_class, version, flexible)(out, message):
            if size_bytes_max is not None and len(out) > size_bytes_max:
                name = message_class.__name__
                raise WireError(f"the {name} would have more than {size_bytes_max} bytes: ask for less at a time")
            yield
    except struct.error as error:
        raise number_out_of_range(message_class, error) from None
    return out


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
def _struct_writer(struct_class: type, version: int, flexible: bool) -> _Writer:
    """One generator for a structure with long arrays; the fields between them are written at once."""
    parts: list[tuple[Writer, _Writer | None]] = []
    for declared, write in field_writers(struct_class, version, flexible, strict=False):
        in_steps = None
        if declared is not None:
            wire = wire_field(declared)
            if wire.is_array and wire.kind not in FIXED_SIZE_BYTES:
                in_steps = _array_writer(declared.name, wire, version, flexible, write)
        parts.append((write, in_steps))

    def write_all(out: bytearray, message: Any) -> Steps[None]:
        for write, in_steps in parts:
            if in_steps is None:
                write(out, message)
            else:
                yield from in_steps(out, message)

    return write_all


def _array_writer(name: str, wire: WireField, version: int, flexible: bool, write_at_once: Writer) -> _Writer:
    get = attrgetter(name)
    write_element = element_writer(name, wire, version, flexible, strict=False)
    write_deep = None
    if wire.struct_class is not None and _arrays(wire.struct_class) is not None:
        write_deep = _struct_writer(wire.struct_class, version, flexible)

    def write(out: bytearray, message: Any) -> Steps[None]:
        elements = get(message)
        if not elements:
            # Nothing, or null, which may be refused.
            write_at_once(out, message)
            return
        write_count(out, len(elements), flexible)
        for number, element in enumerate(elements):
            if number % _ELEMENTS_OF_STEP == 0:
                yield
            if write_deep is None:
                write_element(out, element)
            else:
                yield from write_deep(out, element)

    return write
