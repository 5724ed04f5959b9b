"""Rows grouped by windows of their event time, the first of each window, and rows without repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F

from ottla.spark.errors import SparkOptionError

# A record's place, which distinguishes it from every other one, also from a duplicate.
PLACE: Final = ("topic", "partition", "offset")


def windowed(
    rows: DataFrame,
    time: str,
    size: str,
    *,
    slide: str | None = None,
    by: str | Sequence[str] = (),
    delay: str | None = None,
) -> GroupedData:
    """Rows grouped by the column `window` (a struct of start and end) and the columns `by`; aggregate them with `agg`.

        streams.windowed(clicks, "at", "5 minutes", by="page", delay="10 minutes").count()

    time    the event time, a timestamp
    size    "5 minutes": windows are `[start, start + size)`, aligned to 1970 in UTC
    slide   "1 minute": a window starts at each, so that they overlap; None: one ends where the next starts
    delay   how late rows may be: a window is complete when a row is later than its end by so much.  None: the rows
            have a watermark already, or the query has output mode update or complete
    """
    window = F.window(time, size) if slide is None else F.window(time, size, slide)
    return _marked(rows, time, delay).groupBy(window.alias("window"), *_names(by))


def sessions(rows: DataFrame, time: str, gap: str, *, by: str | Sequence[str], delay: str | None = None) -> GroupedData:
    """Rows grouped by sessions of the columns `by`: a session ends when nothing comes for `gap`.

        streams.sessions(views, "at", "30 minutes", by="member", delay="10 minutes").count()

    The column `session_window` has its start, and its end: the last row's time and `gap`.  Output mode append.
    """
    if not _names(by):
        raise SparkOptionError("a session needs columns to group by", hint='name the columns: by="member"')
    return _marked(rows, time, delay).groupBy(F.session_window(time, gap), *_names(by))


def top_k(counts: DataFrame, k: int, *, rank_by: str = "count", within: str | Sequence[str] = "window") -> DataFrame:
    """The k rows with the largest `rank_by` of each window, with their `rank` from 1; equal ones by the other columns.

        streams.top_k(streams.windowed(views, "at", "5 minutes", by="page", delay="10 minutes").count(), 3)

    `counts` are aggregated rows, one for each key and window; `within` are its columns that make a group, and the
    others must be comparable.  In a stream its output mode is append, so each window is emitted once, when it is
    complete. A task has all keys of a window at a time.
    """
    if k < 1:
        raise SparkOptionError(f"the first {k} rows of a window", hint="k is 1 or more")
    groups = _names(within)
    others = [name for name in counts.columns if name not in (*groups, rank_by)]
    # In ascending order of this struct the largest come first.
    row = F.struct((-F.col(rank_by)).alias("_before"), *others, F.col(rank_by))
    ordered = F.slice(F.array_sort(F.collect_list(row)), 1, k)
    found = (
        counts.groupBy(*groups).agg(ordered.alias("_rows")).select(*groups, F.posexplode("_rows").alias("_at", "_row"))
    )
    return found.select(*groups, (F.col("_at") + 1).alias("rank"), *(f"_row.{name}" for name in (*others, rank_by)))


def dedup(
    rows: DataFrame, by: str | Sequence[str] = PLACE, *, time: str | None = None, delay: str | None = None
) -> DataFrame:
    """The first row of each value of `by`; a repetition that comes within `delay` of event time is left out.

        streams.dedup(clicks, "click_id", time="at", delay="1 hour")
        streams.dedup(replayed)                  # by topic, partition and offset; the rows have a watermark

    `delay` bounds the state: a repetition that comes later is let through, unless it is late itself.
    """
    if (time is None) != (delay is None):
        raise SparkOptionError("time and delay go together", hint='time="at", delay="10 minutes"')
    marked = rows if time is None else _marked(rows, time, delay)
    return marked.dropDuplicatesWithinWatermark(_names(by))


def _marked(rows: DataFrame, time: str, delay: str | None) -> DataFrame:
    return rows if delay is None else rows.withWatermark(time, delay)


def _names(by: str | Sequence[str]) -> list[str]:
    return [by] if isinstance(by, str) else list(by)
