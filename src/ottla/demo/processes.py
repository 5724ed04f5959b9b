"""The processes of the demo: their task, the messages by which they report, and their reliable end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Final, NamedTuple, TypeAlias

from ottla.audit.comparison import TierLine
from ottla.model.errors import OttlaError
from ottla.runtime.interrupts import Interrupts

ERROR_LINES_KEPT: Final = 40
TICK_S: Final = 0.1
# Java runs shutdown hooks after a signal.
ENDED_WITHIN_S: Final = 8.0
KILLED_WITHIN_S: Final = 5.0

# The minute's name, the count of each topic, the page viewed most.
MinuteRow: TypeAlias = tuple[str, list[int], str]


class Task(NamedTuple):
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


class Produced(NamedTuple):
    """`ended_ms` is None until every event is acknowledged."""

    acknowledged_count: int
    began_ms: int
    ended_ms: int | None = None


class Watched(NamedTuple):
    """`latest_ms` is when the last event so far was seen."""

    events_count: int
    late_count: int
    malformed_count: int
    minutes: list[MinuteRow]
    latest_ms: int


class StageStarted(NamedTuple):
    stage: str
    began_ms: int


class JobsDone(NamedTuple):
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


class Checked(NamedTuple):
    """`problems`: where the results are not what was sent; `lines` of the report: the results."""

    problems: list[str]
    letters_count: int
    replayable_count: int
    lines: list[str]


class Failed(NamedTuple):
    """The process could not do its task, for a known reason."""

    reason: str


Message: TypeAlias = Produced | Watched | StageStarted | JobsDone | Checked | Failed
Report: TypeAlias = Callable[[Message], None]


def run_task(work: Callable[[Task, Report], None]) -> None:
    """The main function of every process: do the task of the command line, report on the pipe that it names.

    A known failure is reported; a bug has its traceback.  A report after the parent's end raises `BrokenPipeError`,
    which ends this process, too.
    """
    messages = Connection(int(sys.argv[1]), readable=False)
    try:
        work(Task(*json.loads(sys.argv[2])), messages.send)
    except OttlaError as error:
        messages.send(Failed(str(error)))
        sys.exit(1)


class ProcessFailed(OttlaError):
    """One of the demo's processes ended before its task was done; `complaints` are its last error lines."""

    def __init__(self, name: str, reason: str, complaints: list[str]) -> None:
        super().__init__(f"{name}: {reason}")
        self.complaints = complaints


class Child:
    """A module of `ottla.demo` with a task.

    It has its own process group, so the terminal's Ctrl-C does not reach it, and one signal reaches all its descendants
    (Spark's Java).  Its standard error is a pipe that they inherit: end of file means that all of them have ended.
    """

    def __init__(self, name: str, module: str, task: Task, environment: Mapping[str, str]) -> None:
        self.name = name
        self.error_lines: deque[str] = deque(maxlen=ERROR_LINES_KEPT)
        self.messages, sending = Pipe(duplex=False)
        with sending:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"ottla.demo.{module}", str(sending.fileno()), json.dumps(task)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
                process_group=0,
                pass_fds=[sending.fileno()],
            )
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self.error_lines.extend(line.rstrip("\n") for line in lines)

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group, while one of its processes is running: later another may have the group's id."""
        if self._reader.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def wait_end(self, within_s: float) -> bool:
        """Whether the process and all its descendants ended in time."""
        self._reader.join(max(0.0, within_s))
        if self._reader.is_alive():
            return False
        self.process.wait()
        return True

    def check_end(self) -> None:
        """Its messages have ended, since it ends.  Raises `ProcessFailed`."""
        code = self.process.wait()
        if code != 0:
            self.wait_end(1.0)
            reason = f"ended with status {code}" if code > 0 else f"was ended by signal {-code}"
            raise ProcessFailed(self.name, reason, list(self.error_lines))


class Children:
    """Closing it ends every process that was started here, with all descendants."""

    def __init__(self, interrupts: Interrupts, environment: Mapping[str, str]) -> None:
        self._interrupts = interrupts
        self._environment = {**os.environ, **environment}
        # By the pipe of its messages, which is not read after its end.
        self._reporting: dict[object, Child] = {}
        self._children: list[Child] = []

    def start(self, name: str, module: str, task: Task) -> Child:
        child = Child(name, module, task, self._environment)
        self._children.append(child)
        self._reporting[child.messages] = child
        return child

    def messages(self) -> Iterator[tuple[str, Message]]:
        """The messages of one tick, with the name of their process.

        Raises `ProcessFailed` when one of them failed its task, `KeyboardInterrupt` after a signal.
        """
        self._interrupts.check()
        for pipe in wait([child.messages for child in self._reporting.values()], TICK_S):
            child = self._reporting[pipe]
            try:
                message: Message = child.messages.recv()
            except EOFError:
                del self._reporting[pipe]
                child.check_end()
                continue
            if isinstance(message, Failed):
                raise ProcessFailed(child.name, message.reason, [])
            yield child.name, message

    def end(self, *children: Child) -> None:
        """End these processes, and wait until they have ended."""
        running = list(children)
        for number, within_s in ((signal.SIGTERM, ENDED_WITHIN_S), (signal.SIGKILL, KILLED_WITHIN_S)):
            for child in running:
                child.signal(number)
            ends_s = time.monotonic() + within_s
            running = [child for child in running if not child.wait_end(ends_s - time.monotonic())]
        for child in children:
            self._reporting.pop(child.messages, None)
            child.messages.close()
            self._children.remove(child)

    def close(self) -> None:
        self.end(*self._children)
