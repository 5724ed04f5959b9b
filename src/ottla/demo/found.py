"""What the jobs have found, as their tables say, and whether it is what was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from ottla.demo.expected import Session, TopPage, View, sessions, top_pages, watermark_ms
from ottla.demo.lake import DEAD_LETTERS, LATE_VIEWS, SESSIONS, TOP_PAGES, rows_of
from ottla.demo.sent import Malformed, Sent
from ottla.model.counted import counted

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Letter(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of the tables, each as often as it stands there."""

    top_pages: list[TopPage]
    late_views: list[View]
    sessions: list[Session]
    letters: list[Letter]

    @property
    def letters_by_topic(self) -> dict[str, int]:
        return dict(sorted(Counter(letter.topic for letter in self.letters).items()))

    @property
    def longest(self) -> Session | None:
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


def read_found(lake: Path) -> Found:
    return Found(
        top_pages=[
            TopPage(_ms(start), rank, page, views)
            for start, rank, page, views in rows_of(lake / TOP_PAGES, "window_start", "rank", "page", "views")
        ],
        late_views=[
            View(_ms(at), member, page) for at, member, page in rows_of(lake / LATE_VIEWS, "at", "member", "page")
        ],
        sessions=[
            Session(member, _ms(begin), _ms(end), views)
            for member, begin, end, views in rows_of(lake / SESSIONS, "member", "began_at", "ended_at", "views")
        ],
        letters=sorted(Letter(*row) for row in rows_of(lake / DEAD_LETTERS, "topic", "partition", "offset", "value")),
    )


def differences(found: Found, sent: Sent) -> Iterator[str]:
    """Nothing when all is as it must be.  Late views are left out of the top pages, and of nothing else."""
    until_ms = watermark_ms(sent.views)
    in_time = Counter(sent.views)
    in_time.subtract(found.late_views)
    never_sent = (-in_time).total()
    if never_sent:
        yield f"late page views: {never_sent:,} were never sent"
    yield from _difference("top pages", found.top_pages, top_pages((+in_time).elements(), until_ms))
    yield from _difference("sessions", found.sessions, sessions(sent.views, until_ms))
    letters = [Malformed(letter.topic, letter.value) for letter in found.letters]
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


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
