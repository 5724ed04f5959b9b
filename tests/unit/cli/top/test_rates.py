"""Rates of topics and groups, from two looks at their offsets."""

from __future__ import annotations

from ottla.cli.top.rates import GroupRate, Look, TopicRate, rates_between, rates_object, rates_text
from ottla.model.identifiers import TopicPartition

CLICKS_0, CLICKS_1, VIEWS_0 = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("views", 0)
BEFORE = Look(1_000, {CLICKS_0: 10, CLICKS_1: 5, VIEWS_0: 7}, {"audit": {CLICKS_0: 4, VIEWS_0: 7}})
AFTER = Look(3_000, {CLICKS_0: 30, CLICKS_1: 5, VIEWS_0: 8}, {"audit": {CLICKS_0: 10, VIEWS_0: 7}})


def test_rates_are_of_a_second_and_the_fastest_is_first() -> None:
    rates = rates_between(BEFORE, AFTER)
    assert rates.topics == [TopicRate("clicks", 2, 10.0), TopicRate("views", 1, 0.5)]
    assert rates.groups == [GroupRate("audit", "clicks", 3.0, 20), GroupRate("audit", "views", 0.0, 1)]


def test_partition_that_is_new_gone_or_created_again_is_still() -> None:
    now = Look(2_000, {CLICKS_0: 3, VIEWS_0: 7, TopicPartition("new", 0): 100}, {"new": {CLICKS_0: 2, CLICKS_1: 9}})
    rates = rates_between(BEFORE, now)
    assert {each.topic: each.records_s for each in rates.topics} == {"clicks": 0.0, "views": 0.0, "new": 0.0}
    assert rates.groups == [GroupRate("new", "clicks", 0.0, 1)]


def test_two_looks_at_one_moment_divide_by_no_zero() -> None:
    assert rates_between(BEFORE, BEFORE).topics[0].records_s == 0.0


def test_text_has_a_table_of_topics_and_one_of_groups_with_what_is_left_out() -> None:
    assert rates_text(rates_between(BEFORE, AFTER), 1) == [
        "TOPIC  PARTITIONS RECORDS/S",
        "clicks 2          10.0",
        "... and 1 more",
        "",
        "GROUP TOPIC  RECORDS/S LAG",
        "audit clicks 3.0       20",
        "... and 1 more",
    ]


def test_object_has_all_of_them() -> None:
    found = rates_object(rates_between(BEFORE, AFTER), AFTER)
    assert found["moment_ms"] == 3_000
    assert found["groups"] == [
        {"group": "audit", "topic": "clicks", "records_s": 3.0, "lag_records": 20},
        {"group": "audit", "topic": "views", "records_s": 0.0, "lag_records": 1},
    ]
