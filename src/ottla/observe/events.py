"""Log events: a line each, with the event's name and its facts.

    log = logging.getLogger(__name__)
    log.info("segment.rolled", extra=fields(partition=partition, base_offset=base, size_bytes=size))

becomes

    2026-03-01T11:05:37.123Z INFO segment.rolled partition=orders-3 base_offset=71 size_bytes=1048

Names are `noun.verb-past`.  INFO is a change of role or durability, DEBUG one request; a record is never logged.  Facts
may come from peers: they are escaped and truncated (text.py), so no peer can forge a line or move a terminal's cursor.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, NamedTuple, TextIO

from ottla.observe.text import safe_line, safe_value

LEVEL_NAMES: Final = ("debug", "info", "warning", "error")
DEFAULT_LEVEL: Final = "info"

_FACTS: Final = "ottla_facts"
_EVENT: Final = "ottla_event"
_IS_FREQUENT: Final = "ottla_is_frequent"
FREQUENT_EVERY_S: Final = 1.0
# Of syslog, as sd-daemon(3) marks lines: err, warning, info, debug.
ERROR_MARK: Final = "<3>"
_MARKS: Final = ((logging.ERROR, ERROR_MARK), (logging.WARNING, "<4>"), (logging.INFO, "<6>"), (0, "<7>"))
_EVENT_NAME: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_-]+)+\Z", re.ASCII)


class MultilineFact(NamedTuple):
    """A fact of several lines: written below its event, each line marked so that none looks like an event."""

    lines: tuple[str, ...]


def fields(**facts: object) -> dict[str, object]:
    """The facts of an event, for `extra=`."""
    return {_FACTS: facts}


def named(event: str, **facts: object) -> dict[str, object]:
    """The name and the facts of an event whose message is a sentence, for `extra=`: of a client, whose program may have
    another formatter.
    """
    return {_EVENT: event, _FACTS: facts}


def frequent(**facts: object) -> dict[str, object]:
    """The facts of an event that a peer can cause as often as it likes, for `extra=`: see `FrequentEvents`."""
    return {_FACTS: facts, _IS_FREQUENT: True}


class FrequentEvents(logging.Filter):
    """Passes one `frequent` event of each name in a second, with the count of those left out since the one before.

    So a client that floods a broker does not fill its disk with the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_s: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(record, _IS_FREQUENT, False):
            return True
        name = record.getMessage()
        # Wall time may jump back: then the next event passes.
        if 0 <= record.created - self._passed_s.get(name, -math.inf) < FREQUENT_EVERY_S:
            self._left_out[name] += 1
            return False
        self._passed_s[name] = record.created
        if left_out_count := self._left_out.pop(name, 0):
            facts = {**getattr(record, _FACTS), "left_out_count": left_out_count}
            setattr(record, _FACTS, facts)
        return True


def line_of(name: str, facts: Mapping[str, object]) -> str:
    """An event as text, without time and level."""
    return " ".join(
        [name, *(f"{key}={safe_value(fact)}" for key, fact in facts.items() if not isinstance(fact, MultilineFact))]
    )


class EventFormatter(logging.Formatter):
    """Formats our events, and those of libraries, as lines of one form.

    `own_facts` are at the end of each event: which of several processes wrote it to their log.
    """

    def __init__(self, own_facts: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__()
        self._own_text = "".join(f" {key}={safe_value(fact)}" for key, fact in own_facts.items())

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(self._lines(record, f"{_time_text(record)} {record.levelname}"))

    def _lines(self, record: logging.LogRecord, head: str) -> list[str]:
        facts = getattr(record, _FACTS, {})
        lines = [f"{head} {_event_text(record, facts)}{self._own_text}"]
        for fact in facts.values():
            if isinstance(fact, MultilineFact):
                lines += _marked(fact.lines)
        if record.exc_info is not None and record.exc_info[1] is not None:
            lines += _marked("".join(traceback.format_exception(record.exc_info[1])).splitlines())
        return lines


class JournalFormatter(EventFormatter):
    """For systemd's journal, which adds the time: each line with its priority."""

    def format(self, record: logging.LogRecord) -> str:
        mark = next(mark for level, mark in _MARKS if record.levelno >= level)
        return "\n".join(f"{mark}{line}" for line in self._lines(record, record.levelname))


def start_logging(
    level: str = DEFAULT_LEVEL,
    stream: TextIO | None = None,
    own_facts: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Send events of this level and above to `stream` (standard error).  Called once, by the program's entry.

    `own_facts`: see `EventFormatter`.
    """
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JournalFormatter(own_facts) if is_journal(stream) else EventFormatter(own_facts))
    handler.addFilter(FrequentEvents())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their INFO concerns themselves; a warning concerns us.
    for library in ("asyncio", "kazoo", "py4j"):
        logging.getLogger(library).setLevel(logging.WARNING)


def is_journal(stream: TextIO) -> bool:
    """systemd.exec(5): the variable names the device and inode of what it connected; a redirected stream is another."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _time_text(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _event_text(record: logging.LogRecord, facts: Mapping[str, object]) -> str:
    event = getattr(record, _EVENT, None) or record.getMessage()
    if _EVENT_NAME.match(event) is not None:
        return line_of(event, facts)
    # A library's message: its logger is the noun.
    return line_of(f"{record.name.split('.', 1)[0]}.said", {"text": event})


def _marked(lines: Iterable[str]) -> list[str]:
    return [f"    | {safe_line(line)}" for line in lines]
