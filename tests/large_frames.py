"""Frames as large as the protocol lets a client make them, of every API, from the fields of its request.

Each has one array that fills it: with one element repeated, or with as many different ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import Field, fields, replace
from typing import Any, Final, NamedTuple

from ottla.protocol.api import ApiKey, is_flexible
from ottla.protocol.frame import request_frame
from ottla.protocol.messages import request_class
from ottla.protocol.primitives import INT32, write_uvarint
from ottla.protocol.reader import FIXED_SIZE_BYTES, wire_field
from ottla.protocol.schema import Kind, WireField
from ottla.protocol.writer import _field_writer, struct_writer

# The limit of the broker (protocol/reader.py), less a few for the fields around the array.
ELEMENTS_MAX: Final = 65_000
_NUMBERED: Final = "n0000000"
_NUMBER_OF_TEXT: Final = b"0000000"
_PRIME: Final = 9_999_991
_MARK: Final = 0x7A5B3C1D
_NUMBER: Final = struct.Struct(">i")
_FIRST_NUMBERS: Final = ("partition_index", "partition", "index")


class LargeFrame(NamedTuple):
    api: ApiKey
    version: int
    # Of the array that fills it: `topics.partitions`.
    array: str
    is_distinct: bool
    elements_count: int
    frame: bytes

    def __str__(self) -> str:
        kind = "different" if self.is_distinct else "the same"
        return f"{self.api.name} v{self.version} {self.array}: {self.elements_count} {kind}, {len(self.frame)} bytes"


def large_frames(api: ApiKey, version: int, size_bytes: int, topic: str) -> Iterator[LargeFrame]:
    """A frame of about `size_bytes` for each array of the request, once with equal and once with different elements.

    `topic` exists; equal elements name it.
    """
    message_class = request_class(api)
    for path in _arrays(message_class, version):
        for is_distinct in (False, True):
            yield _large(api, version, message_class, path, size_bytes, topic, is_distinct=is_distinct)


def _arrays(struct_class: type, version: int) -> Iterator[tuple[str, ...]]:
    for declared in fields(struct_class):
        wire = wire_field(declared)
        if version not in wire.versions or wire.tag is not None:
            continue
        if wire.is_array:
            yield (declared.name,)
        if wire.kind is Kind.STRUCT and wire.struct_class is not None and wire.is_array:
            yield from ((declared.name, *inner) for inner in _arrays(wire.struct_class, version))


def _large(
    api: ApiKey,
    version: int,
    message_class: type,
    path: tuple[str, ...],
    size_bytes: int,
    topic: str,
    *,
    is_distinct: bool,
) -> LargeFrame:
    message = _sample(message_class, version, topic)
    place: Any = message
    struct_class = message_class
    for name in path[:-1]:
        struct_class = _wire(struct_class, name).struct_class  # type: ignore[assignment]
        place = getattr(place, name)[0]
    wire = _wire(struct_class, path[-1])
    element = _element(wire, version, is_flexible(api, version), topic, is_distinct=is_distinct)
    count = max(min(size_bytes // len(element), ELEMENTS_MAX // _elements_count(wire, version)), 1)
    elements = _numbered(element, count) if is_distinct else element * count
    body = _body(message, version, is_flexible(api, version), path, count, elements)
    frame = request_frame(api, version, 77, "large", body)
    return LargeFrame(api, version, ".".join(path), is_distinct, count, frame)


def _wire(struct_class: type, name: str) -> WireField:
    return wire_field(next(each for each in fields(struct_class) if each.name == name))


def _element(wire: WireField, version: int, flexible: bool, topic: str, *, is_distinct: bool) -> bytes:
    text = _NUMBERED if is_distinct else topic
    if wire.kind in FIXED_SIZE_BYTES:
        return struct.pack(">" + wire.kind.value, _MARK if is_distinct and wire.kind is Kind.INT32 else 0)
    if wire.kind is Kind.STRING:
        encoded = text.encode()
        return bytes([len(encoded) + 1]) + encoded if flexible else struct.pack(">h", len(encoded)) + encoded
    assert wire.struct_class is not None
    element = _sample(wire.struct_class, version, text)
    if is_distinct:
        for name in _FIRST_NUMBERS:
            if any(each.name == name for each in fields(wire.struct_class)):
                element = replace(element, **{name: _MARK})
    out = bytearray()
    struct_writer(wire.struct_class, version, flexible, strict=False)(out, element)
    return bytes(out)


def _elements_count(wire: WireField, version: int) -> int:
    """Of one element with those in it."""
    if wire.struct_class is None:
        return 1
    inner = [wire_field(each) for each in fields(wire.struct_class)]
    return 1 + sum(_elements_count(each, version) for each in inner if each.is_array and version in each.versions)


def _numbered(element: bytes, count: int) -> bytes:
    mark = _NUMBER.pack(_MARK)
    if mark in element:
        return b"".join([element.replace(mark, _NUMBER.pack(n)) for n in range(count)])
    if _NUMBER_OF_TEXT in element:
        # In no order: texts are sorted in some answers.
        return b"".join([element.replace(_NUMBER_OF_TEXT, b"%07d" % (n * 7_919 % _PRIME)) for n in range(count)])
    return element * count


def _body(
    message: object, version: int, flexible: bool, path: tuple[str, ...], count: int, elements: bytes
) -> bytearray:
    out = bytearray()
    for declared in fields(message):  # type: ignore[arg-type]
        wire = wire_field(declared)
        if version not in wire.versions or wire.tag is not None:
            continue
        if declared.name != path[0]:
            _field_writer(declared.name, wire, version, flexible, False)(out, message)
            continue
        _count(out, count if len(path) == 1 else 1, flexible)
        if len(path) == 1:
            out += elements
        else:
            out += _body(getattr(message, declared.name)[0], version, flexible, path[1:], count, elements)
    if flexible:
        out.append(0)
    return out


def _count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += INT32.pack(count)


def _sample(struct_class: type, version: int, topic: str) -> Any:
    """One element in each array, the topic's name in each text; numbers are those of a patient and harmless request."""
    return struct_class(
        **{
            declared.name: _value(declared, wire_field(declared), version, topic)
            for declared in fields(struct_class)
            if version in wire_field(declared).versions and wire_field(declared).tag is None
        }
    )


_NUMBERS: Final = {
    "replica_id": -1,
    "session_epoch": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "retention_time_ms": -1,
    "current_leader_epoch": -1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "resource_type": 2,
    "replication_factor": -1,
    "num_partitions": -1,
    "response_partition_limit": 2_000,
    "timestamp": -2,
    "acks": 1,
    "endpoint_type": 1,
}
_TEXTS: Final = {"member_id": "", "group_instance_id": None, "instance_id": None, "transactional_id": None}


def _value(declared: Field[Any], wire: WireField, version: int, topic: str) -> Any:
    name = declared.name
    value: Any
    if wire.kind is Kind.STRUCT:
        assert wire.struct_class is not None
        value = _sample(wire.struct_class, version, topic)
    elif wire.kind is Kind.STRING:
        value = _TEXTS.get(name, topic) if not wire.is_array else topic
        if value is None and version not in wire.nullable:
            value = topic
    elif wire.kind in FIXED_SIZE_BYTES:
        value = name == "validate_only" if wire.kind is Kind.BOOLEAN else _NUMBERS.get(name, 0)
    else:
        value = declared.default
        if wire.kind is Kind.OPAQUE:
            value = b""
    return [value] if wire.is_array else value
