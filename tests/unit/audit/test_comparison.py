from __future__ import annotations

from uuid import UUID

import pytest

from ottla.audit.comparison import compare
from ottla.model.errors import ConfigError
from tests.unit.audit.samples import HOUR_MS, TEN_MINUTES_MS, count


def test_loss_and_surplus_of_each_tier_are_reported_by_window() -> None:
    counts = [
        count("producer", 60, counter=1),
        count("producer", 40, counter=2),
        count("broker", 100),
        count("lake", 97),
        count("producer", 5, start_ms=HOUR_MS),
        count("broker", 6, start_ms=HOUR_MS),
        count("lake", 7, start_ms=HOUR_MS),
    ]
    found = {
        (line.window.start_ms, line.tier): (
            line.records,
            line.expected_records,
            line.missing_records,
            line.surplus_records,
        )
        for line in compare(counts, HOUR_MS)
    }
    assert found == {
        (0, "producer"): (100, None, 0, 0),
        (0, "broker"): (100, 100, 0, 0),
        (0, "lake"): (97, 100, 3, 0),
        (HOUR_MS, "producer"): (5, None, 0, 0),
        (HOUR_MS, "broker"): (6, 5, 0, 1),
        (HOUR_MS, "lake"): (7, 6, 0, 1),
    }


def test_small_windows_are_summed_up() -> None:
    counts = [count("broker", 10, start_ms=start_ms) for start_ms in range(0, 2 * HOUR_MS, TEN_MINUTES_MS)]
    assert [(line.window.start_ms, line.records) for line in compare(counts, HOUR_MS)] == [(0, 60), (HOUR_MS, 60)]


def test_counts_by_windows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="tier broker counts clicks by windows of 3600000 ms"):
        compare([count("broker", 1, window_ms=HOUR_MS)], TEN_MINUTES_MS)


def test_tier_that_has_no_count_in_a_window_lacks_everything() -> None:
    lines = compare([count("broker", 9)], HOUR_MS, tiers=["lake"])
    assert [(line.tier, line.missing_records, line.completeness) for line in lines] == [
        ("broker", 0, None),
        ("lake", 9, 0.0),
    ]


def test_lateness_is_counted_and_measured_from_the_end_of_the_window() -> None:
    counts = [count("lake", 9, late=3, seen_ms=HOUR_MS + 70, window_ms=HOUR_MS), count("broker", 9, seen_ms=5)]
    found = {line.tier: (line.late_records, line.late_ms) for line in compare(counts, HOUR_MS)}
    assert found == {"lake": (3, 70), "broker": (0, 0)}


def test_tiers_of_other_names_come_after_the_known_ones() -> None:
    tiers = ["zone", "lake", "mirror", "archive", "broker", "producer"]
    lines = compare([count(tier, 1) for tier in tiers], HOUR_MS)
    assert [line.tier for line in lines] == ["producer", "broker", "mirror", "lake", "archive", "zone"]


def test_sum_without_a_gone_topic_expires_with_the_counts_that_it_was_made_of() -> None:
    gone_id = UUID(int=8)
    counts = [count("producer", 130, late=110, seen_ms=9), count("broker", 100, topic_id=gone_id, seen_ms=5)]
    (line,) = compare(counts, HOUR_MS, gone_ids=[gone_id], seen_since_ms=5)
    assert (line.tier, line.records, line.late_records) == ("producer", 30, 30)
    assert compare(counts, HOUR_MS, gone_ids=[gone_id], seen_since_ms=6) == []
