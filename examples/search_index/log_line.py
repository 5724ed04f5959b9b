"""One line of a log, as the services send it: a JSON object with time, level, service and message."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = ("time", "level", "service", "message")


class LogLine(NamedTuple):
    """`at_ms` is the line's own time, in ms since 1970; `level` has capitals."""

    at_ms: int
    level: str
    service: str
    message: str


def log_line_of(value: bytes | None) -> LogLine:
    """`{"time": "2011-06-12T09:00:00Z", "level": "ERROR", "service": "cart", "message": "no answer"}`.

    A time without a zone is UTC; other fields do not matter.  Raises ValueError for anything else.
    """
    if value is None:
        raise ValueError("the record has no value")
    fields = json.loads(value)
    if not isinstance(fields, dict):
        raise ValueError(f"a log line is a JSON object, not {type(fields).__name__}")
    for name in _FIELDS:
        if not isinstance(fields.get(name), str):
            raise ValueError(f"a log line has the text {name!r}, and this one has {fields.get(name)!r}")
    at, level, service, message = (fields[name] for name in _FIELDS)
    # JSON can name halves of characters, which are no text: this raises UnicodeEncodeError, a ValueError.
    f"{level}{service}{message}".encode()
    return LogLine(moment_ms(at), level.upper(), service, message)


def moment_ms(text: str) -> int:
    """ISO 8601 as ms since 1970.  Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def moment_text(at_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
