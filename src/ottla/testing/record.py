"""A record as tests write it: to produce it, or to expect it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ottla.client.fetching.messages import Message
from ottla.records.record import Headers


class _Anything:
    """Equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "ANY"


ANY: Final[Any] = _Anything()

HeadersLike: TypeAlias = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
Deserializer: TypeAlias = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Record:
    """Omitted fields may be anything; when it is produced, they have their default (no key, the time of the moment).

        Record("paid", key="order-7")
        Record(ANY, headers={"trace": b"1"}, partition=2)

    A `str` is its UTF-8, unless a deserializer gives strings; a value of None is a null (a tombstone).
    """

    value: Any = ANY
    key: Any = ANY
    headers: Any = ANY
    partition: Any = ANY
    timestamp_ms: Any = ANY

    def __repr__(self) -> str:
        given = (f"{name}={found!r}" for name in self.__slots__ if (found := getattr(self, name)) is not ANY)
        return f"Record({', '.join(given)})"


# A record, the key and the value of one, or its value alone.
RecordLike: TypeAlias = Record | tuple[Any, Any] | Any


class Undecodable:
    """The bytes of a key or a value that its deserializer refused; they equal nothing."""

    def __init__(self, data: bytes, error: Exception) -> None:
        self._data = data
        self._error = error

    def __repr__(self) -> str:
        return f"{self._data!r} ({type(self._error).__name__}: {self._error})"


def record_of(like: RecordLike) -> Record:
    """`like` as a record, with headers in the form of a message's."""
    if isinstance(like, Record):
        if like.headers is ANY:
            return like
        return Record(like.value, like.key, headers_of(like.headers), like.partition, like.timestamp_ms)
    if isinstance(like, tuple):
        if len(like) != 2:
            raise ValueError(f"a record is its value, (key, value) or a Record, and not {like!r}")
        return Record(like[1], like[0])
    return Record(like)


def headers_of(headers: HeadersLike) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, bytes_of(content)) for name, content in pairs)


def bytes_of(content: bytes | str | None) -> bytes | None:
    """Raises `TypeError` for a value that is neither bytes nor text."""
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    raise TypeError(f"{content!r} is a {type(content).__name__}, and a record has bytes: json.dumps(...), for example")


def encoded(record: Record, *, key: bool, value: bool) -> Record:
    """With the bytes of a key or a value that is text, where messages have bytes."""
    return Record(
        record.value.encode() if value and isinstance(record.value, str) else record.value,
        record.key.encode() if key and isinstance(record.key, str) else record.key,
        record.headers,
        record.partition,
        record.timestamp_ms,
    )


def is_such(record: Record, message: Message[Any, Any]) -> bool:
    """Whether the message matches the record.  The expected value is on the left: `pytest.approx` works there."""
    return (
        _equals(record.value, message.value)
        and _equals(record.key, message.key)
        and _equals(record.headers, message.headers)
        and _equals(record.partition, message.partition)
        and _equals(record.timestamp_ms, message.timestamp_ms)
    )


def _equals(expected: object, found: object) -> bool:
    return not isinstance(found, Undecodable) and bool(expected == found)


def deserialized(deserializer: Deserializer | None, data: bytes | None) -> Any:
    """None stays None."""
    if deserializer is None or data is None:
        return data
    try:
        return deserializer(data)
    except Exception as error:  # noqa: BLE001 (a user's callable; the difference shows it)
        return Undecodable(data, error)
