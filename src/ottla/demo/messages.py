"""The tasks and messages of the demo's processes: one JSON line each."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from ottla.demo.counts import Rows
from ottla.demo.minutes import MinuteRow

# Tasks: the argument of a process.


@dataclass(frozen=True, slots=True)
class Produce:
    """`place` is this service's slot in the file `steps_path`, by which the services stay in step."""

    bootstrap: str
    service: str
    events_count: int
    seed: int
    day_start_ms: int
    steps_path: str
    place: int


@dataclass(frozen=True, slots=True)
class Watch:
    bootstrap: str


@dataclass(frozen=True, slots=True)
class ReadStored:
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Load:
    """Into the tables `events` and `malformed` below `lake`."""

    bootstrap: str
    lake: str
    scratch: str


@dataclass(frozen=True, slots=True)
class CountLake:
    lake: str
    drop_one: bool


Task: TypeAlias = Produce | Watch | ReadStored | Load | CountLake

# Messages of a process about itself.  Moments are milliseconds of the machine's monotonic clock.


@dataclass(frozen=True, slots=True)
class Producing:
    sent_count: int
    acknowledged_count: int


@dataclass(frozen=True, slots=True)
class Produced:
    sent_count: int
    acknowledged: Rows
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Watched:
    """`latest_ms` is when the last event so far was seen."""

    events_count: int
    late_count: int
    malformed_count: int
    minutes: list[MinuteRow]
    latest_ms: int


@dataclass(frozen=True, slots=True)
class Reading:
    events_count: int


@dataclass(frozen=True, slots=True)
class Stored:
    counts: Rows
    took_ms: int


@dataclass(frozen=True, slots=True)
class Loading:
    stage: str


@dataclass(frozen=True, slots=True)
class Loaded:
    rows_count: int
    files_count: int
    malformed_count: int
    session_ms: int
    took_ms: int
    spark_version: str


@dataclass(frozen=True, slots=True)
class LakeCounted:
    counts: Rows
    duplicates_count: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not do its task, for a known reason."""

    reason: str


Message: TypeAlias = Producing | Produced | Watched | Reading | Stored | Loading | Loaded | LakeCounted | Failed
_KINDS: Final = {kind.__name__: kind for kind in Message.__args__}


def to_line(message: Message) -> bytes:
    return json.dumps([type(message).__name__, asdict(message)]).encode() + b"\n"


def from_line(line: bytes) -> Message:
    kind, facts = json.loads(line)
    message: Message = _KINDS[kind](**facts)
    return message


def send_message(message: Message) -> None:
    """Send it to the parent process.  Raises `BrokenPipeError` when the parent has ended: then this one ends too."""
    sys.stdout.buffer.write(to_line(message))
    sys.stdout.buffer.flush()
