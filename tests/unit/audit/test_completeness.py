from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.audit.completeness import Completeness, CompletenessRules, completeness_of
from ottla.audit.count import AuditMessage
from ottla.audit.snapshot import AuditSnapshot
from ottla.model.errors import ConfigError
from ottla.model.windows import Window
from tests.unit.audit.samples import HOUR_MS, count, report

RULES = CompletenessRules(delay_ms=1_000)
LONG_AGO_MS = 100 * HOUR_MS


def found(*messages: AuditMessage, now_ms: int = 2 * HOUR_MS + 1_000) -> Completeness:
    return completeness_of(AuditSnapshot(messages), "clicks", RULES, now_ms)


def test_topic_is_complete_until_the_first_window_that_lacks_records() -> None:
    told = report("broker", 3 * HOUR_MS + 1_000)
    full, short = (
        [count("broker", 1_000, start_ms=start) for start in (0, HOUR_MS, 2 * HOUR_MS)],
        [count("lake", records, start_ms=at * HOUR_MS) for at, records in enumerate((1_000, 998, 1_000))],
    )
    status = found(told, *full, *short, now_ms=3 * HOUR_MS + 1_000)
    assert status.until_ms == HOUR_MS
    assert [line.missing_records for line in status.short] == [2]
    assert status.is_complete(Window(0, HOUR_MS))
    assert not status.is_complete(Window(HOUR_MS, HOUR_MS))
    # Whole hours are made of hours; less than one is not.
    assert not status.is_complete(Window(0, 2 * HOUR_MS))
    for window in (Window(0, 10_000), Window(HOUR_MS // 2, HOUR_MS)):
        with pytest.raises(ConfigError, match="is not made of the rules' windows of 3600000 ms"):
            status.is_complete(window)
    corrected = found(told, *full, *short, count("lake", 1, start_ms=HOUR_MS, counter=2), now_ms=3 * HOUR_MS + 1_000)
    assert corrected.until_ms == 3 * HOUR_MS, "999 of 1,000 are 99.9 %"


def test_window_is_open_until_every_counter_before_has_reported_its_end_and_the_delay() -> None:
    counts = [count("producer", 5), count("broker", 5), count("lake", 5)]
    late = found(*counts, report("producer", 2 * HOUR_MS), report("broker", HOUR_MS + 999), now_ms=HOUR_MS + 1_000)
    assert late.until_ms is None
    in_time = found(*counts, report("producer", 2 * HOUR_MS), report("broker", HOUR_MS + 1_000), now_ms=HOUR_MS + 1_000)
    assert in_time.until_ms == HOUR_MS


def test_tiers_after_are_not_waited_for() -> None:
    counts = [count("broker", 5), count("lake", 5)]
    assert found(*counts, report("broker", 2 * HOUR_MS), report("lake", 7)).until_ms == HOUR_MS


def test_counter_that_has_ended_is_not_waited_for_and_one_that_fell_silent_is_named() -> None:
    counts = [count("producer", 5), count("lake", 5)]
    ended = found(*counts, report("producer", 10, ended=True))
    assert (ended.until_ms, ended.silent) == (2 * HOUR_MS, ())
    live = report("producer", 2 * HOUR_MS + 1_000, counter=2)
    silent = found(*counts, report("producer", 10), live)
    assert (silent.until_ms, [each.until_ms for each in silent.silent]) == (2 * HOUR_MS, [10])


def test_clock_alone_says_nothing_when_all_counters_fell_silent() -> None:
    counts = [count("producer", 5), count("lake", 5)]
    outage = report("producer", 10)
    assert found(*counts, outage).until_ms is None
    trusting = replace(RULES, trusts_silence=True)
    now_ms = 2 * HOUR_MS + 1_000
    assert completeness_of(AuditSnapshot([*counts, outage]), "clicks", trusting, now_ms).until_ms == 2 * HOUR_MS


def test_partition_that_is_not_counted_up_to_its_end_is_waited_for_however_long_it_takes() -> None:
    counts = [count("broker", 400), count("lake", 500)]
    quiet = report("broker", 2 * HOUR_MS, counter=1, counters=2)
    unknown = found(*counts, quiet)
    assert (unknown.until_ms, unknown.behind_count) == (None, 1)
    assert "have not counted 1 of the partitions" in str(unknown)
    behind = report("broker", 0, counter=2, counters=2, sequence=0)
    assert found(*counts, quiet, behind, now_ms=LONG_AGO_MS).until_ms is None
    caught_up = report("broker", HOUR_MS + 1_000, counter=2, counters=2, sequence=9)
    assert found(*counts, quiet, behind, caught_up, now_ms=LONG_AGO_MS).until_ms == HOUR_MS


def test_partitions_of_a_topic_that_is_gone_are_not_waited_for() -> None:
    counts = [count("broker", 5), count("lake", 5)]
    old = [report("broker", 1, counter=1, counters=2), report("broker", 1, ended=True, counter=2, counters=2)]
    new = report("broker", 2 * HOUR_MS + 1_000, counter=3, counters=1, topic_id=UUID(int=9))
    assert found(*counts, *old, new).until_ms == 2 * HOUR_MS
    unended = report("broker", 1, counter=1, counters=1, topic_id=UUID(int=8))
    assert found(*counts, unended, new).until_ms == 2 * HOUR_MS, "topics have a name one after the other"


OLD_ID, NEW_ID = UUID(int=8), UUID(int=9)


def test_what_a_deleted_topic_lacked_is_not_expected_of_the_one_that_has_its_name() -> None:
    old = [count("broker", 100, topic_id=OLD_ID), count("lake", 50, topic_id=OLD_ID)]
    new = [count("broker", 30, topic_id=NEW_ID), count("lake", 30, topic_id=NEW_ID)]
    # Producers do not know which of them they wrote to.
    counts = [*old, *new, count("producer", 130)]
    ended = report("broker", 1, ended=True, counters=1, topic_id=OLD_ID)
    live = report("broker", 2 * HOUR_MS + 1_000, counters=1, topic_id=NEW_ID)
    told = report("producer", 2 * HOUR_MS + 1_000)
    status = found(*counts, ended, live, told)
    assert (status.until_ms, status.short) == (2 * HOUR_MS, ())
    (short,) = found(*counts, count("producer", 5, counter=2), ended, live, told).short
    assert (short.records, short.expected_records) == (30, 35), "what no broker counted of the old one is missed"
    (both,) = found(*counts, ended, told).short
    assert (both.records, both.expected_records) == (80, 130), "a topic that is gone is compared until another comes"


def test_hour_after_one_that_lost_records_is_complete() -> None:
    counts = [
        count(tier, records, start_ms=start)
        for tier, records, start in (("broker", 10, 0), ("lake", 9, 0), ("broker", 10, HOUR_MS), ("lake", 10, HOUR_MS))
    ]
    status = found(*counts, report("broker", 2 * HOUR_MS + 1_000))
    assert status.until_ms == 0 or status.until_ms is None
    assert not status.is_complete_between(None, 2 * HOUR_MS)
    assert status.is_complete_between(HOUR_MS, 2 * HOUR_MS)
    assert not status.is_complete_between(HOUR_MS, 3 * HOUR_MS), "no counter has reported it"


def test_windows_of_which_counts_may_have_expired_are_no_losses() -> None:
    now_ms = 40 * 24 * HOUR_MS
    fresh = count("broker", 5, start_ms=39 * 24 * HOUR_MS, seen_ms=now_ms)
    loaded = count("lake", 5, start_ms=39 * 24 * HOUR_MS, seen_ms=now_ms)
    # The load's count of it has expired.
    old = count("broker", 7, seen_ms=5)
    status = found(old, fresh, loaded, report("broker", now_ms), now_ms=now_ms)
    assert status.short == ()
    assert status.until_ms == now_ms - HOUR_MS


def test_nothing_is_complete_while_no_counter_has_spoken() -> None:
    status = found(count("lake", 5))
    assert status.until_ms is None
    assert "no counter before this tier has reported anything" in str(status)


def test_hours_without_a_record_are_complete_when_their_end_was_reported() -> None:
    status = found(count("broker", 5), count("lake", 5), report("broker", LONG_AGO_MS), now_ms=LONG_AGO_MS)
    assert status.until_ms == LONG_AGO_MS - HOUR_MS


@pytest.mark.parametrize(
    "change", [{"threshold": 0.0}, {"threshold": 1.1}, {"delay_ms": -1}, {"silence_ms": -1}, {"window_ms": 0}]
)
def test_rules_that_cannot_be_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        CompletenessRules(**change)  # type: ignore[arg-type]
