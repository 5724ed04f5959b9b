"""The demo's display while it runs: the progress bar, the table of minutes, the jobs."""

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
        text += f"; the online consumer has seen {watched.events_count:,}, up to {watched.minutes[-1][0]}"
    return text


def jobs_picture(progress: Progress, _events_count: int, elapsed_s: float) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=40)
    table.add_column(justify="right")
    for stage in progress.stages:
        took = "..." if stage.took_ms is None else f"{stage.took_ms / 1000:.1f} s"
        table.add_row(f"  Spark {stage.name}", took)
    return Group(table, f"  {elapsed_s:.0f} s so far")


def jobs_line(progress: Progress, _events_count: int) -> str:
    stages = progress.stages
    return f"  Spark {stages[-1].name}" if stages else "  Spark starts"


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
