from __future__ import annotations

from ottla.demo.checking import DELAY_MS, GAP_MS, MemberSession, TopPage, View, sessions, top_pages, watermark_ms
from ottla.model.limits import MINUTE_MS

# 2011-06-12 09:00 UTC
NINE_MS = 1_307_869_200_000
LATER_MS = NINE_MS + 24 * 60 * MINUTE_MS


def _view(minute: float, member: int, page: str = "/feed") -> View:
    return View(NINE_MS + int(minute * MINUTE_MS), member, page)


def test_first_three_pages_of_each_window_are_found_in_their_order() -> None:
    pages = ["/a", "/b", "/b", "/c", "/c", "/d"]
    views = [_view(index / 10, index, page) for index, page in enumerate(pages)] + [_view(5, 1, "/e")]
    assert top_pages(views, LATER_MS) == {
        TopPage(NINE_MS, 1, "/b", 2),
        TopPage(NINE_MS, 2, "/c", 2),
        TopPage(NINE_MS, 3, "/a", 1),
        TopPage(NINE_MS + 5 * MINUTE_MS, 1, "/e", 1),
    }


def test_window_is_returned_when_the_watermark_is_at_its_end() -> None:
    views = [_view(1, 1)]
    end_ms = NINE_MS + 5 * MINUTE_MS
    assert top_pages(views, end_ms - 1) == set()
    assert len(top_pages(views, end_ms)) == 1


def test_session_ends_with_the_first_silence_that_is_longer_than_the_gap() -> None:
    views = [_view(minute, 7) for minute in (100, 0, 30, 61)] + [_view(10, 8)]

    def session(member: int, first: int, last: int, count: int) -> MemberSession:
        return MemberSession(member, NINE_MS + first * MINUTE_MS, NINE_MS + last * MINUTE_MS + GAP_MS, count)

    assert sessions(views, LATER_MS) == {
        session(7, 0, 30, 2),
        session(7, 61, 61, 1),
        session(7, 100, 100, 1),
        session(8, 10, 10, 1),
    }


def test_session_is_returned_when_the_watermark_is_at_its_end() -> None:
    views = [_view(0, 7)]
    assert sessions(views, NINE_MS + GAP_MS - 1) == set()
    assert len(sessions(views, NINE_MS + GAP_MS)) == 1


def test_watermark_is_the_latest_time_less_the_delay_in_any_order() -> None:
    assert watermark_ms([_view(3, 1), _view(9, 1), _view(1, 1)]) == NINE_MS + 9 * MINUTE_MS - DELAY_MS


def test_without_views_there_is_nothing() -> None:
    assert top_pages([], LATER_MS) == set()
    assert sessions([], LATER_MS) == set()
