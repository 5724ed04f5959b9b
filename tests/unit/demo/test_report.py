from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import RenderableType

from ottla.demo.events import TOPICS
from ottla.demo.processes import Produced
from ottla.demo.report import (
    AUDIT_HEADING,
    DIFFERENCES_SHOWN,
    TIERS,
    Screen,
    StageTime,
    checked_lines,
    complete_hour_lines,
    difference_lines,
    differences_table,
    measured_lines,
    report_of,
    tiers_table,
)
from ottla.demo.run import next_steps
from ottla.model.limits import HOUR_MS
from tests.unit.demo.samples import DAY_MS, EVENTS, HOURS, RECORDS, finished, jobs_done, tier_lines

COMPLETE = dict.fromkeys(TOPICS, HOURS)
TERMINAL_COLUMNS = 80


def _shown(*said: RenderableType) -> str:
    file = io.StringIO()
    screen = Screen(file)
    for each in said:
        screen.say(each)
    return file.getvalue()


def test_table_has_a_sum_for_each_topic_and_tier() -> None:
    shown = _shown(tiers_table(tier_lines(), COMPLETE))
    assert shown.count(f" {RECORDS * 24} ") == len(TIERS) * len(TOPICS)
    assert shown.count(f" {EVENTS} ") == len(TIERS)
    assert shown.count("24 of 24 h") == len(TOPICS)


def test_hours_that_are_not_complete_are_not_counted_as_such() -> None:
    assert _shown(tiers_table(tier_lines(), COMPLETE | {"clicks": HOURS[1:]})).count("23 of 24 h") == 1


def test_report_of_a_full_day_fits_a_terminal_of_eighty_columns() -> None:
    # The busiest topic of the default day has some 20,000 events in its busiest hour, the others below 10,000.
    busy = {(tier, topic, hour): 20_000 for tier in TIERS for topic in TOPICS for hour in range(24)}
    lines, lossy = tier_lines(busy), tier_lines(busy | {("table", "service-metrics", hour): 0 for hour in range(24)})
    progress = finished(jobs_done(well_formed_count=499_804))
    progress.take("web-1", Produced(500_000, 0, 20_000))
    texts = [
        AUDIT_HEADING,
        *complete_hour_lines(lines, COMPLETE),
        *checked_lines(progress),
        *measured_lines(progress, 59.5, 40_000_000),
    ]
    shown = _shown(tiers_table(lines, COMPLETE), differences_table(lossy), *texts).splitlines()
    # In the last column some terminals begin a new line.
    assert max(len(line.rstrip()) for line in shown) < TERMINAL_COLUMNS
    assert "…" not in "".join(shown)


def test_missing_record_is_shown_where_it_is_missing() -> None:
    lines = tier_lines({("table", "clicks", 9): RECORDS - 1})
    assert _shown(differences_table(lines)).splitlines()[-2].split() == ["2011-06-12T09:00Z", "clicks", *"7776"]
    assert list(difference_lines(lines)) == [
        "topic clicks, hour 2011-06-12T09:00Z: producer 7, broker 7, lake 7, table 6"
    ]


def test_hour_that_a_tier_counted_elsewhere_is_shown_with_its_date() -> None:
    assert "2011-06-11T23:00Z" in _shown(differences_table(tier_lines({("broker", "clicks", -1): 1})))


def test_of_many_differences_the_first_are_shown() -> None:
    shown = _shown(differences_table(tier_lines({("table", topic, hour): 0 for topic in TOPICS for hour in range(24)})))
    assert shown.count("2011-06-12T") == DIFFERENCES_SHOWN
    assert f"{24 * len(TOPICS) - DIFFERENCES_SHOWN} more" in shown


def test_fullest_complete_hour_is_named() -> None:
    lines = tier_lines({(tier, "clicks", hour): 10 + hour for tier in TIERS for hour in (9, 10)})
    assert list(complete_hour_lines(lines, COMPLETE)) == [
        "complete   such as hour 2011-06-12T10:00Z of clicks: 20 of 20"
    ]
    without = COMPLETE | {"clicks": [DAY_MS + 9 * HOUR_MS]}
    assert list(complete_hour_lines(lines, without)) == [
        "complete   such as hour 2011-06-12T09:00Z of clicks: 19 of 19"
    ]
    assert list(complete_hour_lines(lines, {})) == []


def test_report_has_the_results_and_says_that_all_was_checked_unless_there_are_problems() -> None:
    for problems in ([], ["a problem"]):
        shown = _shown(*report_of(finished(), 59.5, 1, problems))
        assert "sessions   201,345" in shown
        assert ("checked    " in shown) == (not problems)


def test_stages_last_until_the_next_one_starts() -> None:
    assert finished().stages == [StageTime("starts", 4_000), StageTime("loads", 4_000)]
    assert f"{EVENTS // 4:,} events/s loaded into 96 files" in "\n".join(measured_lines(finished(), 59.5, 1))


@pytest.mark.parametrize("keep", [None, Path("/data/a day")])
def test_next_steps_can_be_pasted(keep: Path | None) -> None:
    steps = list(next_steps(keep, {"VIRTUAL_ENV": "/elsewhere"}))
    assert any(step.startswith("ottla ") for step in steps)
    if keep is not None:
        assert "ottla serve --data-dir '/data/a day/broker'    # and in another terminal:" in steps
