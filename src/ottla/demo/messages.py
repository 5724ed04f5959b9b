"""The task of the demo's processes and the messages by which they report, and the state of a run as they add up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeAlias

from ottla.audit.comparison import TierLine
from ottla.model.errors import OttlaError

# The minute's name, the count of each topic, the page viewed most.
MinuteRow: TypeAlias = tuple[str, list[int], str]


@dataclass(frozen=True, slots=True)
class Task:
    """One run, as every process sees it.

    `lake` has the tables, `checkpoints` the state of the streams; `scratch` is for temporary files.  `drop_one` loses
    one record of the lake.  `service` is the one that a producing process plays.
    """

    bootstrap: str
    lake: str
    checkpoints: str
    scratch: str
    events_count: int
    seed: int
    day_start_ms: int
    drop_one: bool = False
    service: str = ""


# Moments are milliseconds of the machine's monotonic clock.


@dataclass(frozen=True, slots=True)
class Produced:
    """`ended_ms` is None until every event is acknowledged."""

    acknowledged_count: int
    began_ms: int
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """`latest_ms` is when the last event so far was seen."""

    events_count: int
    late_count: int
    malformed_count: int
    minutes: list[MinuteRow]
    latest_ms: int


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage of the jobs starts."""

    stage: str
    began_ms: int


@dataclass(frozen=True, slots=True)
class JobsDone:
    """`well_formed_count`: the events that are not dead letters.  `lines`: each topic, hour and tier.

    `duplicates`: rows of the table beyond the first of a record, and `complete_hours`: the starts of the day's hours of
    which the table has every record; both by topic.
    """

    rows_count: int
    files_count: int
    well_formed_count: int
    lines: list[TierLine]
    duplicates: dict[str, int]
    complete_hours: dict[str, list[int]]
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Checked:
    """`problems`: where the results are not what was sent; `lines` of the report: the results."""

    problems: list[str]
    letters_count: int
    replayable_count: int
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Failed:
    """The process could not do its task, for a known reason."""

    reason: str


Message: TypeAlias = Produced | Watched | StageStarted | JobsDone | Checked | Failed


def run_task(work: Callable[[Task, Callable[[Message], None]], None]) -> None:
    """The main function of every process: do the task of the command line, report on the pipe that it names.

    A known failure is reported; a bug has its traceback.  A report after the parent's end raises `BrokenPipeError`,
    which ends this process, too.
    """
    messages = Connection(int(sys.argv[1]), readable=False)
    try:
        work(Task(**json.loads(sys.argv[2])), messages.send)
    except OttlaError as error:
        messages.send(Failed(str(error)))
        sys.exit(1)


class StageTime(NamedTuple):
    """A stage of the jobs; `took_ms` is None while it runs."""

    name: str
    took_ms: int | None


@dataclass(slots=True)
class RunProgress:
    """`produced` by service; results that have not arrived yet are None."""

    produced: dict[str, Produced] = field(default_factory=dict)
    watched: Watched = field(default_factory=lambda: Watched(0, 0, 0, [], 0))
    running: list[StageStarted] = field(default_factory=list)
    jobs: JobsDone | None = None
    checked: Checked | None = None

    def take(self, name: str, message: Message) -> None:
        match message:
            case Produced():
                self.produced[name] = message
            case Watched():
                self.watched = message
            case StageStarted():
                self.running.append(message)
            case JobsDone():
                self.jobs = message
            case Checked():
                self.checked = message

    @property
    def acknowledged_count(self) -> int:
        return sum(each.acknowledged_count for each in self.produced.values())

    @property
    def ended_ms(self) -> list[int]:
        """When each service had its last acknowledgement, of those that have ended."""
        return [each.ended_ms for each in self.produced.values() if each.ended_ms is not None]

    @property
    def stages(self) -> list[StageTime]:
        """The jobs' stages so far, in their order."""
        ends = [*(each.began_ms for each in self.running[1:]), None if self.jobs is None else self.jobs.ended_ms]
        return [
            StageTime(each.stage, None if end_ms is None else end_ms - each.began_ms)
            for each, end_ms in zip(self.running, ends, strict=False)
        ]
