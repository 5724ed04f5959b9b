"""Protobuf messages as columns: parsed one by one by protobuf's own library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from ottla.registry.errors import RegistryError
from ottla.registry.protobuf_format import descriptors, pool_of
from ottla.spark.arrow.varint_columns import Ints, Octets
from ottla.spark.schemas.registry_reader import FoundSchema, UnreadableSchema
from ottla.spark.schemas.rows import DecodedRows, rows_as_column

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_TYPES: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    # Spark has no type for it: as a decimal of 20 digits.
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_INDEX_BYTES_MAX: Final = 10
_NESTING_MAX: Final = 100


def message_descriptor(found: FoundSchema, message: str | None) -> Descriptor:
    """The message of a file that is called so, or its first.  Raises `UnreadableSchema`."""
    try:
        files = descriptors(found.text, found.referenced)
        pool = pool_of(files)
    except RegistryError as error:
        raise UnreadableSchema(str(error)) from None
    if message is not None:
        try:
            return pool.FindMessageTypeByName(message)
        except KeyError:
            raise UnreadableSchema(f"the Protobuf schema has no message {message}") from None
    own = pool.FindFileByName(files[-1].name)
    if not files[-1].message_type:
        raise UnreadableSchema("the Protobuf schema has no message")
    return own.message_types_by_name[files[-1].message_type[0].name]


class ProtobufDecoder:
    """Messages of a writer's file, in the columns of the reader's message.

    Which message of the file it is stands before it in each record.
    """

    def __init__(self, writer: FoundSchema, reader: Descriptor) -> None:
        self.type = message_type(reader, ())
        try:
            files = descriptors(writer.text, writer.referenced)
            self._file = pool_of(files).FindFileByName(files[-1].name)
        except RegistryError as error:
            raise UnreadableSchema(str(error)) from None
        self._reader = reader
        self._classes: dict[tuple[int, ...], Any] = {}

    def decode(self, data: Octets, starts: Ints, ends: Ints) -> DecodedRows:
        payloads = [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
        return rows_as_column(payloads, self._row, self.type, self.type)

    def _row(self, payload: bytes) -> object:
        path, begin = _message_path(payload)
        found = self._classes.get(path)
        if found is None:
            found = self._classes[path] = GetMessageClass(self._reader_for(path))
        message = found()
        message.ParseFromString(payload[begin:])
        return _value_of(message, self._reader)

    def _reader_for(self, path: tuple[int, ...]) -> Descriptor:
        """The reader's message, for records of the message that has its name; fields go by their numbers."""
        named = list(self._file.message_types_by_name.values())
        found: Descriptor | None = None
        for index in path:
            if index >= len(named):
                raise ValueError(f"the schema has no message {list(path)}")
            found = named[index]
            named = list(found.nested_types)
        assert found is not None
        if found.full_name != self._reader.full_name:
            raise ValueError(f"a {found.full_name}, and {self._reader.full_name} is read")
        return self._reader


def _message_path(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The indices of the message in its file, and where it begins.  A single 0 stands for the first message."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _NESTING_MAX:
        raise ValueError(f"a path of {count} messages")
    path = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        if index < 0:
            raise ValueError(f"a message of the index {index}")
        path.append(index)
    return tuple(path), at


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    for position in range(at, min(at + _INDEX_BYTES_MAX, len(payload))):
        byte = payload[position]
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position + 1
        shift += 7
    raise ValueError("it ends before the message's index does")


def message_type(descriptor: Descriptor, inside: tuple[str, ...]) -> pa.DataType:
    """Raises `UnreadableSchema` for a message that has itself inside."""
    if descriptor.full_name in inside:
        raise UnreadableSchema(f"the message {descriptor.full_name} refers to itself, and columns cannot")
    within = (*inside, descriptor.full_name)
    return pa.struct([pa.field(field.name, _field_type(field, within)) for field in descriptor.fields])


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields
        return pa.map_(_single_type(key, inside), _single_type(value, inside))
    single = _single_type(field, inside)
    return pa.list_(single) if field.is_repeated else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        return message_type(field.message_type, inside)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    return _TYPES[field.cpp_type]


def _value_of(message: Any, descriptor: Descriptor) -> dict[str, object]:
    return {field.name: _field_value(message, field) for field in descriptor.fields}


def _field_value(message: Any, field: FieldDescriptor) -> object:
    found = getattr(message, field.name)
    if _is_map(field):
        value = _single(field.message_type.fields[1])
        return [(key, value(found[key])) for key in found]
    single = _single(field)
    if field.is_repeated:
        return [single(each) for each in found]
    # A field with presence is null when it is not there; others have their default.
    return single(found) if not field.has_presence or message.HasField(field.name) else None


def _single(field: FieldDescriptor) -> Callable[[Any], object]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        numbers = field.enum_type.values_by_number
        return lambda value: numbers[value].name if value in numbers else str(value)
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return lambda value: value
    if field.message_type.full_name == _TIMESTAMP:
        return lambda value: value.seconds * 1_000_000 + value.nanos // 1_000
    inner = field.message_type
    return lambda value: _value_of(value, inner)


def _is_map(field: FieldDescriptor) -> bool:
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    return bool(is_message and field.is_repeated and field.message_type.GetOptions().map_entry)
