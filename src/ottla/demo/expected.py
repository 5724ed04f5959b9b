"""What the streams must find in the page views that were sent, counted in plain Python.  Pure.

A stream tells a window or a session when its watermark has passed the end: the latest event's time less the delay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.demo.day import MINUTE_MS

# Rows may come so late: a window or a session is told so long after its end, in event time.
DELAY_MS: Final = 10 * MINUTE_MS
TOP_PAGES_MS: Final = 5 * MINUTE_MS
TOP_PAGES_COUNT: Final = 3
# A longer silence ends a session.
GAP_MS: Final = 30 * MINUTE_MS


class View(NamedTuple):
    at_ms: int
    member: int
    page: str


class TopPage(NamedTuple):
    window_start_ms: int
    rank: int
    page: str
    views: int


class Session(NamedTuple):
    """`end_ms`: its last view and the gap, exclusive."""

    member: int
    begin_ms: int
    end_ms: int
    views: int


def watermark_ms(views: Iterable[View]) -> int:
    """At the end of all these views."""
    return max((view.at_ms for view in views), default=0) - DELAY_MS


def top_pages(views: Iterable[View], until_ms: int) -> set[TopPage]:
    """Of the windows that end by `until_ms`; equal counts by the page's name."""
    windows: dict[int, Counter[str]] = defaultdict(Counter)
    for view in views:
        windows[view.at_ms - view.at_ms % TOP_PAGES_MS][view.page] += 1
    return {
        TopPage(start_ms, rank, page, count)
        for start_ms, pages in windows.items()
        if start_ms + TOP_PAGES_MS <= until_ms
        for rank, (page, count) in enumerate(
            sorted(pages.items(), key=lambda each: (-each[1], each[0]))[:TOP_PAGES_COUNT], 1
        )
    }


def sessions(views: Iterable[View], until_ms: int) -> set[Session]:
    """Those that end by `until_ms`.  A member has one at a time, so they differ."""
    times: dict[int, list[int]] = defaultdict(list)
    for view in views:
        times[view.member].append(view.at_ms)
    found = (session for member, moments in times.items() for session in _sessions_of(member, sorted(moments)))
    return {session for session in found if session.end_ms <= until_ms}


def _sessions_of(member: int, moments: list[int]) -> Iterable[Session]:
    first = 0
    for at in range(1, len(moments) + 1):
        # Spark's sessions that touch are one: at exactly the gap it goes on.
        if at == len(moments) or moments[at] > moments[at - 1] + GAP_MS:
            yield Session(member, moments[first], moments[at - 1] + GAP_MS, at - first)
            first = at
