"""Requests written by kio, which has the messages of Apache Kafka: also those that Ottla does not read."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Mapping
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass
from datetime import timedelta
from functools import cache
from types import GenericAlias, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from kio.index import load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i64

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")
_HEAD: Final = struct.Struct(">ihhih")
_CLIENT_ID: Final = b"probe"


class KafkaRequest:
    """One for all versions: fields that a version lacks are left out, and those not given have Kafka's defaults.

    Structures are given as mappings, times as milliseconds by kio's names (`timeout`).
    """

    def __init__(self, api: str, **given: object) -> None:
        self._name = _WORD.sub("_", api).lower()
        self._given = given

    def frame(self, version: int) -> bytes:
        """With its length and header."""
        schema: Any = load_entity_schema(self._name, version, EntityType.request)
        body = io.BytesIO()
        entity_writer(schema)(body, _built(schema, self._given))
        end_of_header = b"\x00" if schema.__flexible__ else b""
        rest = _CLIENT_ID + end_of_header + body.getvalue()
        size_bytes = _HEAD.size - 4 + len(rest)
        return _HEAD.pack(size_bytes, schema.__api_key__, version, 1, len(_CLIENT_ID)) + rest

    def read_answer(self, version: int, frame: bytes) -> object:
        """The response in a frame without its length prefix."""
        schema = _with_numbers_for_times(load_entity_schema(self._name, version, EntityType.response))
        # The correlation id; flexible headers have the count of their tagged fields, of which there are none.
        position = 5 if schema.__flexible__ else 4
        answer, size_bytes = entity_reader(schema)(frame, position)
        assert position + size_bytes == len(frame), "bytes are left unread"
        return answer


@cache
def _with_numbers_for_times(schema: Any) -> Any:
    """The same structure with its times as they are on the wire: kio refuses to read that there is none, -1."""
    kinds = get_type_hints(schema)
    replaced: list[tuple[str, Any, Any]] = []
    is_same = True
    for each in fields(schema):
        kind, metadata, default = kinds[each.name], dict(each.metadata), each.default
        inner: Any = next((part for part in (kind, *get_args(kind)) if is_dataclass(part)), None)
        if metadata.get("kafka_type") == "datetime_i64":
            kind, metadata["kafka_type"], default, is_same = i64, "int64", MISSING, False
        elif inner is not None and (plain := _with_numbers_for_times(inner)) is not inner:
            kind, is_same = GenericAlias(tuple, (plain, ...)), False
        declared: Any = field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)
        replaced.append((each.name, kind, declared))
    if is_same:
        return schema
    constants = {name: getattr(schema, name) for name in ("__type__", "__version__", "__flexible__", "__api_key__")}
    return make_dataclass(schema.__name__, replaced, namespace=constants, frozen=True, kw_only=True)


def _built(schema: Any, given: Mapping[str, object]) -> object:
    kinds = get_type_hints(schema)
    values = {
        each.name: _value(kinds[each.name], each.metadata.get("kafka_type"), given[each.name])
        for each in fields(schema)
        if each.name in given
    }
    return schema(**values)


def _value(kind: Any, wire_type: str | None, given: Any) -> object:
    if get_origin(kind) in (Union, UnionType) and given is not None:
        kind = next(each for each in get_args(kind) if each is not type(None))
    if isinstance(given, list | tuple):
        (element, _) = get_args(kind)
        return tuple(_value(element, wire_type, each) for each in given)
    if is_dataclass(kind) and isinstance(given, Mapping):
        return _built(kind, given)
    if wire_type is not None and wire_type.startswith("timedelta"):
        return timedelta(milliseconds=given)
    return given
