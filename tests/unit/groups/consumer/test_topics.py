"""Topics that appear, grow, go or match a pattern: each raises the group's epoch once, with the next heartbeat."""

from __future__ import annotations

import pytest

from ottla.groups.consumer.records import ConsumerRecordKey, ConsumerRecordType, ResolvedPattern, encode_pattern
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.error_code import ErrorCode
from tests.unit.groups.consumer.small_group import WALL_START_MS, SmallGroup, image, names_of, owned, topic_id


@pytest.fixture
def group() -> SmallGroup:
    return SmallGroup(image(orders=2))


def told(group: SmallGroup, epoch: int, *partitions: str) -> tuple[int, set[str] | None]:
    """The answer to m when it reports what it holds: its epoch and its assignment, if any."""
    reply = group.beat("m", epoch, owned=owned(*partitions) if partitions else None)
    assert reply.error is ErrorCode.NONE, reply
    return reply.member_epoch, None if reply.assignment is None else names_of(reply.assignment)


def test_topic_that_grows_is_assigned_again(group: SmallGroup) -> None:
    group.joined("m", ["orders"])
    group.topics = image(orders=3)
    assert told(group, 1) == (2, {"orders-0", "orders-1", "orders-2"})
    assert told(group, 2) == (2, None)


def test_topic_that_goes_is_taken_away(group: SmallGroup) -> None:
    group.topics = image(orders=2, payments=1)
    group.joined("m", ["orders", "payments"])
    group.topics = image(payments=1)
    assert told(group, 1) == (1, {"payments-0"})
    assert told(group, 1, "payments-0") == (2, None)
    assert group.group.state.group_epoch == 2


def test_topic_that_is_recreated_under_its_name_is_another_one(group: SmallGroup) -> None:
    group.joined("m", ["orders"])
    group.topics = TopicsImage.of([TopicImage("orders", topic_id("orders", 2), 2)])
    epoch, assignment = told(group, 1)
    assert (epoch, assignment) == (1, set()), "the old ones must be given up first"
    reply = group.beat("m", 1, owned=[])
    assert reply.member_epoch == 2
    assert [part.topic_id for part in reply.assignment or ()] == [topic_id("orders", 2)]


def test_change_of_a_topic_without_readers_disturbs_no_member(group: SmallGroup) -> None:
    group.joined("m", ["orders"])
    records_count = len(group.log)
    group.topics = image(orders=2, other=7)
    assert told(group, 1) == (1, None)
    assert len(group.log) == records_count


def test_change_is_noticed_by_the_heartbeat_of_any_member(group: SmallGroup) -> None:
    group.topics = image(a=1, b=1)
    group.joined("m", ["a"])
    group.joined("n", ["b"])
    group.beat("m", 1)
    group.topics = image(a=2, b=1)
    assert group.beat("n", 2).member_epoch == 3
    reply = group.beat("m", 2)
    assert (reply.member_epoch, names_of(reply.assignment or ())) == (3, {"a-0", "a-1"})


def test_topic_whose_end_another_member_noticed_is_taken_away(group: SmallGroup) -> None:
    group.topics = image(a=1, b=1)
    group.joined("m", ["a"])
    group.joined("n", ["b"])
    group.beat("m", 1)
    group.topics = image(b=1)
    assert group.beat("n", 2).member_epoch == 3
    assert told(group, 2) == (2, set())
    assert group.beat("m", 2, owned=[]).member_epoch == 3


def test_departure_leaves_no_change_of_topics_behind(group: SmallGroup) -> None:
    group.joined("m", ["orders"])
    group.joined("n", ["orders"])
    group.leave("n")
    assert told(group, 1, "orders-0", "orders-1") == (3, None)
    group.topics = image(orders=2, other=1)
    assert told(group, 3) == (3, None)


def test_change_while_the_broker_was_down_is_noticed(group: SmallGroup) -> None:
    group.joined("m", ["orders"])
    group.topics = image(orders=3)
    group.restart()
    assert told(group, 1)[0] == 2


def test_restart_without_a_change_raises_no_epoch(group: SmallGroup) -> None:
    group.joined("m", None, pattern="orders.*")
    group.restart()
    records_count = len(group.log)
    assert told(group, 1) == (1, None)
    assert len(group.log) == records_count


def test_pattern_gets_the_topics_that_match_with_the_first_answer(group: SmallGroup) -> None:
    group.topics = image(orders=1, orders_eu=1, payments=1)
    reply = group.join("m", None, pattern="orders.*")
    assert reply.member_epoch == 1
    assert names_of(reply.assignment or ()) == {"orders-0", "orders_eu-0"}
    assert group.group.read_among({"orders_eu", "payments"}) == {"orders_eu"}


def test_pattern_matches_only_topics_that_its_member_may_know_of(group: SmallGroup) -> None:
    group.topics = image(orders=1, orders_eu=1)
    rights = {"orders"}
    reply = group.beat(
        "m", 0, pattern="orders.*", owned=[], rebalance_timeout_ms=30_000, sees_topic=rights.__contains__
    )
    assert names_of(reply.assignment or ()) == {"orders-0"}
    group.topics = image(orders=1, orders_eu=1, orders_us=1)
    rights.add("orders_us")
    reply = group.beat("m", 1, sees_topic=rights.__contains__)
    assert names_of(reply.assignment or ()) == {"orders-0", "orders_us-0"}


def test_pattern_and_names_may_be_used_together(group: SmallGroup) -> None:
    group.topics = image(orders=1, payments=1, refunds=1)
    reply = group.join("m", ["payments"], pattern="ord.*")
    assert names_of(reply.assignment or ()) == {"orders-0", "payments-0"}


def test_pattern_finds_a_topic_that_appears(group: SmallGroup) -> None:
    group.joined("m", None, pattern="orders.*")
    group.topics = image(orders=2, orders_eu=1)
    assert told(group, 1) == (2, {"orders-0", "orders-1", "orders_eu-0"})


def test_pattern_loses_a_topic_that_goes(group: SmallGroup) -> None:
    group.topics = image(orders=1, orders_eu=1)
    group.joined("m", None, pattern="orders.*")
    group.topics = image(orders=1)
    assert told(group, 1, "orders-0") == (2, {"orders-0"})
    assert group.group.state.patterns["orders.*"].topic_names == {"orders"}


def test_changed_pattern_is_resolved_at_once(group: SmallGroup) -> None:
    group.topics = image(orders=1, payments=1)
    group.joined("m", None, pattern="orders")
    reply = group.beat("m", 1, pattern="payments", owned=[])
    assert (reply.member_epoch, names_of(reply.assignment or ())) == (2, {"payments-0"})
    assert group.group.state.patterns.keys() == {"payments"}


def test_pattern_that_is_taken_back_leaves_the_names(group: SmallGroup) -> None:
    group.topics = image(orders=1, payments=1)
    group.joined("m", ["payments"], pattern="orders")
    reply = group.beat("m", 1, pattern="", owned=owned("payments-0"))
    assert (reply.member_epoch, names_of(reply.assignment or ())) == (2, {"payments-0"})
    assert group.group.state.members["m"].topic_pattern is None
    assert not group.group.state.patterns


def test_empty_pattern_is_none(group: SmallGroup) -> None:
    # librdkafka sends one with every subscription to names.
    group.join("m", ["orders"], pattern="")
    records_count = len(group.log)
    group.beat("m", 1, topics=["orders"], pattern="", owned=[], rebalance_timeout_ms=30_000)
    assert len(group.log) == records_count
    assert group.group.state.members["m"].topic_pattern is None


def test_pattern_whose_logged_topics_are_outdated_is_resolved_again(group: SmallGroup) -> None:
    # The topics that the group reads are the same, so their hash does not show it.
    group.joined("m", ["orders"])
    group.joined("n", None, pattern="orders")
    group.beat("m", 1, owned=owned("orders-0"))
    key = ConsumerRecordKey(ConsumerRecordType.PATTERN, "g", "orders")
    group.group.replay(key, encode_pattern(ResolvedPattern(frozenset(), 0)))
    group.topics = image(orders=2)
    assert group.beat("n", 2).member_epoch == 3
    assert group.target("n") == {"orders-1"}


def test_pattern_is_forgotten_with_the_last_member_that_uses_it(group: SmallGroup) -> None:
    group.joined("m", None, pattern="orders")
    group.joined("n", None, pattern="orders")
    group.leave("m")
    assert group.group.state.patterns.keys() == {"orders"}
    group.leave("n")
    assert not group.group.state.patterns


def test_pattern_that_is_no_regular_expression_is_refused_and_changes_nothing(group: SmallGroup) -> None:
    reply = group.join("m", None, pattern="[bad")
    assert reply.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group.log == []
    group.joined("m", None, pattern="orders")
    assert group.beat("m", 1, pattern="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group.group.state.members["m"].topic_pattern == "orders"


def test_resolved_pattern_is_logged_with_its_time(group: SmallGroup) -> None:
    group.now_ms = 5
    group.joined("m", None, pattern="orders")
    resolved = group.group.state.patterns["orders"]
    assert resolved.topic_names == {"orders"}
    assert resolved.timestamp_ms == WALL_START_MS + 5


def test_topics_that_changed_before_a_departure_are_seen_after_it(group: SmallGroup) -> None:
    group.topics = image(orders=2)
    group.joined("m", None, pattern="orders.*")
    group.joined("n", None, pattern="orders.*")
    group.topics = image(orders=2, orders_eu=1)
    group.leave("n")
    group.beat("m", 1, owned=[])
    assert group.assigned("m") == {"orders-0", "orders-1", "orders_eu-0"}
