"""The day itself: produce and watch, read back and load, compare."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, TypeAlias

from rich.console import RenderableType

from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerRefused
from ottla.client.options import ClientOptions
from ottla.demo.children import Children, ProcessFailed
from ottla.demo.counts import Audit
from ottla.demo.day import yesterday_ms
from ottla.demo.in_step import prepare_steps
from ottla.demo.messages import CountLake, Load, Produce, ReadStored, Watch
from ottla.demo.pictures import loading_line, loading_picture, producing_line, producing_picture
from ottla.demo.progress import Progress
from ottla.demo.report import difference_lines, hours_table, malformed_line, measured_lines, sums_table
from ottla.demo.screen import Screen
from ottla.demo.services import SERVICES, TOPICS, shares_of
from ottla.demo.workplace import Workplace
from ottla.model.errors import OttlaError
from ottla.runtime.clock import SystemClock
from ottla.testing.broker import RunningBroker

CREATED_WITHIN_MS: Final = 10_000
CAUGHT_UP_WITHIN_S: Final = 30.0
COMPLAINTS: Final = 10
# Differences in the error's line; the table has them all.
PROBLEMS_SHOWN: Final = 5

Picture: TypeAlias = Callable[[Progress, int, float], RenderableType]
PlainLine: TypeAlias = Callable[[Progress, int], str]


class CountsDiffer(OttlaError):
    """Produced, stored and loaded counts differ; the message names the buckets."""


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

    def run(self, drop_one: bool) -> None:
        """Raises `CountsDiffer` after the report, `ProcessFailed`, `KeyboardInterrupt`."""
        began_ms = self._clock.monotonic_ms()
        self._start_broker()
        self._produce()
        self._read_and_load()
        self._count_lake(drop_one)
        audit = self._progress.audit()
        self._report(audit, (self._clock.monotonic_ms() - began_ms) / 1000)
        self._judge(audit)

    def _start_broker(self) -> None:
        self._broker.start()
        with Cluster(self._broker.bootstrap, ClientOptions(call_timeout_ms=CREATED_WITHIN_MS)) as cluster:
            created = Admin(cluster).create_topics(NewTopic(name, count) for name, count in TOPICS.items())
        for outcome in created.values():
            if isinstance(outcome, BrokerRefused):
                raise outcome
        topics = ", ".join(f"{name} ({count})" for name, count in TOPICS.items())
        self._screen.say(f"broker     {self._broker.bootstrap}, a process of its own")
        self._screen.say(f"topics     {topics} partitions")

    def _produce(self) -> None:
        day_start_ms = yesterday_ms(self._clock.now_ms())
        day = datetime.fromtimestamp(day_start_ms / 1000, UTC).strftime("%A, %Y-%m-%d")
        for client, services in groupby(SERVICES, key=lambda service: service.client):
            self._screen.say(f"producers  {', '.join(f'{each.name} ({each.codec})' for each in services)} by {client}")
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

    def _read_and_load(self) -> None:
        """Two readers at once: one counts the broker's records, the other loads them into the lake."""
        self._screen.say("loading    into a Delta table by topic and hour, with PySpark;")
        self._screen.say("           at the same time kafka-python reads all topics back")
        task = Load(self._broker.bootstrap, str(self._workplace.lake), str(self._workplace.scratch))
        self._children.start("Spark", "loading", task)
        self._children.start("reader", "reading_stored", ReadStored(self._broker.bootstrap))
        progress = self._progress
        self._wait(lambda: progress.stored is not None and progress.loaded is not None, loading_picture, loading_line)

    def _count_lake(self, drop_one: bool) -> None:
        """Outside of Spark, in a process that is independent of the load."""
        self._children.start("lake reader", "counting_lake", CountLake(str(self._workplace.lake), drop_one))
        while self._progress.lake is None:
            self._take_messages()

    def _wait(self, is_done: Callable[[], bool], picture: Picture, line: PlainLine) -> None:
        began_s = time.monotonic()
        while True:
            self._take_messages()
            done = is_done()
            shown = picture(self._progress, self._events_count, time.monotonic() - began_s)
            plain = line(self._progress, self._events_count)
            if done:
                self._screen.settle(shown, plain)
                return
            self._screen.show(shown, plain)

    def _take_messages(self) -> None:
        if not self._broker.is_running:
            raise ProcessFailed("the broker", "ended in the middle of the day", self._broker.log_lines[-COMPLAINTS:])
        for child, message in self._children.messages():
            self._progress.take(child.name, message)

    def _report(self, audit: Audit, total_s: float) -> None:
        say = self._screen.say
        say("\nproduced = stored = loaded, for each topic and hour:")
        say("  produced: acknowledged to the producing processes; stored: read back by kafka-python;")
        say("  loaded: rows in the lake's files, read with pyarrow")
        say(hours_table(audit))
        say(sums_table(audit))
        say(malformed_line(self._progress) + "\n")
        log_bytes = sum(file.stat().st_size for file in self._workplace.data_dir.rglob("*.log"))
        say("measured in this run, each while the rest of the demo was running:")
        for line in measured_lines(self._progress, total_s, log_bytes):
            say(f"  {line}")

    def _judge(self, audit: Audit) -> None:
        lake = self._progress.lake
        loaded = self._progress.loaded
        assert lake is not None, "the lake has not been counted"
        assert loaded is not None, "the lake has not been loaded"
        problems = list(difference_lines(audit))
        if lake.duplicates_count:
            problems.append(f"{lake.duplicates_count:,} rows of the lake are duplicates")
        total = self._progress.acknowledged_count
        if total != self._events_count:
            problems.append(f"{self._events_count:,} events were to be produced, {total:,} were")
        if loaded.malformed_count != self._progress.watched.malformed_count:
            problems.append(malformed_line(self._progress))
        if problems:
            more = len(problems) - PROBLEMS_SHOWN
            rest = f"; and {more} more" if more > 0 else ""
            place = self._workplace
            kept = f"compare {place.data_dir} and {place.lake}" if place.is_kept else "--keep DIR keeps a run's data"
            raise CountsDiffer("the counts differ: " + "; ".join(problems[:PROBLEMS_SHOWN]) + rest, hint=kept)
        self._screen.say(f"\nAll {total:,} events are in all three places, each once.")


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
