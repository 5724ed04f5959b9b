from __future__ import annotations

from ottla.demo.watching import Minutes
from ottla.model.limits import HOUR_MS, MINUTE_MS

NINE_MS = 9 * HOUR_MS


def _minutes() -> Minutes:
    return Minutes(["page-views", "clicks"])


def test_events_are_counted_in_the_minute_in_which_they_happened() -> None:
    minutes = _minutes()
    for page in (b"/feed", b"/jobs", b"/jobs"):
        minutes.add("page-views", 0, NINE_MS, b'{"page":"%s"}' % page)
    minutes.add("page-views", 1, NINE_MS + MINUTE_MS, b'{"page":"/feed"}')
    minutes.add("clicks", 0, NINE_MS + MINUTE_MS, b"{}")
    assert minutes.events_count == 5
    assert minutes.newest(8) == [("09:00", [3, 0], "/jobs"), ("09:01", [1, 1], "/feed")]
    assert minutes.newest(1) == [("09:01", [1, 1], "/feed")]


def test_minutes_end_where_the_slowest_topic_is() -> None:
    minutes = _minutes()
    minutes.add("page-views", 0, NINE_MS + 5 * MINUTE_MS, b'{"page":"/feed"}')
    minutes.add("clicks", 0, NINE_MS, b"{}")
    assert minutes.newest(8) == [("09:00", [0, 1], "")]


def test_an_event_an_hour_older_than_its_partition_is_late_and_counted_in_its_minute() -> None:
    minutes = _minutes()
    minutes.add("clicks", 0, NINE_MS, b"{}")
    minutes.add("clicks", 0, NINE_MS - HOUR_MS, b"{}")
    minutes.add("clicks", 1, NINE_MS - 3 * HOUR_MS, b"{}")
    assert minutes.late_count == 0, "an hour behind is not more than an hour, and each partition has its own time"
    minutes.add("clicks", 0, NINE_MS - HOUR_MS - 1, b"{}")
    assert minutes.late_count == 1


def test_malformed_events_are_counted_like_all_others_and_apart() -> None:
    minutes = _minutes()
    for value in (b"", b'{"page":', b"<html>", b"\xc3\x28{}"):
        minutes.add("page-views", 0, NINE_MS, value)
    assert minutes.malformed_count == minutes.events_count == 4
    assert minutes.newest(1) == [("09:00", [4, 0], "")]
