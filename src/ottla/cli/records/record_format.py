"""`ottla consume --format`: a line for each record, with the placeholders of kcat.

%t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, %h headers, %K and %S the lengths of key and
value (-1 of null), %% a percent sign; \\n, \\r, \\t, \\0, \\\\ and \\xHH.  Null is empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from ottla.model.identifiers import TopicPartition
    from ottla.records.record import Record

_Piece = Callable[["TopicPartition", "Record"], bytes]

_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


def _headers(_partition: TopicPartition, record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (content or b"") for name, content in record.headers)


_PLACEHOLDERS: Final[Mapping[str, _Piece]] = {
    "t": lambda partition, _record: partition.topic.encode(),
    "p": lambda partition, _record: str(partition.partition).encode(),
    "o": lambda _partition, record: str(record.offset).encode(),
    "T": lambda _partition, record: str(record.timestamp_ms).encode(),
    "k": lambda _partition, record: record.key or b"",
    "K": lambda _partition, record: _length(record.key),
    "s": lambda _partition, record: record.value or b"",
    "S": lambda _partition, record: _length(record.value),
    "h": _headers,
}


def record_format(text: str) -> Callable[[TopicPartition, Record], bytes]:
    """What makes the line of a record.  Raises UsageError for what is no placeholder."""
    pieces: list[_Piece] = []
    end = 0
    for found in _TOKEN.finditer(text):
        pieces.append(_constant(text[end : found.start()].encode()))
        pieces.append(_piece(found))
        end = found.end()
    pieces.append(_constant(text[end:].encode()))
    return lambda partition, record: b"".join(piece(partition, record) for piece in pieces)


def _constant(data: bytes) -> _Piece:
    return lambda _partition, _record: data


def _piece(found: re.Match[str]) -> _Piece:
    placeholder, escape = found[1], found[2]
    if placeholder == "%":
        return _constant(b"%")
    if placeholder in _PLACEHOLDERS:
        return _PLACEHOLDERS[placeholder]
    if escape is not None and escape in _ESCAPES:
        return _constant(_ESCAPES[escape])
    if escape is not None and len(escape) == 3:
        return _constant(bytes.fromhex(escape[1:]))
    known = " ".join(f"%{each}" for each in _PLACEHOLDERS)
    raise click.UsageError(f"--format does not know {found[0]!r}; it knows {known} %% and \\n \\r \\t \\0 \\\\ \\xHH.")
