"""What a consumer says that it reads."""

from __future__ import annotations

import pytest

from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.model.errors import ConfigError


def test_a_filter_selects_whole_names_and_leaves_out_what_is_denied() -> None:
    chosen = TopicFilter("page-.*", deny="page-test-.*")
    assert chosen.select(["page-views", "page-test-1", "homepage-views", "page-clicks"]) == [
        "page-clicks",
        "page-views",
    ]


def test_topics_of_the_cluster_itself_are_selected_by_a_pattern_that_names_them_only() -> None:
    assert TopicFilter(".*").select(["__consumer_offsets", "clicks"]) == ["clicks"]
    assert TopicFilter("__consumer.*").select(["__consumer_offsets", "clicks"]) == ["__consumer_offsets"]


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'page-\(' is not a pattern"):
        TopicFilter("page-(")
    for pattern in (None, ["a", "b"]):
        with pytest.raises(ConfigError, match="is not a pattern"):
            TopicFilter(pattern)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a pattern"):
        TopicFilter("a", deny=["b"])  # type: ignore[arg-type]


def test_the_streams_of_a_filter_are_those_of_every_topic_that_it_selects() -> None:
    by_filter = Subscription({}, TopicFilter("a|b"), 3)
    assert by_filter.streams_counts(["a", "b", "c"]) == {"a": 3, "b": 3}
    assert Subscription({"a": 2}).streams_counts([]) == {"a": 2}


@pytest.mark.parametrize(
    ("topics", "problem"),
    [
        ({}, "at least one topic"),
        ({"a": 0}, "not 0"),
        ({"a": 10_001}, "not 10001"),
        ({"a": "1"}, "not '1'"),
        ({"a": True}, "not True"),
        ({"no/slash": 1}, "no/slash"),
        ({b"a": 1}, "b'a' is no topic's name"),
        (["a"], "not as list"),
        ("a", "not as str"),
    ],
)
def test_a_subscription_without_streams_or_topics_is_refused(topics: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Subscription.by_name(topics)  # type: ignore[arg-type]


def test_a_subscription_keeps_what_it_was_given() -> None:
    given = {"a": 1}
    kept = Subscription.by_name(given)
    given["b"] = 2
    assert kept.topics == {"a": 1}


def test_topics_and_a_filter_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="not both"):
        Subscription({"a": 1}, TopicFilter("b"), 1)
