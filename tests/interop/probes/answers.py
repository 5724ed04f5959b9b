"""Answers as flat tables, and how two of them differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from ottla.protocol.schema import ZERO_UUID

Flat = dict[str, object]
"""Maps the path of a value, such as `topics[0].error_code`, to the value."""

ABSENT: Final = "(no such field)"
# Two brokers never give the same ids: compared is whether the same id comes back.
_RANDOM_NUMBERS: Final = frozenset({"producer_id", "session_id"})
_RANDOM_TEXTS: Final = frozenset({"cluster_id"})
# Lists of integers without a defined order.
_INDEXES: Final = frozenset({"partitions"})
# Two brokers have no clock in common: compared is whether there is a time.
_TIMES: Final = frozenset({"transaction_start_time_ms", "transaction_start_time", "last_timestamp"})
# Messages for people: compared is only whether there is one.
_WORDS: Final = frozenset({"error_message", "documentation", "batch_index_error_message"})
# Lists without a defined order: an element's key is the first of these fields that is not empty.
_KEYS: Final = {
    "api_keys": ("api_key",),
    "configs": ("name",),
    "finalized_features": ("name",),
    "groups": ("group_id",),
    "members": ("member_id",),
    "partitions": ("partition_index",),
    "responses": ("topic", "topic_id", "name"),
    "results_by_partition": ("partition_index",),
    "results_by_topic_v3_and_below": ("name",),
    "results_by_transaction": ("transactional_id",),
    "transaction_states": ("transactional_id",),
    "supported_features": ("name",),
    "topic_partitions": ("topic_name",),
    "topic_results": ("name",),
}
_GENERATED: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[\w-]{22}(?=$)")


class Names:
    """Replaces random values of a broker by the name of their first appearance in the script."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._given: dict[object, str] = {}

    def of(self, value: object) -> str:
        return self._given.setdefault(value, f"#{len(self._given) + 1}")

    def plain(self, field: str, value: object) -> object:
        if field == "port" and value == self._port:
            return "its own port"
        if field in _WORDS:
            return "words" if value else value
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, timedelta):
            return value // timedelta(milliseconds=1)
        if field in _TIMES and value != -1:
            return "a time"
        if isinstance(value, UUID):
            return value if value == ZERO_UUID else self.of(value)
        if field in _RANDOM_NUMBERS and isinstance(value, int) and value > 0:
            return self.of((field, value))
        if field in _RANDOM_TEXTS and value is not None:
            return self.of(value)
        if isinstance(value, str):
            return _GENERATED.sub(lambda found: self.of(found[0]), value)
        return value


def flatten(answer: object, names: Names) -> Flat:
    return dict(_walk(answer, "", "", names))


def _walk(value: object, path: str, field: str, names: Names) -> Iterator[tuple[str, object]]:
    if is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _walk(getattr(value, each.name), f"{path}.{each.name}".lstrip("."), each.name, names)
    elif isinstance(value, list | tuple):
        if field in _INDEXES and all(isinstance(each, int) for each in value):
            value = sorted(value)
        yield f"{path}.count", len(value)
        for index, element in enumerate(value):
            keys = [key for name in _KEYS.get(field, ()) if (key := getattr(element, name, "")) not in ("", ZERO_UUID)]
            place = names.plain("", keys[0]) if keys else index
            yield from _walk(element, f"{path}[{place}]", field, names)
    elif isinstance(value, bytes | bytearray | memoryview):
        yield path, bytes(value).hex()
    else:
        yield path, names.plain(field, value)


class Difference(NamedTuple):
    label: str
    field: str
    ottla: object
    apache_kafka: object

    def __str__(self) -> str:
        return f"{self.label} | {self.field} | Ottla {self.ottla!r}, Apache Kafka {self.apache_kafka!r}"


def differences(ottla: Mapping[str, Flat], apache_kafka: Mapping[str, Flat]) -> list[Difference]:
    found: list[Difference] = []
    for label in {**apache_kafka, **ottla}:
        ours, theirs = ottla.get(label, {}), apache_kafka.get(label, {})
        for field in {**theirs, **ours}:
            pair = ours.get(field, ABSENT), theirs.get(field, ABSENT)
            if pair[0] != pair[1]:
                found.append(Difference(label, field, *pair))
    return found
