"""Log events: a line each, the name of what happened and its facts.

    log = logging.getLogger(__name__)
    log.info("segment.rolled", extra=fields(partition=partition, base_offset=base, size_bytes=size))

becomes

    2026-03-01T11:05:37.123Z INFO segment.rolled partition=orders-3 base_offset=71 size_bytes=1048

Names are `noun.verb-past`.  INFO is a change of role or durability, DEBUG one request; a record is never logged.
Facts may come from peers: they are escaped and cut (text.py), so nobody forges a line or moves a terminal's cursor.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from ottla.observe.text import safe_line, safe_value

LEVEL_NAMES: Final = ("debug", "info", "warning", "error")
DEFAULT_LEVEL: Final = "info"

_FACTS: Final = "ottla_facts"
_EVENT_NAME: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_-]+)+\Z", re.ASCII)


def fields(**facts: object) -> dict[str, object]:
    """The facts of an event, for `extra=`."""
    return {_FACTS: facts}


def line_of(name: str, facts: Mapping[str, object]) -> str:
    """An event as text, without time and level."""
    return " ".join([name, *(f"{key}={safe_value(value)}" for key, value in facts.items())])


class EventFormatter(logging.Formatter):
    """Writes our events, and what libraries log, as lines of one form."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        stamp = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
        lines = [f"{stamp} {record.levelname} {_event_text(record)}"]
        if record.exc_info is not None and record.exc_info[1] is not None:
            lines.extend(_indented(record.exc_info[1]))
        return "\n".join(lines)


def start_logging(level: str = DEFAULT_LEVEL, stream: TextIO | None = None) -> None:
    """Send events of this level and above to `stream` (standard error).  Called once, by the program's entry."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(EventFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their INFO is about themselves; a warning is about us.
    for library in ("asyncio", "kazoo", "py4j"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _event_text(record: logging.LogRecord) -> str:
    facts = getattr(record, _FACTS, None)
    message = record.getMessage()
    if _EVENT_NAME.match(message) is not None:
        return line_of(message, facts if isinstance(facts, Mapping) else {})
    # A sentence from a library: its logger is the noun.
    return line_of(f"{record.name.split('.', 1)[0]}.said", {"text": message})


def _indented(error: BaseException) -> list[str]:
    """A traceback, each line marked, so that none can pass for an event."""
    text = "".join(traceback.format_exception(error))
    return [f"    | {safe_line(line)}" for line in text.splitlines()]
