from __future__ import annotations

import pytest

from ottla.demo.processes import Checked, Produced, Watched
from ottla.demo.report import TIERS, problems_of
from tests.unit.demo.samples import EVENTS, LETTERS, RECORDS, finished, jobs_done, tier_lines

HOUR_TEN = "2011-06-12T10:00Z"


def test_nothing_is_wrong_when_all_is_well() -> None:
    assert list(problems_of(finished(), EVENTS)) == []


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("off_by", [-1, 1])
def test_one_record_too_few_or_too_many_is_named_by_topic_and_hour_wherever_it_is(tier: str, off_by: int) -> None:
    lines = tier_lines({(tier, "clicks", 10): RECORDS + off_by})
    counts = ", ".join(f"{each} {RECORDS + off_by * (each == tier)}" for each in TIERS)
    assert f"topic clicks, hour {HOUR_TEN}: {counts}" in problems_of(finished(jobs_done(lines)), EVENTS)


def test_a_record_in_another_hour_is_two_differences_though_the_sums_agree() -> None:
    lines = tier_lines({("lake", "clicks", 10): RECORDS - 1, ("lake", "clicks", 11): RECORDS + 1})
    assert len(list(problems_of(finished(jobs_done(lines)), EVENTS))) == 2


def test_a_tier_that_has_not_counted_a_topic_is_named() -> None:
    lines = [line for line in tier_lines() if (line.tier, line.topic) != ("broker", "searches")]
    assert list(problems_of(finished(jobs_done(lines)), EVENTS)) == ["tier broker has not counted searches"]


def test_events_that_no_tier_has_are_missed() -> None:
    lacking = jobs_done(tier_lines({(tier, "clicks", 10): RECORDS - 1 for tier in TIERS}))
    (problem,) = problems_of(finished(lacking), EVENTS)
    assert problem == f"of {EVENTS:,} events {EVENTS:,} were acknowledged and {EVENTS - 1:,} counted"


def test_a_row_that_stands_in_the_table_twice_is_a_problem() -> None:
    twice = jobs_done(duplicates={"clicks": 1})
    assert list(problems_of(finished(twice), EVENTS)) == ["1 rows of clicks in the table are duplicates"]


def test_an_event_that_is_neither_processed_nor_set_aside_is_a_problem() -> None:
    (problem,) = problems_of(finished(jobs_done(well_formed_count=EVENTS - 4)), EVENTS)
    assert problem == f"{EVENTS - 4:,} events were processed and 3 set aside"


def test_online_consumer_meets_the_malformed_events_that_are_set_aside() -> None:
    (problem,) = problems_of(finished(Watched(EVENTS, 5, 2, [], 1_100)), EVENTS)
    assert problem == "the online consumer met 2 malformed events"


def test_what_the_check_found_is_a_problem() -> None:
    found = finished(Checked(["sessions: 1 row missing, 0 wrong"], LETTERS, LETTERS, []))
    assert list(problems_of(found, EVENTS)) == ["sessions: 1 row missing, 0 wrong"]


def test_an_acknowledgement_that_did_not_come_is_a_problem() -> None:
    progress = finished()
    progress.take("web-1", Produced(EVENTS - 1, 0, 1_000))
    assert len(list(problems_of(progress, EVENTS))) == 1


def test_a_dead_letter_that_cannot_be_put_back_is_a_problem() -> None:
    found = finished(Checked([], LETTERS, LETTERS - 1, []))
    assert list(problems_of(found, EVENTS)) == ["2 of 3 dead letters can be put back"]
