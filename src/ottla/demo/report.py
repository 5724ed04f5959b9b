"""The demo's report: the audit's counts, what the jobs found, how it was checked, and the measurements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ottla.audit.comparison import TierLine
from ottla.demo.day import MINUTE_MS, clock_name
from ottla.demo.lake import TABLE
from ottla.demo.messages import Checked
from ottla.demo.progress import Progress
from ottla.demo.services import TOPICS
from ottla.model.windows import time_text

AUDIT_HEADING: Final = (
    "audit      every event, counted in four places by the hour when it happened:",
    "           producer: acknowledged to it; broker: counted in its log;",
    "           lake: told by the load's commits; table: counted in its files",
)
# Hours that differ, in the table of them; where all is lost there are many.
DIFFERENCES_SHOWN: Final = 12


class _Bucket(NamedTuple):
    topic: str
    start_ms: int


def tiers_table(lines: Sequence[TierLine], complete_hours: Mapping[str, Collection[int]]) -> Table:
    """The day's sum of each topic and tier, and how many of its hours are complete."""
    tiers = _tiers(lines)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("topic")
    for name in tiers:
        table.add_column(name, justify="right")
    table.add_column("complete", justify="right")
    for topic in TOPICS:
        hours = f"{len(complete_hours.get(topic, ()))} of 24 h"
        table.add_row(topic, *(f"{_sum(lines, tier, topic):,}" for tier in tiers), hours)
    table.add_section()
    table.add_row("all", *(f"{sum(_sum(lines, tier, topic) for topic in TOPICS):,}" for tier in tiers))
    return table


def complete_hour_lines(lines: Sequence[TierLine], complete_hours: Mapping[str, Collection[int]]) -> Iterator[str]:
    """The fullest hour that is complete: what a job that waits for it is told."""
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
    tiers = _tiers(lines)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=Text("the tiers differ in", style="bold red"))
    table.add_column("hour", no_wrap=True)
    table.add_column("topic", no_wrap=True)
    for name in tiers:
        table.add_column(name, justify="right")
    differing = list(_differing(lines))
    for bucket, counts in differing[:DIFFERENCES_SHOWN]:
        cells = (f"{counts[tier]:,}" if tier in counts else "-" for tier in tiers)
        table.add_row(time_text(bucket.start_ms), bucket.topic, *cells, style="bold red")
    if len(differing) > DIFFERENCES_SHOWN:
        table.add_row("and", f"{len(differing) - DIFFERENCES_SHOWN:,} more")
    return table


def difference_lines(lines: Sequence[TierLine]) -> Iterator[str]:
    """The topics and hours in which a tier lacks records or has too many, in their order."""
    for bucket, counts in _differing(lines):
        told = ", ".join(f"{tier} {records:,}" for tier, records in counts.items())
        yield f"topic {bucket.topic}, hour {time_text(bucket.start_ms)}: {told}"


def found_lines(checked: Checked) -> Iterator[str]:
    """What the streams have found, and what was set aside."""
    if checked.windows_count:
        busiest = clock_name(checked.busiest_ms)
        yield f"top pages  of {checked.windows_count:,} windows of five minutes; in the busiest, at {busiest}:"
        yield "           " + ", ".join(f"{page} {views:,}" for page, views in checked.busiest_pages)
    yield f"late       {checked.late_count:,} page views, too late for their windows: in a table of their own"
    yield (
        f"sessions   {checked.sessions_count:,}; the longest has {checked.longest_views:,} views "
        f"in {checked.longest_ms // MINUTE_MS:,} minutes"
    )
    letters_count = sum(checked.letters.values())
    yield f"malformed  {letters_count:,} events are dead letters; {checked.replayable_count:,} can be put back"
    if letters_count:
        yield "           " + ", ".join(f"{topic} {count:,}" for topic, count in checked.letters.items())
        yield f"           {checked.letter}"


def checked_lines(progress: Progress) -> Iterator[str]:
    """How it was checked, and that all is well; for a run without problems."""
    checked, set_aside = progress.checked, progress.set_aside
    assert checked is not None, "nothing was checked"
    assert set_aside is not None, "no events were parsed"
    sent = f"{progress.acknowledged_count:,} sent"
    well_formed, letters = f"{set_aside.well_formed_count:,}", f"{sum(checked.letters.values()):,}"
    yield f"checked    {sent} = acknowledged = stored = loaded, each hour, each once"
    yield f"           {sent} = {well_formed} well-formed + {letters} dead letters, byte for byte"
    yield "           top pages (less the late views) and sessions: row for row"
    yield "           what plain Python counts in the events that were sent"


def measured_lines(progress: Progress, total_s: float, log_bytes: int) -> Iterator[str]:
    """Measurements of this run on this machine, each while the rest of the demo was running."""
    loaded = progress.loaded
    assert loaded is not None, "the lake has not been loaded"
    count = progress.acknowledged_count
    yield "measured   in this run, each while the rest of the demo was running:"
    yield f"           {_rate(count, progress.producing_ms)} acknowledged, to {len(progress.produced)} processes"
    yield f"           {log_bytes / 1e6:,.1f} MB of compressed batches in the broker's log"
    yield f"           all seen by the online consumer {progress.caught_up_ms:,} ms after the last of them"
    loading = _rate(loaded.rows_count, loaded.took_ms)
    yield f"           {loading} loaded into {loaded.files_count} files, by Spark's first job"
    starting_ms = progress.stages[0].took_ms or 0
    yield f"           {total_s:.1f} s in all, {starting_ms / 1000:.1f} s of them for Spark to start"


def _differing(lines: Sequence[TierLine]) -> Iterator[tuple[_Bucket, dict[str, int]]]:
    """The count of each tier, where one lacks records or has too many."""
    found: dict[_Bucket, list[TierLine]] = {}
    for line in lines:
        found.setdefault(_Bucket(line.topic, line.window.start_ms), []).append(line)
    for bucket, of_bucket in sorted(found.items()):
        if any(line.missing_records or line.surplus_records for line in of_bucket):
            yield bucket, {line.tier: line.records for line in of_bucket}


def _tiers(lines: Sequence[TierLine]) -> list[str]:
    return list(dict.fromkeys(line.tier for line in lines))


def _sum(lines: Sequence[TierLine], tier: str, topic: str) -> int:
    return sum(line.records for line in lines if (line.tier, line.topic) == (tier, topic))


def _rate(count: int, took_ms: int) -> str:
    return f"{count * 1000 / max(took_ms, 1):,.0f} events/s"
