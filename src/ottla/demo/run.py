"""One run of the demo: produce and watch, run the jobs on Spark, check their results, report, clean up."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.text import Text

from ottla.audit.topic import ensure_topic
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.options import ClientOptions
from ottla.demo.checking import DEAD_LETTERS, TABLE, TOP_PAGES
from ottla.demo.events import SERVICES, TOPICS, yesterday_ms
from ottla.demo.processes import Children, ProcessFailed, Task
from ottla.demo.producing import prepare_steps, steps_path
from ottla.demo.report import RunProgress, Screen, problems_of, report_of, show_jobs, show_producing
from ottla.model.errors import OttlaError
from ottla.runtime.clock import SystemClock
from ottla.runtime.interrupts import Interrupts
from ottla.testing.broker import RunningBroker

# The broker counts what it stores, and publishes the counts soon: a day takes seconds here.
BROKER_SETTINGS: Final = {"audit.enable": "true", "audit.interval.ms": "1000"}
BROKER_LINES_SHOWN: Final = 10
CREATED_WITHIN_MS: Final = 10_000
CAUGHT_UP_WITHIN_S: Final = 30.0
# Differences in the error's line; the table has them all.
PROBLEMS_SHOWN: Final = 5
# Spark reads other characters as a pattern, and the Delta library as parts of a URL.
_PLAIN_PATH: Final = re.compile(r"[\w /.+=@:~-]+")
_REMOVE_TRIES: Final = 20
_REMOVE_PAUSE_S: Final = 0.1


class CountsDiffer(OttlaError):
    """Tiers differ, or results are not what was sent; the message names topics and hours."""


class UnfitDirectory(OttlaError):
    """The demo's data cannot be kept there."""


def run_demo(events_count: int, seed: int, keep: Path | None, *, drop_one: bool) -> None:
    """`keep` is the directory that keeps the broker's data and the lake; `drop_one` loses one record on purpose.

    Raises `CountsDiffer`, `ProcessFailed`, and `KeyboardInterrupt`, each after everything is cleaned up."""
    screen = Screen()
    with Interrupts() as interrupts, closing(screen):
        try:
            with ExitStack() as stack:
                kept = _kept(keep)
                temporary = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
                stack.callback(_remove, temporary)
                scratch = temporary / "tmp"
                scratch.mkdir()
                home = kept or temporary
                broker = RunningBroker(home / "broker", settings=BROKER_SETTINGS, own_group=True)
                stack.callback(broker.close)
                # Entered last, ended first: clients before their broker.
                children = Children(interrupts, {"TMPDIR": str(scratch)})
                stack.callback(children.close)
                try:
                    began_s = time.monotonic()
                    broker.start()
                    task = Task(
                        broker.bootstrap,
                        str(home / "lake"),
                        str(home / "checkpoints"),
                        str(scratch),
                        events_count,
                        seed,
                        yesterday_ms(SystemClock().now_ms()),
                        drop_one=drop_one,
                    )
                    _Run(task, home, broker, children, screen).run(began_s, keeps=keep is not None)
                except OttlaError as error:
                    screen.close()
                    _print_complaints(screen, error, broker)
                    raise
                screen.say("\nnext steps:", *(f"  {step}" for step in next_steps(kept, os.environ)))
        except KeyboardInterrupt:
            screen.close()
            screen.say("stopped; nothing is left running")
            raise


def _kept(keep: Path | None) -> Path | None:
    """The directory of the data that is kept.  Raises `UnfitDirectory`."""
    if keep is None:
        return None
    keep = keep.absolute()
    if not _PLAIN_PATH.fullmatch(str(keep)):
        raise UnfitDirectory(
            f"the lake cannot be in {keep}", hint="name a directory of letters, digits, spaces and _ . + = @ : ~ -"
        )
    if keep.exists() and any(keep.iterdir()):
        raise UnfitDirectory(f"{keep} is not empty", hint="name a directory that does not exist yet, or an empty one")
    keep.mkdir(parents=True, exist_ok=True)
    return keep


def _remove(temporary: Path) -> None:
    """A process that was just killed may still write into it: hence the retries."""
    for _ in range(_REMOVE_TRIES):
        shutil.rmtree(temporary, ignore_errors=True)
        if not temporary.exists():
            return
        time.sleep(_REMOVE_PAUSE_S)


def _print_complaints(screen: Screen, error: OttlaError, broker: RunningBroker) -> None:
    """The error lines of the failed process, and the broker's warnings."""
    complaints = error.complaints if isinstance(error, ProcessFailed) else []
    warnings = [line for line in broker.log_lines if line.split()[1:2] != ["INFO"]]
    screen.say(*(Text(f"  | {line}") for line in [*complaints, *warnings[-BROKER_LINES_SHOWN:]]))


class _Run:
    """The day itself.  The caller creates and closes the directories, the broker and the children."""

    def __init__(self, task: Task, home: Path, broker: RunningBroker, children: Children, screen: Screen) -> None:
        self._task = task
        self._home = home
        self._broker = broker
        self._children = children
        self._screen = screen
        self._progress = RunProgress()

    def run(self, began_s: float, *, keeps: bool) -> None:
        """Raises `CountsDiffer` after the report, `ProcessFailed`, `KeyboardInterrupt`."""
        self._create_topics()
        self._produce()
        self._run_jobs()
        # By a process that has the events, and not Spark's work.
        self._screen.say("check      all results, against the events that were sent")
        self._children.start("check", "checking", self._task)
        while self._progress.checked is None:
            self._take_messages()
        total_s = time.monotonic() - began_s
        problems = list(problems_of(self._progress, self._task.events_count))
        log_bytes = sum(file.stat().st_size for file in (self._home / "broker").rglob("*.log"))
        self._screen.say(*report_of(self._progress, total_s, log_bytes, problems))
        if problems:
            raise self._difference(problems, keeps=keeps)

    def _create_topics(self) -> None:
        with Cluster(self._broker.bootstrap, ClientOptions(call_timeout_ms=CREATED_WITHIN_MS)) as cluster:
            for name, count in TOPICS.items():
                Admin(cluster).create_topic(name, count)
            # Before a client without its settings creates it with the broker's defaults.
            ensure_topic(cluster)
        topics = ", ".join(f"{name} ({count})" for name, count in TOPICS.items())
        self._screen.say(f"broker     {self._broker.bootstrap}, with its own counts (audit.enable)")
        self._screen.say(f"topics     {topics}")

    def _produce(self) -> None:
        task, label = self._task, "producers"
        for client, services in groupby(SERVICES, key=lambda service: service.client):
            self._screen.say(f"{label:9}  {', '.join(f'{each.name} ({each.codec})' for each in services)} by {client}")
            label = ""
        day = datetime.fromtimestamp(task.day_start_ms / 1000, UTC).strftime("%A, %Y-%m-%d")
        self._screen.say(f"the day    {day} in UTC, {task.events_count:,} events")
        watcher = self._children.start("online consumer", "watching", task)
        prepare_steps(steps_path(task.scratch))
        for service in SERVICES:
            self._children.start(service.name, "producing", task._replace(service=service.name))
        progress, deadline_s, is_done = self._progress, 0.0, False
        while not is_done:
            self._take_messages()
            watched, acknowledged = progress.watched.events_count, progress.acknowledged_count
            if len(progress.ended_ms) == len(SERVICES):
                # The online consumer has some time to see the rest.
                deadline_s = deadline_s or time.monotonic() + CAUGHT_UP_WITHIN_S
                is_done = watched >= acknowledged
                if not is_done and time.monotonic() > deadline_s:
                    seen = f"saw {watched:,} of {acknowledged:,} events, and no more for {CAUGHT_UP_WITHIN_S:.0f} s"
                    raise ProcessFailed("online consumer", seen, [])
            show_producing(self._screen, progress, task.events_count, is_last=is_done)
        self._children.end(watcher)

    def _run_jobs(self) -> None:
        self._screen.say("jobs       on Spark, all in one session:")
        self._children.start("Spark", "jobs", self._task)
        began_s = time.monotonic()
        is_done = False
        while not is_done:
            self._take_messages()
            is_done = self._progress.jobs is not None
            show_jobs(self._screen, self._progress, time.monotonic() - began_s, is_last=is_done)

    def _take_messages(self) -> None:
        if not self._broker.is_running:
            last_lines = self._broker.log_lines[-BROKER_LINES_SHOWN:]
            raise ProcessFailed("the broker", "ended in the middle of the day", last_lines)
        for name, message in self._children.messages():
            self._progress.take(name, message)

    def _difference(self, problems: list[str], *, keeps: bool) -> CountsDiffer:
        more = len(problems) - PROBLEMS_SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        kept = f"compare {self._home / 'broker'} and {self._home / 'lake'}"
        return CountsDiffer(
            "the counts differ: " + "; ".join(problems[:PROBLEMS_SHOWN]) + rest,
            hint=kept if keeps else "--keep DIR keeps a run's data",
        )


def next_steps(keep: Path | None, environment: Mapping[str, str]) -> Iterator[str]:
    """Commands that can be pasted into a shell.  `keep`: the directory of this run's data."""
    # `./dev` uses its virtual environment without the user's shell being in it.
    if sys.prefix != sys.base_prefix and environment.get("VIRTUAL_ENV") != sys.prefix:
        yield f". {shlex.quote(sys.prefix)}/bin/activate"
    if keep is None:
        yield "ottla demo --keep demo-data    # the same; keeps the log and the lake"
        yield "ottla serve --data-dir data    # a broker for your own clients"
        yield "# README.md has snippets for many clients, docs/guide/ a page for each job"
        return
    data_dir = shlex.quote(str(keep / "broker"))
    yield f"ottla serve --data-dir {data_dir}    # and in another terminal:"
    yield "ottla topic list"
    yield "ottla consume page-views --from-beginning --max-messages 5 --json"
    yield f"ottla audit status page-views --tier {TABLE}"
    yield "ottla dead-letter list page-views"
    yield "ottla dead-letter replay page-views --dry-run"
    yield f"ottla log verify {data_dir} --deep"
    for rows, table in (("sample(5)", TOP_PAGES), ("head()", DEAD_LETTERS)):
        code = f"import sys, deltalake; print(deltalake.DeltaTable(sys.argv[1]).to_pandas().{rows})"
        yield f"python -c '{code}' {shlex.quote(str(keep / 'lake' / table))}"
