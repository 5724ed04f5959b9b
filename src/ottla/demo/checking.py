"""A process of the demo: compares what the jobs found with what plain Python counts in the events that were sent.

A stream returns a window or a session when its watermark has passed the end: the latest event's time less the delay.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from deltalake import DeltaTable

from ottla.client.wire.cluster import Cluster
from ottla.dead_letters import Replay, dead_letter_topic
from ottla.demo.events import PAGE_VIEWS, clock_name, events_of, shares_of
from ottla.demo.processes import Checked, Report, Task, run_task
from ottla.model.counted import counted
from ottla.model.limits import MINUTE_MS

# Tables of the lake.  `EVENTS`: every record, by topic and hour.
EVENTS: Final = "events"
DEAD_LETTERS: Final = "dead-letters"
TOP_PAGES: Final = "top-pages"
LATE_VIEWS: Final = "late-views"
SESSIONS: Final = "sessions"
AUDIT: Final = "audit"

# The audit's tier of what is read back from a table's files, and not by the code that wrote them.
TABLE: Final = "table"

# Rows may come so late: a window or a session is returned so long after its end, in event time.
DELAY_MS: Final = 10 * MINUTE_MS
TOP_PAGES_MS: Final = 5 * MINUTE_MS
TOP_PAGES_COUNT: Final = 3
# A longer silence ends a session.
GAP_MS: Final = 30 * MINUTE_MS

# A line of a narrow terminal has room for so many, when they are text.
VALUE_BYTES_SHOWN: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class View(NamedTuple):
    at_ms: int
    member: int
    page: str


class TopPage(NamedTuple):
    window_start_ms: int
    rank: int
    page: str
    views: int


class MemberSession(NamedTuple):
    """`end_ms`: its last view and the gap, exclusive."""

    member: int
    begin_ms: int
    end_ms: int
    views: int


class Letter(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class Sent:
    """The well-formed page views, and every malformed event as its topic and value."""

    views: list[View] = field(default_factory=list)
    malformed: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    def add(self, topic: str, value: bytes) -> None:
        try:
            facts = json.loads(value)
        except ValueError:
            self.malformed[topic, value] += 1
            return
        if topic == PAGE_VIEWS:
            self.views.append(View(facts["at_ms"], facts["member"], facts["page"]))


class FoundRows(NamedTuple):
    """The rows of the tables; a row that is there twice is in the list twice."""

    top_pages: list[TopPage]
    late_views: list[View]
    sessions: list[MemberSession]
    letters: list[Letter]

    @property
    def letters_by_topic(self) -> dict[str, int]:
        return dict(sorted(Counter(letter.topic for letter in self.letters).items()))

    @property
    def longest(self) -> MemberSession | None:
        """The session with the most views."""
        return max(self.sessions, key=lambda each: (each.views, -each.member), default=None)

    @property
    def busiest(self) -> list[TopPage]:
        """The top pages of the window in which they were viewed most."""
        views: Counter[int] = Counter()
        for page in self.top_pages:
            views[page.window_start_ms] += page.views
        start_ms = max(views, key=lambda each: (views[each], -each), default=None)
        return sorted(page for page in self.top_pages if page.window_start_ms == start_ms)


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


def sessions(views: Iterable[View], until_ms: int) -> set[MemberSession]:
    """Those that end by `until_ms`.  A member has one at a time, so they differ."""
    found: dict[int, list[MemberSession]] = defaultdict(list)
    for at_ms, member, _ in sorted(views):
        of_member = found[member]
        # Spark joins sessions that touch: a view at exactly the gap belongs to the session before it.
        if of_member and at_ms <= of_member[-1].end_ms:
            former = of_member.pop()
            of_member.append(former._replace(end_ms=at_ms + GAP_MS, views=former.views + 1))
        else:
            of_member.append(MemberSession(member, at_ms, at_ms + GAP_MS, 1))
    return {session for of_member in found.values() for session in of_member if session.end_ms <= until_ms}


def differences(found: FoundRows, sent: Sent) -> Iterator[str]:
    """Nothing when all is as it must be.  Late views are left out of the top pages, and of nothing else."""
    until_ms = watermark_ms(sent.views)
    in_time = Counter(sent.views)
    in_time.subtract(found.late_views)
    never_sent = (-in_time).total()
    if never_sent:
        yield f"late page views: {never_sent:,} were never sent"
    yield from _difference("top pages", found.top_pages, top_pages((+in_time).elements(), until_ms))
    yield from _difference("sessions", found.sessions, sessions(sent.views, until_ms))
    letters = [(letter.topic, letter.value) for letter in found.letters]
    yield from _difference("dead letters", letters, list(sent.malformed.elements()))


def _difference(
    what: str, found: Collection[tuple[object, ...]], expected: Collection[tuple[object, ...]]
) -> Iterator[str]:
    """A row that is there twice is wrong, too."""
    surplus = Counter(found)
    surplus.subtract(Counter(expected))
    missing, wrong = (-surplus).total(), (+surplus).total()
    if missing or wrong:
        yield f"{what}: {counted(missing, 'row')} missing, {wrong:,} wrong"


def result_lines(found: FoundRows, replayable_count: int) -> Iterator[str]:
    """What the streams have found, and what was set aside, for the report."""
    if busiest := found.busiest:
        windows_count = len({page.window_start_ms for page in found.top_pages})
        at = clock_name(busiest[0].window_start_ms)
        yield f"top pages  of {windows_count:,} windows of five minutes; in the busiest, at {at}:"
        yield "           " + ", ".join(f"{page.page} {page.views:,}" for page in busiest)
    yield f"late       {len(found.late_views):,} page views, too late for their windows: in a table of their own"
    longest = found.longest or MemberSession(0, 0, GAP_MS, 0)
    # From the first view to the last.
    minutes = (longest.end_ms - GAP_MS - longest.begin_ms) // MINUTE_MS
    yield f"sessions   {len(found.sessions):,}; the longest has {longest.views:,} views in {minutes:,} minutes"
    yield f"malformed  {len(found.letters):,} events are dead letters; {replayable_count:,} can be put back"
    if found.letters:
        yield "           " + ", ".join(f"{topic} {count:,}" for topic, count in found.letters_by_topic.items())
        first = found.letters[0]
        yield f"           {first.topic} {first.partition}:{first.offset} {first.value[:VALUE_BYTES_SHOWN]!r}"


def lake_files(table: Path) -> list[tuple[int, Path]]:
    """The size and the path of every file that belongs to the table now, the largest first."""
    actions = DeltaTable(str(table)).get_add_actions(flatten=True)
    sizes, paths = (actions.column(name).to_pylist() for name in ("size_bytes", "path"))
    return sorted(((size, table / path) for size, path in zip(sizes, paths, strict=True)), reverse=True)


def _read(lake: Path) -> FoundRows:
    def rows(table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Moments as milliseconds.  There is no table where nothing was ever written to it."""
        if DeltaTable.is_deltatable(str(lake / table)):
            found = DeltaTable(str(lake / table)).to_pyarrow_table(columns=list(columns))
            for row in zip(*(found.column(name).to_pylist() for name in columns), strict=True):
                yield tuple((each - _EPOCH) // _MS if isinstance(each, datetime) else each for each in row)

    return FoundRows(
        [TopPage(*row) for row in rows(TOP_PAGES, "window_start", "rank", "page", "views")],
        [View(*row) for row in rows(LATE_VIEWS, "at", "member", "page")],
        [MemberSession(*row) for row in rows(SESSIONS, "member", "began_at", "ended_at", "views")],
        sorted(Letter(*row) for row in rows(DEAD_LETTERS, "topic", "partition", "offset", "value")),
    )


def check(task: Task, report: Report) -> None:
    found, sent = _read(Path(task.lake)), Sent()
    for service, count in shares_of(task.events_count).items():
        for event in events_of(service, count, task.seed, task.day_start_ms):
            sent.add(event.topic, event.value)
    with Cluster(task.bootstrap) as cluster:
        # What a replay would put back: the same letters, as the dead-letter topics have them.
        letter_topics = map(dead_letter_topic, found.letters_by_topic)
        replayable_count = sum(Replay(cluster, topic).run(is_dry=True).put_back for topic in letter_topics)
    problems = list(differences(found, sent))
    report(Checked(problems, len(found.letters), replayable_count, list(result_lines(found, replayable_count))))


if __name__ == "__main__":
    run_task(check)
