from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest

from ottla.demo.counts import Audit, Bucket, Counts
from ottla.demo.day import HOUR_MS
from ottla.demo.next_steps import next_steps
from ottla.demo.report import difference_lines, hours_table, sums_table
from ottla.demo.screen import PLAIN_WIDTH, Screen
from ottla.demo.services import TOPICS

# 2011-06-12 00:00 UTC, in hours since 1970
FIRST_HOUR = 1_307_836_800_000 // HOUR_MS


def _counts(count: int) -> Counts:
    return Counter({Bucket(topic, FIRST_HOUR + hour): count for topic in TOPICS for hour in range(24)})


def _shown(audit: Audit) -> str:
    file = io.StringIO()
    screen = Screen(file)
    screen.say(hours_table(audit))
    screen.say(sums_table(audit))
    return file.getvalue()


def test_table_has_three_equal_counts_for_each_topic_and_hour() -> None:
    shown = _shown(Audit(_counts(7), _counts(7), _counts(7)))
    assert shown.count("7=7=7") == 24 * len(TOPICS)
    assert "09:00" in shown
    assert shown.count("168") == 3 * len(TOPICS)


def test_tables_of_a_full_day_fit_a_terminal_of_eighty_columns() -> None:
    # The busiest topic of the default day has some 20,000 events in its busiest hour, the others below 10,000.
    counts = _counts(9_999) + Counter({Bucket("page-views", FIRST_HOUR + hour): 20_000 for hour in range(24)})
    lines = _shown(Audit(counts, counts, counts)).splitlines()
    assert PLAIN_WIDTH > max(len(line.rstrip()) for line in lines) <= 80


def test_missing_record_is_shown_where_it_is_missing() -> None:
    loaded = _counts(7)
    loaded[Bucket("clicks", FIRST_HOUR + 9)] = 6
    audit = Audit(_counts(7), _counts(7), loaded)
    assert _shown(audit).count("7=7!=6") == 1
    assert list(difference_lines(audit)) == ["topic clicks, hour 2011-06-12-09: produced 7, stored 7, loaded 6"]


def test_hour_of_another_day_is_shown_with_its_date() -> None:
    stray = Bucket("clicks", FIRST_HOUR - 1)
    counts = _counts(7) + Counter({stray: 1})
    assert "2011-06-11-23" in _shown(Audit(counts, counts, counts))


@pytest.mark.parametrize("keep", [None, Path("/data/a day")])
def test_next_steps_can_be_pasted(keep: Path | None) -> None:
    steps = list(next_steps(keep, {"VIRTUAL_ENV": "/elsewhere"}))
    assert any(step.startswith("ottla ") for step in steps)
    if keep is not None:
        assert "ottla serve --data-dir '/data/a day/broker'      # and in another terminal:" in steps
