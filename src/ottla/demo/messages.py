"""The tasks and messages of the demo's processes: one JSON line each."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

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
class RunJobs:
    """Into tables below `lake`; `views_per_batch` are a micro-batch of the top pages, `drop_one` loses a record."""

    bootstrap: str
    lake: str
    checkpoints: str
    scratch: str
    day_start_ms: int
    views_per_batch: int
    drop_one: bool


@dataclass(frozen=True, slots=True)
class Check:
    """`events_counts` by service: the events are those that were sent."""

    bootstrap: str
    lake: str
    events_counts: dict[str, int]
    seed: int
    day_start_ms: int


Task: TypeAlias = Produce | Watch | RunJobs | Check

# Messages of a process about itself.  Moments are milliseconds of the machine's monotonic clock.


@dataclass(frozen=True, slots=True)
class Producing:
    sent_count: int
    acknowledged_count: int


@dataclass(frozen=True, slots=True)
class Produced:
    sent_count: int
    acknowledged_count: int
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
class Running:
    """A stage of the jobs begins."""

    stage: str
    began_ms: int


@dataclass(frozen=True, slots=True)
class Loaded:
    rows_count: int
    files_count: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """`well_formed_count`: the events that were not set aside."""

    well_formed_count: int


@dataclass(frozen=True, slots=True)
class Audited:
    """`lines` are the results of the audit's job; `duplicates` and `complete_hours` (their starts) are by topic."""

    lines: list[str]
    duplicates: dict[str, int]
    complete_hours: dict[str, list[int]]
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Checked:
    """What the jobs have found, and `problems`: where it is not what was sent."""

    problems: list[str]
    letters: dict[str, int]
    replayable_count: int
    letter: str
    sessions_count: int
    longest_views: int
    longest_ms: int
    windows_count: int
    busiest_ms: int
    busiest_pages: list[tuple[str, int]]
    late_count: int


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not do its task, for a known reason."""

    reason: str


Message: TypeAlias = Producing | Produced | Watched | Running | Loaded | SetAside | Audited | Checked | Failed
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
