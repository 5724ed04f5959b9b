"""The demo's report: the audit as a table for each topic and hour, and the measurements."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ottla.demo.counts import Audit, Bucket, Line
from ottla.demo.day import HOUR_MS, clock_name, hour_name
from ottla.demo.progress import Progress
from ottla.demo.services import TOPICS


def hours_table(audit: Audit) -> Table:
    """A row for each hour, a column for each topic: the three counts."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    table.add_column("UTC", no_wrap=True)
    for topic in TOPICS:
        table.add_column(topic, justify="right", overflow="fold")
    is_one_day = len({hour_name(hour)[:10] for hour in audit.hours}) == 1
    for hour in audit.hours:
        name = clock_name(hour * HOUR_MS) if is_one_day else hour_name(hour)
        cells = (_cell(audit.line(Bucket(topic, hour))) for topic in TOPICS)
        table.add_row(name, *cells)
    return table


def sums_table(audit: Audit) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("topic")
    for name in ("produced", "stored", "loaded"):
        table.add_column(name, justify="right")
    for topic in TOPICS:
        table.add_row(topic, *(f"{count:,}" for count in audit.topic_line(topic)))
    sums = [sum(column) for column in zip(*(audit.topic_line(topic) for topic in TOPICS), strict=True)]
    table.add_section()
    table.add_row("all", *(f"{count:,}" for count in sums))
    return table


def difference_lines(audit: Audit) -> Iterator[str]:
    for bucket, line in audit.differences:
        yield f"{bucket}: produced {line.produced:,}, stored {line.stored:,}, loaded {line.loaded:,}"


def measured_lines(progress: Progress, total_s: float, log_bytes: int) -> Iterator[str]:
    """Measurements of this run on this machine, each while the rest of the demo was running."""
    stored, loaded = progress.stored, progress.loaded
    assert stored is not None, "the topics have not been read"
    assert loaded is not None, "the lake has not been loaded"
    count = progress.acknowledged_count
    read_rate = _rate(sum(count for _, _, count in stored.counts), stored.took_ms)
    watched = progress.watched
    yield f"produced   {_rate(count, progress.producing_ms)} acknowledged, by {len(progress.produced)} processes"
    yield f"online     all {watched.events_count:,} seen {progress.caught_up_ms} ms after the last acknowledgement"
    yield f"stored     {log_bytes / 1e6:,.1f} MB of compressed batches, read back by kafka-python at {read_rate}"
    yield f"loaded     {_rate(loaded.rows_count, loaded.took_ms)} by Spark {loaded.spark_version} in its first job"
    yield f"in all     {total_s:.1f} s, {loaded.session_ms / 1000:.1f} s of them for Spark to start"


def malformed_line(progress: Progress) -> str:
    """Malformed events are loaded like all others, and flagged in a table of their own."""
    watched, loaded = progress.watched, progress.loaded
    assert loaded is not None, "the lake has not been loaded"
    return (
        f"malformed among them: {watched.malformed_count:,} seen by the online consumer, "
        f"{loaded.malformed_count:,} flagged by Spark"
    )


def _cell(line: Line) -> Text:
    if line.is_equal:
        return Text(f"{line.produced}={line.stored}={line.loaded}" if any(line) else "-")
    signs = [
        "=" if left == right else "!=" for left, right in ((line.produced, line.stored), (line.stored, line.loaded))
    ]
    return Text(f"{line.produced}{signs[0]}{line.stored}{signs[1]}{line.loaded}", style="bold red")


def _rate(count: int, took_ms: int) -> str:
    return f"{count * 1000 / max(took_ms, 1):,.0f}/s"
