"""Subscriptions by pattern: RE2's syntax, whole names, bounded cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from time import process_time

import pytest

from ottla.groups import subscription_pattern
from ottla.groups.subscription_pattern import PATTERN_CHARS_MAX, SubscriptionPatterns
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from tests.unit.groups.consumer.small_group import image


@pytest.fixture
def matched_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were really run against a pattern."""
    seen: list[str] = []
    real = subscription_pattern.matching_names

    def noting(pattern: str, names: Iterable[str]) -> frozenset[str]:
        listed = list(names)
        seen.extend(listed)
        return real(pattern, listed)

    monkeypatch.setattr(subscription_pattern, "matching_names", noting)
    return seen


def matching(pattern: str, topics: TopicsImage) -> set[str]:
    return set(SubscriptionPatterns().matching(pattern, topics))


def test_pattern_matches_whole_names_only() -> None:
    topics = image(orders=1, orders_eu=1, reorders=1)
    assert matching("orders", topics) == {"orders"}
    assert matching("orders.*", topics) == {"orders", "orders_eu"}
    assert matching("^orders$", topics) == {"orders"}


def test_pattern_of_alternatives_is_matched_as_a_whole() -> None:
    assert matching("a|ab", image(a=1, ab=1, b=1)) == {"a", "ab"}


@pytest.mark.parametrize("pattern", ["[bad", "(a", "*", r"a\1", "(?=a)", "a{5000}", "(?P<n", "é["])
def test_pattern_that_re2_does_not_take_is_refused_with_its_reason(pattern: str) -> None:
    with pytest.raises(RequestError, match="is not a valid regular expression") as refused:
        matching(pattern, image(a=1))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert str(refused.value).split("(RE2): ")[1], "it says what RE2 said"


def test_pattern_that_is_too_long_is_refused_before_it_is_compiled() -> None:
    with pytest.raises(RequestError, match=f"{PATTERN_CHARS_MAX + 1} characters, {PATTERN_CHARS_MAX} are allowed"):
        matching("a" * (PATTERN_CHARS_MAX + 1), image(a=1))
    assert matching("a" * PATTERN_CHARS_MAX, image(a=1)) == set()


def test_pattern_that_would_need_too_much_memory_is_refused() -> None:
    with pytest.raises(RequestError, match="too large"):
        matching(".*a.{999}" * 400, image(a=1))


def test_pattern_that_makes_backtracking_explode_is_answered_at_once() -> None:
    # Python's re would take 2**60 steps.
    assert matching("(a|a)*" * 30 + "b", image(**{"a" * 60: 1})) == set()


def test_pattern_with_letters_beyond_ascii_is_read_as_unicode() -> None:
    assert matching("é?orders", image(orders=1)) == {"orders"}


def test_pattern_is_run_once_while_the_topics_are_the_same(matched_names: list[str]) -> None:
    patterns, topics = SubscriptionPatterns(), image(a=1, b=1)
    assert patterns.matching("a", topics) == patterns.matching("a", topics) == {"a"}
    assert matched_names == ["a", "b"]


def test_pattern_is_run_on_new_topics_only_when_topics_change(matched_names: list[str]) -> None:
    patterns = SubscriptionPatterns()
    patterns.matching("a.*", image(a=1, b=1, ab=1))
    matched_names.clear()
    assert patterns.matching("a.*", image(b=1, ab=1, abc=1)) == {"ab", "abc"}
    assert matched_names == ["abc"]


def test_patterns_that_were_not_requested_lately_are_dropped(
    monkeypatch: pytest.MonkeyPatch, matched_names: list[str]
) -> None:
    monkeypatch.setattr(subscription_pattern, "PATTERNS_KEPT_MAX", 2)
    patterns, topics = SubscriptionPatterns(), image(a=1)
    for pattern in ("a", "b", "a", "c"):
        patterns.matching(pattern, topics)
    matched_names.clear()
    patterns.matching("a", topics)
    assert matched_names == []
    patterns.matching("b", topics)
    assert matched_names == ["a"]


def test_compiled_patterns_are_not_kept() -> None:
    import re2

    matching("a.*", image(a=1))
    assert re2._Regexp._make.cache_info().currsize == 0


def test_pattern_that_takes_too_long_is_refused() -> None:
    # Its states do not fit the memory of a pattern; without a limit these few names took seconds.
    topics = image(**{f"topic{number:03}{'xyz' * 75}": 1 for number in range(200)})
    began_s = process_time()
    with pytest.raises(RequestError, match="takes too long") as refused:
        matching("(.*[xyz].{0,60}){8}" * 20, topics)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert process_time() - began_s < 2


def test_many_names_may_take_longer_together(monkeypatch: pytest.MonkeyPatch) -> None:
    names_count = 100
    ticks = itertools.count()
    a_little_less_s = subscription_pattern.MATCH_NAME_S_MAX * 0.99
    monkeypatch.setattr(subscription_pattern, "thread_time", lambda: next(ticks) * a_little_less_s)
    monkeypatch.setattr(subscription_pattern, "MATCH_S_MAX", 0.0)
    topics = image(**{f"t{number}": 1 for number in range(names_count)})
    assert len(matching("t.*", topics)) == names_count
