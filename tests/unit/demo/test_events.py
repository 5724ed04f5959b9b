from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from ottla.demo.events import (
    LATE_MS_MAX,
    LATE_MS_MIN,
    SERVICES,
    TOPICS,
    Event,
    clock_name,
    events_of,
    shares_of,
    yesterday_ms,
)
from ottla.model.limits import DAY_MS, HOUR_MS

# 2011-06-12 00:00 UTC
DAY_START_MS = 1_307_836_800_000


def _day(service: str, count: int = 10_000, seed: int = 1) -> list[Event]:
    return list(events_of(service, count, seed, DAY_START_MS))


def _is_json(event: Event) -> bool:
    try:
        json.loads(event.value)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("service", [service.name for service in SERVICES])
def test_day_of_a_service_has_exactly_the_requested_events_in_order_and_inside_the_day(service: str) -> None:
    for count in (0, 1, 7, 5_000):
        events = _day(service, count)
        assert len(events) == count
        assert all(left.arrival_ms <= right.arrival_ms for left, right in pairwise(events))
        assert all(DAY_START_MS <= event.timestamp_ms <= event.arrival_ms < DAY_START_MS + DAY_MS for event in events)
        assert {event.topic for event in events} <= TOPICS.keys()


def test_same_seed_gives_the_same_day_and_another_seed_another() -> None:
    assert _day("web-1", 500) == _day("web-1", 500)
    assert _day("web-1", 500) != _day("web-1", 500, seed=2)
    assert [event.value for event in _day("web-1", 500)] != [event.value for event in _day("web-2", 500)]


def test_few_members_make_much_of_the_traffic() -> None:
    keys = Counter(event.key for event in _day("web-1"))
    hundred_busiest = sum(count for _, count in keys.most_common(100))
    assert len(keys) > 1_000
    assert hundred_busiest > 1_000, "without skew, a hundred of 20,000 members would make 50 of 10,000 events"


def test_some_events_are_late_by_hours_and_none_by_less() -> None:
    lateness_ms = [event.arrival_ms - event.timestamp_ms for event in _day("search")]
    late = [each for each in lateness_ms if each]
    assert 10 < len(late) < 100
    assert all(LATE_MS_MIN <= each < LATE_MS_MAX for each in late)


def test_malformed_events_are_few_and_keep_their_time_and_key() -> None:
    malformed = [event for event in _day("web-1", 40_000) if not _is_json(event)]
    assert 5 < len(malformed) < 40
    assert all(event.key.startswith(b"m") and event.timestamp_ms >= DAY_START_MS for event in malformed)


def test_well_formed_events_say_when_they_happened() -> None:
    events = [event for event in _day("metrics", 1_000) if _is_json(event)]
    assert all(json.loads(event.value)["at_ms"] == event.timestamp_ms for event in events)


def test_a_click_is_on_a_page_that_its_member_viewed_before() -> None:
    viewed: set[tuple[bytes, str]] = set()
    clicks = 0
    for event in filter(_is_json, _day("web-1", 3_000)):
        visit = event.key, json.loads(event.value)["page"]
        if event.topic == "page-views":
            viewed.add(visit)
        else:
            clicks += 1
            assert visit in viewed
    assert clicks > 500


def test_people_sleep_and_machines_do_not() -> None:
    def by_hour(service: str) -> Counter[int]:
        return Counter((event.arrival_ms - DAY_START_MS) // HOUR_MS for event in _day(service))

    people, machines = by_hour("web-1"), by_hour("metrics")
    assert people[10] > 8 * people[3]
    assert max(machines.values()) - min(machines.values()) <= 60


@pytest.mark.parametrize("events_count", [100, 12_345, 300_000])
def test_shares_of_the_services_make_up_the_whole(events_count: int) -> None:
    shares = shares_of(events_count)
    assert sum(shares.values()) == events_count
    assert min(shares.values()) > 0


def test_yesterday_is_the_last_whole_day() -> None:
    assert yesterday_ms(DAY_START_MS + DAY_MS) == DAY_START_MS
    assert yesterday_ms(DAY_START_MS + 2 * DAY_MS - 1) == DAY_START_MS
    assert clock_name(DAY_START_MS + 9 * HOUR_MS) == "09:00"
