from __future__ import annotations

import json

import pytest

from ottla.demo.checking import (
    GAP_MS,
    FoundRows,
    Letter,
    MemberSession,
    Sent,
    differences,
    result_lines,
    sessions,
    top_pages,
    watermark_ms,
)
from ottla.model.limits import MINUTE_MS

# 2011-06-12 09:00 UTC
NINE_MS = 1_307_869_200_000
HTML = b"<html></html>"


def _sent() -> Sent:
    """A view of each of four members each minute of an hour, one much later, and a malformed click."""
    sent = Sent()
    for minute, member in [*((minute, member) for minute in range(60) for member in range(4)), (130, 9)]:
        page = f"/jobs/{(minute + member) % 5}"
        facts = {"at_ms": NINE_MS + minute * MINUTE_MS, "member": member, "page": page}
        sent.add("page-views", json.dumps(facts).encode())
    sent.add("clicks", HTML)
    return sent


def _found() -> FoundRows:
    views = _sent().views
    # One that was late for its window.
    late = [views[40]]
    in_time = [view for view in views if view not in late]
    until_ms = watermark_ms(views)
    return FoundRows(
        sorted(top_pages(in_time, until_ms)), late, sorted(sessions(views, until_ms)), [Letter("clicks", 0, 7, HTML)]
    )


def test_nothing_differs_when_all_that_was_sent_is_found() -> None:
    assert list(differences(_found(), _sent())) == []


def test_other_events_are_neither_views_nor_malformed() -> None:
    sent = Sent()
    sent.add("clicks", b"{}")
    assert (sent.views, sent.malformed.total()) == ([], 0)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (_found()._replace(top_pages=_found().top_pages[1:]), "top pages: 1 row missing, 0 wrong"),
        (
            _found()._replace(top_pages=[*_found().top_pages, _found().top_pages[0]]),
            "top pages: 0 rows missing, 1 wrong",
        ),
        (
            _found()._replace(sessions=[_found().sessions[0]._replace(views=61), *_found().sessions[1:]]),
            "sessions: 1 row missing, 1 wrong",
        ),
        (_found()._replace(letters=[]), "dead letters: 1 row missing, 0 wrong"),
        (
            _found()._replace(letters=[Letter("searches", 0, 7, HTML)]),
            "dead letters: 1 row missing, 1 wrong",
        ),
    ],
)
def test_a_row_too_few_or_too_many_is_reported(found: FoundRows, problem: str) -> None:
    assert list(differences(found, _sent())) == [problem]


def test_a_late_view_that_was_not_kept_makes_the_top_pages_differ() -> None:
    assert any("top pages" in each for each in differences(_found()._replace(late_views=[]), _sent()))


def test_a_late_view_that_was_never_sent_is_reported() -> None:
    invented = _found().late_views[0]._replace(member=99)
    problems = list(differences(_found()._replace(late_views=[*_found().late_views, invented]), _sent()))
    assert problems == ["late page views: 1 were never sent"]


def test_busiest_window_and_longest_session_are_found() -> None:
    found = _found()
    # Four views of each of five pages; of equal windows the first counts.
    assert [(page.window_start_ms, page.rank, page.views) for page in found.busiest] == [
        (NINE_MS, rank, 4) for rank in (1, 2, 3)
    ]
    assert found.longest == MemberSession(0, NINE_MS, NINE_MS + 59 * MINUTE_MS + GAP_MS, 60)
    empty = FoundRows([], [], [], [])
    assert (empty.busiest, empty.longest, empty.letters_by_topic) == ([], None, {})
    assert found.letters_by_topic == {"clicks": 1}


def test_results_are_reported_with_an_example_of_a_dead_letter() -> None:
    text = "\n".join(result_lines(_found(), replayable_count=1))
    assert "12 windows of five minutes; in the busiest, at 09:00:" in text
    assert "sessions   4; the longest has 60 views in 59 minutes" in text
    assert "1 events are dead letters; 1 can be put back" in text
    assert "b'<html>" in text


def test_a_day_without_windows_or_letters_is_reported_as_well() -> None:
    text = "\n".join(result_lines(FoundRows([], [], [], []), replayable_count=0))
    assert "top pages" not in text
    assert "0 events are dead letters" in text
