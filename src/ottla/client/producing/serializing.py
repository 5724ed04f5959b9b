"""A user's values as bytes: what cannot be sent is refused before anything is taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Set, ValuesView
from typing import Any, Final, TypeAlias

from ottla.client.producing.errors import MessageRefused
from ottla.records.record import INT64_LIMIT, Headers

Serializer: TypeAlias = Callable[[Any], bytes | None]
Partitioner: TypeAlias = Callable[[bytes, int], int]

# What is a set of messages, and no message.  Other iterables may well be values of a serializer.
_SETS: Final = (list, tuple, deque, Iterator, Set, KeysView, ValuesView)


def is_set(messages: object) -> bool:
    """Whether it is a set of messages: a list, a tuple (no named one), an iterator, ...; else it is one message."""
    return isinstance(messages, _SETS) and not hasattr(messages, "_fields")


def to_bytes(content: object, serializer: Serializer | None, what: str) -> bytes | None:
    """`content` by the serializer; without one it has to be bytes.  None stays None.  `what`: key or value."""
    if content is None:
        return None
    if serializer is not None:
        try:
            content = serializer(content)
        except Exception as error:
            raise MessageRefused(f"the {what} {_shown(content)} cannot be serialized: {error!r}") from error
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    made = "the serializer gave" if serializer is not None else "it is"
    hint = f"{what}_serializer=str.encode sends text as UTF-8" if isinstance(content, str) else _HINT.format(what)
    raise MessageRefused(f"a {what} is bytes or None, {made} {type(content).__name__}", hint=hint)


def to_headers(headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None) -> Headers:
    """As records have them; a mapping's items, or pairs of which a name may occur twice."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    made: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise MessageRefused(f"a header is a pair of name and content, not {_shown(pair)}")
        name, content = pair
        if not isinstance(name, str):
            raise MessageRefused(f"the name of a header is a str, not {type(name).__name__}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise MessageRefused(f"the header's name {name!r} is no Unicode text: {error.reason}") from None
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            raise MessageRefused(f"the content of header {name!r} is bytes or None, not {type(content).__name__}")
        made.append((name, None if content is None else bytes(content)))
    return tuple(made)


def check_timestamp(timestamp_ms: object) -> int:
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < INT64_LIMIT:
        raise MessageRefused(
            f"timestamp_ms {_shown(timestamp_ms)} is no time", hint="it is an int: milliseconds since 1970"
        )
    return timestamp_ms


_HINT: Final = "give the producer a {}_serializer: a callable that makes bytes of it"
_SHOWN_MAX: Final = 80


def _shown(content: object) -> str:
    text = repr(content)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
