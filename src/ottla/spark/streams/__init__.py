"""Streams of events, on Spark's own operators: windows, sessions, joins, the last values of a topic, and late rows.

    from ottla.spark import streams

    views = streams.windowed(page_views, "at", "5 minutes", by="page", delay="10 minutes").count()
    top = streams.top_k(views, 3)

windowed, sessions  rows grouped by windows of event time
top_k               the first k rows of each window
dedup               rows without repetitions, by their offsets or by any columns
join_within         two streams, joined where their times are close
ChangingTable       a compacted topic as a table that each batch sees as it is now
LateRows            the rows that a stateful operator drops, as a side output
"""

from __future__ import annotations

from ottla.runtime.installed import naming_what_to_install

with naming_what_to_install():
    from ottla.spark.streams.event_windows import dedup, sessions, top_k, windowed
    from ottla.spark.streams.joins import ChangingTable, join_within
    from ottla.spark.streams.late_rows import LateRows, drops_rows, drops_sessions, drops_windows

__all__ = [
    "ChangingTable",
    "LateRows",
    "dedup",
    "drops_rows",
    "drops_sessions",
    "drops_windows",
    "join_within",
    "sessions",
    "top_k",
    "windowed",
]
