"""Records as text: the lines of Kafka's console tools, and JSON objects; both ways.

A line is `key<separator>value`, with headers before the key when requested.  A JSON object has `key`, `value`
(null or text; bytes that are not UTF-8 as `key_base64`, `value_base64`), `headers`, `timestamp_ms`, `partition`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.model.errors import OttlaError
from ottla.model.nearest import nearest_name

if TYPE_CHECKING:
    from ottla.model.identifiers import TopicPartition
    from ottla.records.record import Headers, Record


# -1 is a record without a time.
TIMESTAMP_MS_MIN: Final = -1
TIMESTAMP_MS_MAX: Final = (1 << 63) - 1
_JSON_NAMES: Final = frozenset(
    {"topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers"}
)


class InputRecord(NamedTuple):
    """The fields of a line of input; None leaves the choice to the producer."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class BadLine(OttlaError):
    """A line of input that is not a record."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The parts of a line and their separators; defaults and names as in Kafka's console tools."""

    has_key: bool = False
    has_headers: bool = False
    has_value: bool = True
    has_timestamp: bool = False
    has_partition: bool = False
    has_offset: bool = False
    has_topic: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    header_key_separator: bytes = b":"
    line_separator: bytes = b"\n"
    null_literal: bytes | None = None


def parse_line(line: bytes, how: LineFormat) -> InputRecord:
    """Raises BadLine when a separator is missing."""
    rest = line
    headers: Headers = ()
    if how.has_headers:
        text, rest = _cut(rest, how.headers_delimiter, "headers")
        headers = tuple(_header(part, how) for part in text.split(how.headers_separator) if part)
    key: bytes | None = None
    if how.has_key:
        key_text, rest = _cut(rest, how.key_separator, "a key")
        key = _or_null(key_text, how)
    return InputRecord(key, _or_null(rest, how), headers)


def format_line(partition: TopicPartition, record: Record, header_is_append_time: bool, how: LineFormat) -> bytes:
    """The line of Kafka's console consumer; absent bytes are `null` there."""
    null = how.null_literal if how.null_literal is not None else b"null"
    parts = []
    if how.has_topic:
        parts.append(f"Topic:{partition.topic}".encode())
    if how.has_timestamp:
        kind = "LogAppendTime" if header_is_append_time else "CreateTime"
        parts.append(f"{kind}:{record.timestamp_ms}".encode())
    if how.has_partition:
        parts.append(f"Partition:{partition.partition}".encode())
    if how.has_offset:
        parts.append(f"Offset:{record.offset}".encode())
    if how.has_headers:
        pairs = (
            name.encode() + how.header_key_separator + (null if value is None else value)
            for name, value in record.headers
        )
        parts.append(how.headers_separator.join(pairs) or b"NO_HEADERS")
    if how.has_key:
        parts.append(null if record.key is None else record.key)
    if how.has_value:
        parts.append(null if record.value is None else record.value)
    return how.key_separator.join(parts) + how.line_separator


def format_json(partition: TopicPartition, record: Record) -> bytes:
    from ottla.cli.log.lines import record_object  # not imported for the help alone

    found: dict[str, object] = {"topic": partition.topic, "partition": partition.partition, **record_object(record)}
    text = json.dumps(found, ensure_ascii=False)
    if not text.isprintable():
        # The same text for a parser; a terminal meets no control (C1), direction mark or lone surrogate.
        text = "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)
    return text.encode() + b"\n"


def parse_json(line: bytes) -> InputRecord:
    """Reads the form of `format_json`: `topic` and `offset` are ignored, other names refused.  Raises BadLine."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadLine("a line must hold a JSON object")
    for name in sorted(found.keys() - _JSON_NAMES):
        # A value with a slip in its name would be no value, which deletes the key's records where logs are compacted.
        nearest = nearest_name(name, _JSON_NAMES)
        raise BadLine(f"no record has {name!r}" + ("" if nearest is None else f"; did you mean {nearest!r}?"))
    headers = found.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str) for row in headers
    ):
        raise BadLine('headers are a list of {"name": ..., "value": ...}')
    timestamp_ms = _int_of(found, "timestamp_ms")
    if timestamp_ms is not None and not TIMESTAMP_MS_MIN <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise BadLine(f"timestamp_ms is {TIMESTAMP_MS_MIN} to {TIMESTAMP_MS_MAX}, not {timestamp_ms}")
    return InputRecord(
        _bytes_of(found, "key"),
        _bytes_of(found, "value"),
        tuple((_sendable(row["name"]), _bytes_of(row, "value")) for row in headers),
        timestamp_ms,
        _int_of(found, "partition"),
    )


def _cut(data: bytes, separator: bytes, what: str) -> tuple[bytes, bytes]:
    before, found, after = data.partition(separator)
    if not found:
        raise BadLine(f"no {separator.decode(errors='backslashreplace')!r} in the line, which must follow {what}")
    return before, after


def _header(part: bytes, how: LineFormat) -> tuple[str, bytes | None]:
    name, value = _cut(part, how.header_key_separator, "a header's name")
    try:
        return name.decode(), _or_null(value, how)
    except UnicodeDecodeError:
        raise BadLine(f"a header's name is not UTF-8: {name!r}") from None


def _sendable(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:  # JSON can escape half of a surrogate pair
        raise BadLine(f"a header's name is not UTF-8: {name!r}") from None
    return name


def _or_null(data: bytes, how: LineFormat) -> bytes | None:
    return None if how.null_literal is not None and data == how.null_literal else data


def _bytes_of(found: Mapping[str, object], name: str) -> bytes | None:
    plain, encoded = found.get(name), found.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str) or plain is not None:
            raise BadLine(f"{name}_base64 is text in base64, and replaces {name}")
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise BadLine(f"{name}_base64 is not base64") from None
    if plain is None:
        return None
    if isinstance(plain, str):
        return plain.encode("utf-8", "surrogatepass")
    return json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _int_of(found: Mapping[str, object], name: str) -> int | None:
    value = found.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise BadLine(f"{name} is a whole number, not {value!r}")
