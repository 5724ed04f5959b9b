"""A run as its processes report it, and its display.

One picture changes at a terminal, elsewhere there are plain lines; the report is the end of both.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ottla.audit.comparison import TierLine
from ottla.audit.count import BROKER, LAKE, PRODUCER
from ottla.demo.checking import TABLE
from ottla.demo.events import TOPICS
from ottla.demo.processes import Checked, JobsDone, Message, Produced, StageStarted, Watched
from ottla.model.windows import time_text

TIERS: Final = (PRODUCER, BROKER, LAKE, TABLE)
AUDIT_HEADING: Final = (
    "audit      every event, counted in four places by the hour when it happened:\n"
    "           producer: acknowledged to it; broker: counted in its log;\n"
    "           lake: counted by the load's commits; table: counted in its files"
)
# Hours that differ, in the table of them; where all is lost there are many.
DIFFERENCES_SHOWN: Final = 12
REFRESH_EVERY_S: Final = 0.1
LINE_EVERY_S: Final = 2.0
# Without a terminal there is no width; tables need one.
PLAIN_WIDTH: Final = 80


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
    def results(self) -> tuple[JobsDone, Checked]:
        """At the end of a run."""
        assert self.jobs is not None, "the jobs have not run"
        assert self.checked is not None, "nothing was checked"
        return self.jobs, self.checked

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


class Screen:
    """`say` stays on the screen; `show` is replaced by the next one, or prints a line where it cannot be replaced."""

    def __init__(self, file: IO[str] | None = None) -> None:
        console = Console(file=file, highlight=False)
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        plain = Console(file=file, highlight=False, width=PLAIN_WIDTH, color_system=None)
        self._console = console if self._is_live else plain
        self._live: Live | None = None
        self._next_s = 0.0
        self._line = ""

    def say(self, *texts: RenderableType) -> None:
        for text in texts:
            self._console.print(text, soft_wrap=isinstance(text, str), markup=False)

    def show(self, picture: RenderableType, line: str, *, is_last: bool, line_every_s: float = LINE_EVERY_S) -> None:
        """The same in two forms, at most at their intervals; the last one stays."""
        now_s = time.monotonic()
        if now_s < self._next_s and not is_last:
            return
        if self._is_live:
            self._next_s = now_s + REFRESH_EVERY_S
            # Nothing else writes to the terminal, so nothing must be captured.
            self._live = self._live or Live(
                console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
            self._live.update(picture, refresh=True)
        elif line != self._line:
            self._next_s = now_s + line_every_s
            self._line = line
            self.say(line)
        if is_last:
            self.close()

    def close(self) -> None:
        """Continue below the last picture."""
        self._next_s = 0.0
        if self._live is not None:
            self._live.stop()
            self._live = None


def show_producing(screen: Screen, progress: RunProgress, events_count: int, *, is_last: bool) -> None:
    watched, done = progress.watched, progress.acknowledged_count
    bar = Table.grid(padding=(0, 1))
    bar.add_row("  produced  ", ProgressBar(events_count, done, width=28), f"{done:,} of {events_count:,}")
    minutes = Table(box=SIMPLE_HEAD)
    minutes.add_column("minute")
    for topic in TOPICS:
        minutes.add_column(topic, justify="right", min_width=len(topic))
    minutes.add_column("busiest page", width=14, no_wrap=True)
    for name, counts, page in watched.minutes:
        minutes.add_row(name, *(f"{count:,}" for count in counts), page)
    consumer = (
        f"  online consumer: {watched.events_count:,} seen, {watched.late_count:,} over an hour late, "
        f"{watched.malformed_count:,} malformed"
    )
    line = f"  produced {done:,} of {events_count:,}"
    if watched.minutes:
        line += f"; the online consumer has seen {watched.events_count:,}, up to {watched.minutes[-1][0]}"
    screen.show(Group(bar, "", minutes, consumer), line, is_last=is_last)


def show_jobs(screen: Screen, progress: RunProgress, elapsed_s: float, *, is_last: bool) -> None:
    stages = progress.stages
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=40)
    table.add_column(justify="right")
    for stage in stages:
        table.add_row(f"  Spark {stage.name}", "..." if stage.took_ms is None else f"{stage.took_ms / 1000:.1f} s")
    line = f"  Spark {stages[-1].name if stages else 'starts'}"
    # Each line is another job.
    screen.show(Group(table, f"  {elapsed_s:.0f} s so far"), line, is_last=is_last, line_every_s=0.0)


def report_of(
    progress: RunProgress, total_s: float, log_bytes: int, problems: Collection[str]
) -> Iterator[RenderableType]:
    jobs, checked = progress.results
    lines, complete_hours = jobs.lines, jobs.complete_hours
    yield ""
    yield AUDIT_HEADING
    yield tiers_table(lines, complete_hours)
    if any(difference_lines(lines)):
        yield differences_table(lines)
    yield from complete_hour_lines(lines, complete_hours)
    yield from checked.lines
    if not problems:
        yield from checked_lines(progress)
    yield from measured_lines(progress, total_s, log_bytes)


def tiers_table(lines: Sequence[TierLine], complete_hours: Mapping[str, Collection[int]]) -> Table:
    """The day's sum of each topic and tier, and how many of its hours are complete."""
    sums = {topic: [_sum(lines, tier, topic) for tier in TIERS] for topic in TOPICS}
    table = _table(["topic"], *TIERS, "complete")
    for topic, counts in sums.items():
        table.add_row(topic, *(f"{each:,}" for each in counts), f"{len(complete_hours.get(topic, ()))} of 24 h")
    table.add_section()
    table.add_row("all", *(f"{sum(counts):,}" for counts in zip(*sums.values(), strict=True)))
    return table


def complete_hour_lines(lines: Sequence[TierLine], complete_hours: Mapping[str, Collection[int]]) -> Iterator[str]:
    """The fullest hour that is complete: what a job that waits for it would load."""
    complete = [
        line
        for line in lines
        if line.tier == TABLE and line.window.start_ms in complete_hours.get(line.topic, ()) and line.records
    ]
    if complete:
        line = max(complete, key=lambda each: each.records)
        hour = time_text(line.window.start_ms)
        yield f"complete   such as hour {hour} of {line.topic}: {line.records:,} of {line.expected_records:,}"


def differences_table(lines: Sequence[TierLine]) -> Table:
    """The topics and hours in which tiers differ, with the count of each."""
    table = _table(["hour", "topic"], *TIERS, title=Text("the tiers differ in", style="bold red"))
    differing = list(_differing(lines))
    for (topic, start_ms), counts in differing[:DIFFERENCES_SHOWN]:
        cells = (f"{counts[tier]:,}" if tier in counts else "-" for tier in TIERS)
        table.add_row(time_text(start_ms), topic, *cells, style="bold red")
    if len(differing) > DIFFERENCES_SHOWN:
        table.add_row("and", f"{len(differing) - DIFFERENCES_SHOWN:,} more")
    return table


def difference_lines(lines: Sequence[TierLine]) -> Iterator[str]:
    """The topics and hours in which a tier lacks records or has too many, in their order."""
    for (topic, start_ms), counts in _differing(lines):
        each = ", ".join(f"{tier} {records:,}" for tier, records in counts.items())
        yield f"topic {topic}, hour {time_text(start_ms)}: {each}"


def problems_of(progress: RunProgress, events_count: int) -> Iterator[str]:
    """Where tiers differ, or results are not what was sent; nothing when all is well at the end of a run."""
    jobs, checked = progress.results
    yield from difference_lines(jobs.lines)
    for topic in TOPICS:
        found = {line.tier for line in jobs.lines if line.topic == topic}
        yield from (f"tier {tier} has not counted {topic}" for tier in TIERS if tier not in found)
        if jobs.duplicates[topic]:
            yield f"{jobs.duplicates[topic]:,} rows of {topic} in the table are duplicates"
    # Events that no tier has are in none of their differences.
    counted = sum(line.records for line in jobs.lines if line.tier == PRODUCER)
    acknowledged = progress.acknowledged_count
    if not counted == acknowledged == events_count:
        yield f"of {events_count:,} events {acknowledged:,} were acknowledged and {counted:,} counted"
    if jobs.well_formed_count + checked.letters_count != events_count:
        yield f"{jobs.well_formed_count:,} events were processed and {checked.letters_count:,} set aside"
    if progress.watched.malformed_count != checked.letters_count:
        yield f"the online consumer met {progress.watched.malformed_count:,} malformed events"
    if checked.replayable_count != checked.letters_count:
        yield f"{checked.replayable_count:,} of {checked.letters_count:,} dead letters can be put back"
    yield from checked.problems


def checked_lines(progress: RunProgress) -> Iterator[str]:
    """How it was checked, and that all is well; for a run without problems."""
    jobs, checked = progress.results
    sent = f"{progress.acknowledged_count:,} sent"
    parts = f"{jobs.well_formed_count:,} well-formed + {checked.letters_count:,} dead letters"
    yield f"checked    {sent} = acknowledged = stored = loaded, each hour, each once"
    yield f"           {sent} = {parts}, byte for byte"
    yield "           top pages (less the late views) and sessions: row for row"
    yield "           what plain Python counts in the events that were sent"


def measured_lines(progress: RunProgress, total_s: float, log_bytes: int) -> Iterator[str]:
    """Measurements of this run on this machine."""
    jobs, _ = progress.results
    starting, loading = (stage.took_ms or 0 for stage in progress.stages[:2])
    producing_ms = max(progress.ended_ms) - min(each.began_ms for each in progress.produced.values())
    # 0 when the online consumer had everything before the last acknowledgement.
    caught_up_ms = max(0, progress.watched.latest_ms - max(progress.ended_ms))
    yield "measured   in this run, each while the rest of the demo was running:"
    acknowledged = _rate(progress.acknowledged_count, producing_ms)
    yield f"           {acknowledged} acknowledged, to {len(progress.produced)} processes"
    yield f"           {log_bytes / 1e6:,.1f} MB of compressed batches in the broker's log"
    yield f"           all seen by the online consumer {caught_up_ms:,} ms after the last of them"
    loaded = _rate(jobs.rows_count, loading)
    yield f"           {loaded} loaded into {jobs.files_count} files, by Spark's first job"
    yield f"           {total_s:.1f} s in all, {starting / 1000:.1f} s of them for Spark to start"


def _table(texts: Sequence[str], *counts: str, title: Text | None = None) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title)
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in counts:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _differing(lines: Sequence[TierLine]) -> Iterator[tuple[tuple[str, int], dict[str, int]]]:
    """The count of each tier by topic and hour, where one lacks records or has too many."""
    found: dict[tuple[str, int], list[TierLine]] = {}
    for line in lines:
        found.setdefault((line.topic, line.window.start_ms), []).append(line)
    for hour, of_hour in sorted(found.items()):
        if any(line.missing_records or line.surplus_records for line in of_hour):
            yield hour, {line.tier: line.records for line in of_hour}


def _sum(lines: Sequence[TierLine], tier: str, topic: str) -> int:
    return sum(line.records for line in lines if (line.tier, line.topic) == (tier, topic))


def _rate(count: int, took_ms: int) -> str:
    return f"{count * 1000 / max(took_ms, 1):,.0f} events/s"
