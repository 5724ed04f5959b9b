"""The day itself: produce and watch, run the jobs on Spark, check what they found, report."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, TypeAlias

from rich.console import RenderableType

from ottla.audit.topic import ensure_topic
from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.options import ClientOptions
from ottla.demo.children import Children, ProcessFailed
from ottla.demo.day import yesterday_ms
from ottla.demo.in_step import prepare_steps
from ottla.demo.messages import Check, Produce, RunJobs, Watch
from ottla.demo.pictures import jobs_line, jobs_picture, producing_line, producing_picture
from ottla.demo.progress import Progress
from ottla.demo.report import (
    AUDIT_HEADING,
    checked_lines,
    complete_hour_lines,
    difference_lines,
    differences_table,
    found_lines,
    measured_lines,
    tiers_table,
)
from ottla.demo.screen import LINE_EVERY_S, Screen
from ottla.demo.services import SERVICES, TOPICS, shares_of
from ottla.demo.verdict import problems_of
from ottla.demo.workplace import Workplace
from ottla.model.errors import OttlaError
from ottla.runtime.clock import SystemClock
from ottla.testing.broker import RunningBroker

CREATED_WITHIN_MS: Final = 10_000
CAUGHT_UP_WITHIN_S: Final = 30.0
COMPLAINTS: Final = 10
# Differences in the error's line; the table has them all.
PROBLEMS_SHOWN: Final = 5
# Of the events some three fifths are page views: so their stream has four batches.
BATCHES_OF_ALL_EVENTS: Final = 6

Picture: TypeAlias = Callable[[Progress, int, float], RenderableType]
PlainLine: TypeAlias = Callable[[Progress, int], str]


class CountsDiffer(OttlaError):
    """Tiers differ, or results are not what was sent; the message names topics and hours."""


class Play:
    """One run.  The caller creates and closes the workplace, the broker and the children."""

    def __init__(
        self,
        events_count: int,
        seed: int,
        workplace: Workplace,
        broker: RunningBroker,
        children: Children,
        screen: Screen,
    ) -> None:
        self._events_count = events_count
        self._seed = seed
        self._workplace = workplace
        self._broker = broker
        self._children = children
        self._screen = screen
        self._clock = SystemClock()
        self._progress = Progress()
        self._day_start_ms = yesterday_ms(self._clock.now_ms())

    def run(self, drop_one: bool) -> None:
        """Raises `CountsDiffer` after the report, `ProcessFailed`, `KeyboardInterrupt`."""
        began_ms = self._clock.monotonic_ms()
        self._start_broker()
        self._produce()
        self._run_jobs(drop_one)
        self._check()
        total_s = (self._clock.monotonic_ms() - began_ms) / 1000
        problems = list(problems_of(self._progress, self._events_count))
        self._report(total_s, is_well=not problems)
        if problems:
            raise self._difference(problems)

    def _start_broker(self) -> None:
        self._broker.start()
        with Cluster(self._broker.bootstrap, ClientOptions(call_timeout_ms=CREATED_WITHIN_MS)) as cluster:
            created = Admin(cluster).create_topics(NewTopic(name, count) for name, count in TOPICS.items())
            # Before a client that knows nothing of it makes it with the broker's defaults.
            ensure_topic(cluster)
        for outcome in created.values():
            if isinstance(outcome, BrokerRefused):
                raise outcome
        topics = ", ".join(f"{name} ({count})" for name, count in TOPICS.items())
        self._screen.say(f"broker     {self._broker.bootstrap}, with its own counts (audit.enable)")
        self._screen.say(f"topics     {topics}")

    def _produce(self) -> None:
        day_start_ms = self._day_start_ms
        day = datetime.fromtimestamp(day_start_ms / 1000, UTC).strftime("%A, %Y-%m-%d")
        label = "producers"
        for client, services in groupby(SERVICES, key=lambda service: service.client):
            self._screen.say(f"{label:9}  {', '.join(f'{each.name} ({each.codec})' for each in services)} by {client}")
            label = ""
        self._screen.say(f"the day    {day} in UTC, {self._events_count:,} events")
        watcher = self._children.start("online consumer", "watching", Watch(self._broker.bootstrap))
        steps = self._workplace.scratch / "steps"
        prepare_steps(steps, len(SERVICES))
        counts = shares_of(self._events_count)
        for place, service in enumerate(SERVICES):
            task = Produce(
                bootstrap=self._broker.bootstrap,
                service=service.name,
                events_count=counts[service.name],
                seed=self._seed,
                day_start_ms=day_start_ms,
                steps_path=str(steps),
                place=place,
            )
            self._children.start(service.name, "producing", task)
        caught_up = _CaughtUp(self._progress)
        self._wait(caught_up.is_reached, producing_picture, producing_line)
        self._children.end(watcher)

    def _run_jobs(self, drop_one: bool) -> None:
        self._screen.say("jobs       on Spark, all in one session:")
        place = self._workplace
        task = RunJobs(
            bootstrap=self._broker.bootstrap,
            lake=str(place.lake),
            checkpoints=str(place.checkpoints),
            scratch=str(place.scratch),
            day_start_ms=self._day_start_ms,
            views_per_batch=max(1, self._events_count // BATCHES_OF_ALL_EVENTS),
            drop_one=drop_one,
        )
        self._children.start("Spark", "running_jobs", task)
        # Each line of theirs is another job.
        self._wait(lambda: self._progress.audited is not None, jobs_picture, jobs_line, line_every_s=0.0)

    def _check(self) -> None:
        """By a process that has the events, and not Spark's work."""
        task = Check(
            bootstrap=self._broker.bootstrap,
            lake=str(self._workplace.lake),
            events_counts=shares_of(self._events_count),
            seed=self._seed,
            day_start_ms=self._day_start_ms,
        )
        self._screen.say("check      all results, against the events that were sent")
        self._children.start("check", "checking", task)
        while self._progress.checked is None:
            self._take_messages()

    def _wait(
        self, is_done: Callable[[], bool], picture: Picture, line: PlainLine, line_every_s: float = LINE_EVERY_S
    ) -> None:
        began_s = time.monotonic()
        while True:
            self._take_messages()
            done = is_done()
            shown = picture(self._progress, self._events_count, time.monotonic() - began_s)
            plain = line(self._progress, self._events_count)
            if done:
                self._screen.settle(shown, plain)
                return
            self._screen.show(shown, plain, line_every_s)

    def _take_messages(self) -> None:
        if not self._broker.is_running:
            raise ProcessFailed("the broker", "ended in the middle of the day", self._broker.log_lines[-COMPLAINTS:])
        for child, message in self._children.messages():
            self._progress.take(child.name, message)

    def _report(self, total_s: float, *, is_well: bool) -> None:
        audited, checked = self._progress.audited, self._progress.checked
        assert audited is not None, "the audit has not run"
        assert checked is not None, "nothing was checked"
        say = self._screen.say
        lines = self._progress.tier_lines
        say("")
        for line in AUDIT_HEADING:
            say(line)
        say(tiers_table(lines, audited.complete_hours))
        if any(difference_lines(lines)):
            say(differences_table(lines))
        log_bytes = sum(file.stat().st_size for file in self._workplace.data_dir.rglob("*.log"))
        told = [
            *complete_hour_lines(lines, audited.complete_hours),
            *found_lines(checked),
            *(checked_lines(self._progress) if is_well else ()),
            *measured_lines(self._progress, total_s, log_bytes),
        ]
        for line in told:
            say(line)

    def _difference(self, problems: list[str]) -> CountsDiffer:
        more = len(problems) - PROBLEMS_SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        place = self._workplace
        kept = f"compare {place.data_dir} and {place.lake}" if place.is_kept else "--keep DIR keeps a run's data"
        return CountsDiffer("the counts differ: " + "; ".join(problems[:PROBLEMS_SHOWN]) + rest, hint=kept)


class _CaughtUp:
    """Whether everything is produced and the online consumer has seen it, for which it has some time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._deadline_s: float | None = None

    def is_reached(self) -> bool:
        progress = self._progress
        if len(progress.produced) < len(SERVICES):
            return False
        if progress.watched.events_count >= progress.acknowledged_count:
            return True
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + CAUGHT_UP_WITHIN_S
        if time.monotonic() > self._deadline_s:
            seen = f"saw {progress.watched.events_count:,} of {progress.acknowledged_count:,} events"
            raise ProcessFailed("online consumer", f"{seen}, and no more for {CAUGHT_UP_WITHIN_S:.0f} s", [])
        return False
