"""What a consumer says that it reads."""

from __future__ import annotations

import pytest

from ottla.client.membership.subscription import Subscription, TopicFilter
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


def test_the_streams_of_a_filter_are_those_of_every_topic_that_it_selects() -> None:
    by_filter = Subscription({}, TopicFilter("a|b"), 3)
    assert by_filter.streams_counts(["a", "b", "c"]) == {"a": 3, "b": 3}
    assert Subscription({"a": 2}).streams_counts([]) == {"a": 2}


@pytest.mark.parametrize(
    ("topics", "problem"),
    [({}, "at least one topic"), ({"a": 0}, "not 0"), ({"a": 10_001}, "not 10001"), ({"no/slash": 1}, "no/slash")],
)
def test_a_subscription_without_streams_or_topics_is_refused(topics: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Subscription(topics)


def test_topics_and_a_filter_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="not both"):
        Subscription({"a": 1}, TopicFilter("b"), 1)
