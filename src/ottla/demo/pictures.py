"""The demo's display while it runs: the progress bar, the table of minutes, the two readers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from ottla.demo.minutes import MinuteRow
from ottla.demo.progress import Progress
from ottla.demo.services import TOPICS


def producing_picture(progress: Progress, events_count: int, _elapsed_s: float) -> RenderableType:
    watched = progress.watched
    return Group(
        _bar("produced", progress.acknowledged_count, events_count),
        "",
        _minute_table(watched.minutes),
        f"  online consumer: {watched.events_count:,} seen, {watched.late_count:,} over an hour late, "
        f"{watched.malformed_count:,} malformed",
    )


def producing_line(progress: Progress, events_count: int) -> str:
    watched = progress.watched
    text = f"  produced {progress.acknowledged_count:,} of {events_count:,}"
    if watched.minutes:
        name, counts, page = watched.minutes[-1]
        seen = ", ".join(f"{topic} {count}" for topic, count in zip(TOPICS, counts, strict=True))
        text += f"; online consumer at {name}: {seen}; busiest page {page or '-'}"
    return text


def loading_picture(progress: Progress, events_count: int, elapsed_s: float) -> RenderableType:
    return Group(
        _bar("read back", progress.read_count, events_count),
        f"  lake       {loading_stage(progress)}  {elapsed_s:.0f} s",
    )


def loading_line(progress: Progress, events_count: int) -> str:
    return f"  read back {progress.read_count:,} of {events_count:,}; lake: {loading_stage(progress)}"


def loading_stage(progress: Progress) -> str:
    if progress.loaded is None:
        return progress.loading_stage
    return f"{progress.loaded.rows_count:,} rows in {progress.loaded.files_count} files"


def _bar(name: str, done: int, total: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(f"  {name:10}", ProgressBar(total, done, width=28), f"{done:,} of {total:,}")
    return grid


def _minute_table(rows: Sequence[MinuteRow]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=True)
    table.add_column("minute")
    for topic in TOPICS:
        table.add_column(topic, justify="right", min_width=len(topic))
    table.add_column("busiest page", width=14, no_wrap=True)
    for name, counts, page in rows:
        table.add_row(name, *(f"{count:,}" for count in counts), page)
    return table
