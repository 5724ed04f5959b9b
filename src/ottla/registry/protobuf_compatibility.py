"""Whether a Protobuf file reads what another one writes, by the documented rules of Confluent's registry.

On the wire a field is its number and its kind: names do not matter, and kinds that are written alike may replace each
other (int32, int64, uint32, uint64, bool and enums; string and bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

_F: Final = FieldDescriptorProto
_MESSAGE: Final = "message"
_GROUP: Final = "group"
_MAP: Final = "map"
_STRING: Final = "string"
_WIRE_KINDS: Final[Mapping[int, str]] = {
    **dict.fromkeys(
        (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM), "number"
    ),
    **dict.fromkeys((_F.TYPE_SINT32, _F.TYPE_SINT64), "signed number"),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES), _STRING),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64), "fixed64"),
    _F.TYPE_FLOAT: "float",
    _F.TYPE_DOUBLE: "double",
    _F.TYPE_GROUP: _GROUP,
    _F.TYPE_MESSAGE: _MESSAGE,
}
_COMPOSITE: Final = frozenset({_MESSAGE, _GROUP, _MAP})


def protobuf_problems(reader: Sequence[FileDescriptorProto], writer: Sequence[FileDescriptorProto]) -> list[str]:
    """Why `reader` cannot read what `writer` writes; each file after its imports, the compared ones are the last."""
    comparison = _Comparison(_types(writer), _types(reader))
    problems = comparison.files(writer[-1], reader[-1])
    return list(dict.fromkeys(problems))


class _Type(NamedTuple):
    """`name` is the one within its package."""

    name: str
    message: DescriptorProto | None


def _types(files: Iterable[FileDescriptorProto]) -> Mapping[str, _Type]:
    """By the full names that fields have."""
    found: dict[str, _Type] = {}

    def add(prefix: str, local: str, messages: Iterable[DescriptorProto], enums: Iterable[EnumDescriptorProto]) -> None:
        for enum in enums:
            found[f"{prefix}.{enum.name}"] = _Type(f"{local}{enum.name}", None)
        for message in messages:
            name = f"{local}{message.name}"
            found[f"{prefix}.{message.name}"] = _Type(name, message)
            add(f"{prefix}.{message.name}", f"{name}.", message.nested_type, message.enum_type)

    for file in files:
        add(f".{file.package}" if file.package else "", "", file.message_type, file.enum_type)
    return found


@dataclass
class _Comparison:
    writers: Mapping[str, _Type]
    readers: Mapping[str, _Type]
    # A pair that is compared, or was: types refer to each other in circles.
    _done: set[tuple[str, str]] = field(default_factory=set)

    def files(self, writer: FileDescriptorProto, reader: FileDescriptorProto) -> Iterator[str]:
        if writer.package != reader.package:
            # Every message has another name then.
            yield f"PACKAGE_CHANGED from '{writer.package}' to '{reader.package}'"
            return
        prefix = f".{writer.package}" if writer.package else ""
        yield from self._messages(writer.message_type, reader.message_type, prefix)

    def _messages(
        self, writer: Iterable[DescriptorProto], reader: Iterable[DescriptorProto], prefix: str
    ) -> Iterator[str]:
        known = {message.name: message for message in reader}
        for message in writer:
            if message.options.map_entry:
                continue
            name = f"{prefix}.{message.name}"
            if message.name not in known:
                yield f"MESSAGE_REMOVED {name[1:]}"
                continue
            yield from self._message(message, known[message.name], name, name)

    def _message(self, writer: DescriptorProto, reader: DescriptorProto, was_name: str, now_name: str) -> Iterator[str]:
        if (was_name, now_name) in self._done:
            return
        self._done.add((was_name, now_name))
        before, after = _Fields(writer), _Fields(reader)
        name = was_name[1:]
        yield from _oneofs(before, after, name)
        for number in sorted(before.by_number.keys() | after.by_number.keys()):
            was, now = before.by_number.get(number), after.by_number.get(number)
            if now is None:
                assert was is not None
                if before.oneof.get(number) in before.oneofs_lost_by(after):
                    yield f"ONEOF_FIELD_REMOVED {name}.{was.name}"
                elif _is_required(was):
                    yield f"REQUIRED_FIELD_REMOVED {name}.{was.name}"
            elif was is None:
                if _is_required(now):
                    yield f"REQUIRED_FIELD_ADDED {name}.{now.name}"
            else:
                yield from self._field(was, now, f"{name}.{was.name}")
        yield from self._messages(writer.nested_type, reader.nested_type, was_name)

    def _field(self, was: FieldDescriptorProto, now: FieldDescriptorProto, name: str) -> Iterator[str]:
        was_kind, now_kind = _kind(was, self.writers), _kind(now, self.readers)
        if was_kind != now_kind:
            is_composite = was_kind in _COMPOSITE or now_kind in _COMPOSITE
            rule = "FIELD_KIND_CHANGED" if is_composite else "FIELD_SCALAR_KIND_CHANGED"
            yield f"{rule} {name}: {was_kind} to {now_kind}"
        elif was_kind == _MAP:
            was_entry, now_entry = _type(was, self.writers).message, _type(now, self.readers).message
            assert was_entry is not None
            assert now_entry is not None
            # Key and value.
            for part, other in zip(was_entry.field, now_entry.field, strict=False):
                yield from self._field(part, other, f"{name}.{part.name}")
        elif was_kind in _COMPOSITE:
            yield from self._named(was, now, name)
        elif was_kind != _STRING and _label(was) != _label(now):
            # Of numbers one or several are written differently, and a reader that requires one refuses none.
            yield f"FIELD_NUMERIC_LABEL_CHANGED {name}: {_label(was)} to {_label(now)}"

    def _named(self, was: FieldDescriptorProto, now: FieldDescriptorProto, name: str) -> Iterator[str]:
        was_type, now_type = _type(was, self.writers), _type(now, self.readers)
        if was_type.name != now_type.name:
            yield f"FIELD_NAMED_TYPE_CHANGED {name}: {was_type.name} to {now_type.name}"
            return
        if was_type.message is not None and now_type.message is not None:
            yield from self._message(was_type.message, now_type.message, was.type_name, now.type_name)


class _Fields:
    """Of a message: those in a oneof are its fields, too."""

    def __init__(self, message: DescriptorProto) -> None:
        self.by_number = {each.number: each for each in message.field}
        # The optional fields of proto3 are each in a oneof that no text has.
        self.oneof = {
            each.number: message.oneof_decl[each.oneof_index].name
            for each in message.field
            if each.HasField("oneof_index") and not each.proto3_optional
        }

    def members(self) -> Mapping[str, set[int]]:
        found: dict[str, set[int]] = {}
        for number, oneof in self.oneof.items():
            found.setdefault(oneof, set()).add(number)
        return found

    def oneofs_lost_by(self, after: _Fields) -> set[str]:
        """Those of which some fields are left, or the oneof itself: the loss of others is one of data.

        A oneof that was removed with all its fields is like a field that was removed.
        """
        kept = after.members()
        return {name for name, numbers in self.members().items() if name in kept or numbers & after.by_number.keys()}


def _oneofs(before: _Fields, after: _Fields, name: str) -> Iterator[str]:
    """Fields that exclude each other now, and did not before."""
    for oneof, numbers in after.members().items():
        existing = numbers & before.by_number.keys()
        from_outside = [number for number in existing if number not in before.oneof]
        groups = len(from_outside) + len({before.oneof[number] for number in existing if number in before.oneof})
        if groups > 1:
            is_several = len(from_outside) > 1
            rule = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if is_several else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield f"{rule} {name}.{oneof}"


def _type(found: FieldDescriptorProto, types: Mapping[str, _Type]) -> _Type:
    """Descriptors that clients made may name types otherwise than compilers do: those are compared by name alone."""
    return types.get(found.type_name) or _Type(found.type_name, None)


def _kind(found: FieldDescriptorProto, types: Mapping[str, _Type]) -> str:
    if found.type == _F.TYPE_MESSAGE:
        message = _type(found, types).message
        if message is not None and message.options.map_entry:
            return _MAP
    return _WIRE_KINDS.get(found.type, "unknown")


def _is_required(found: FieldDescriptorProto) -> bool:
    if found.label == _F.LABEL_REQUIRED:
        return True
    return bool(found.options.features.field_presence == FeatureSet.LEGACY_REQUIRED)


def _label(found: FieldDescriptorProto) -> str:
    if _is_required(found):
        return "required"
    return "repeated" if found.label == _F.LABEL_REPEATED else "singular"
