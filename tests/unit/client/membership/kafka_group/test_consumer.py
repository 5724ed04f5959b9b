"""A member of a KIP-848 group: what its heartbeats say, how it follows the assignment, until when it may hand out."""

from __future__ import annotations

import pytest

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.consumers.effects import Lost, Revoke, Start
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.session_lease import lease_ms
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schemas.describe_configs import DescribeConfigsRequest
from ottla.protocol.schemas.offset_commit import OffsetCommitRequest
from ottla.protocol.schemas.offset_fetch import OffsetFetchRequest
from tests.unit.client.membership.kafka_group.coordinator_answers import (
    INTERVAL_MS,
    SESSION_MS,
    heartbeat_answer,
    settings_answer,
)
from tests.unit.client.membership.kafka_group.member_driver import Driver, topic_id

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def owned(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [number for row in request.topic_partitions for number in row.partitions]


def test_join_says_everything_and_owns_nothing() -> None:
    driver = Driver()
    request = driver.asked(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.member_id) == (0, "me")
    assert request.subscribed_topic_names == ["t"]
    assert owned(request) == []
    assert request.rebalance_timeout_ms == KafkaGroupOptions().rebalance_timeout_ms


def test_heartbeat_without_news_says_nothing_but_who_it_is() -> None:
    driver = Driver()
    driver.own(0)
    driver.pass_time(INTERVAL_MS)
    request = driver.asked(ConsumerGroupHeartbeatRequest)
    assert request == ConsumerGroupHeartbeatRequest("g", "me", 1)


def test_heartbeats_come_soon_after_a_change_and_then_at_the_pace_of_the_broker() -> None:
    driver = Driver()
    driver.own(0)
    pauses = []
    for _ in range(10):
        pauses.append(driver.member.due_ms - driver.now_ms)
        driver.now_ms = driver.member.due_ms
        driver.settle()
    assert pauses[:3] == [200, 400, 800]
    assert pauses[-1] == INTERVAL_MS


def test_offsets_are_asked_for_as_the_member_that_it_is() -> None:
    driver = Driver()
    driver.beat(0, epoch=3)
    [group] = driver.asked(OffsetFetchRequest).groups
    assert (group.member_id, group.member_epoch) == ("me", 3)


def test_what_is_not_assigned_any_more_is_reported_when_all_of_it_is_given_back() -> None:
    driver = Driver()
    driver.own(0, 1, 2)
    driver.beat(0, epoch=1)
    driver.stop(1, 5)
    driver.settle()
    assert driver.look() is None, "partition 2 is still here"
    driver.stop(2, 5)
    request = driver.asked(ConsumerGroupHeartbeatRequest)
    assert owned(request) == [0]
    assert driver.committed == {TopicPartition("t", 1): 5, TopicPartition("t", 2): 5}


def test_heartbeats_go_on_while_something_is_given_back() -> None:
    driver = Driver()
    driver.own(0)
    driver.beat(epoch=1)
    driver.pass_time(INTERVAL_MS)
    assert owned(driver.asked(ConsumerGroupHeartbeatRequest)) is None


def test_what_comes_is_started_while_something_else_is_given_back() -> None:
    driver = Driver()
    driver.own(0)
    driver.beat(1, epoch=2)
    driver.settle()
    assert [type(event).__name__ for event in driver.events if isinstance(event, Start | Revoke)] == [
        "Start",
        "Revoke",
        "Start",
    ]
    assert T0 in driver.claims


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_fenced_member_loses_everything_and_joins_anew(code: ErrorCode) -> None:
    driver = Driver()
    driver.own(0)
    driver.commit(t0=5)
    driver.pass_time(INTERVAL_MS)
    driver.asked(ConsumerGroupHeartbeatRequest)
    assert [type(event) for event in driver.answer(heartbeat_answer(1, code=code))] == [Lost]
    assert driver.member.hand_out_until_ms == 0
    driver.pass_time(1_000)
    request = driver.asked(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, owned(request), request.subscribed_topic_names) == (0, [], ["t"])
    driver.answer(heartbeat_answer(4, {topic_id("t"): [0]}))
    driver.settle()
    assert T0 in driver.claims
    assert driver.committed == {}, "the commit was of a life that is over"


def test_member_that_is_fenced_by_a_commit_loses_everything() -> None:
    driver = Driver()
    driver.own(0, 1)
    driver.commit(t0=5)
    request = driver.asked(OffsetCommitRequest)
    events = driver.answer(driver.commit_answer(request, ErrorCode.UNKNOWN_MEMBER_ID))
    assert [type(event) for event in events] == [Lost, Lost]


def test_commit_at_a_former_epoch_is_written_again_at_the_one_that_a_heartbeat_tells() -> None:
    driver = Driver()
    driver.own(0)
    driver.pass_time(50)
    driver.commit(t0=5)
    request = driver.asked(OffsetCommitRequest)
    assert request.generation_id_or_member_epoch == 1
    driver.answer(driver.commit_answer(request, ErrorCode.STALE_MEMBER_EPOCH))
    driver.asked(ConsumerGroupHeartbeatRequest)
    driver.answer(heartbeat_answer(2))
    driver.pass_time(1_000)
    again = driver.asked(OffsetCommitRequest)
    assert (again.generation_id_or_member_epoch, again.member_id) == (2, "me")


def test_heartbeat_after_a_lost_answer_says_everything() -> None:
    driver = Driver()
    driver.own(0)
    driver.pass_time(INTERVAL_MS)
    driver.asked(ConsumerGroupHeartbeatRequest)
    driver.lose_answer()
    driver.pass_time(1_000)
    request = driver.asked(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, owned(request), request.subscribed_topic_names) == (1, [0], ["t"])


def test_lease_ends_two_thirds_of_a_session_after_the_sending_of_the_last_heartbeat_that_was_answered() -> None:
    driver = Driver()
    driver.own(0)
    driver.pass_time(INTERVAL_MS)
    driver.asked(ConsumerGroupHeartbeatRequest)
    sent_ms = driver.now_ms
    driver.pass_time(700)
    driver.answer(heartbeat_answer(1))
    assert driver.member.hand_out_until_ms == sent_ms + lease_ms(SESSION_MS)
    driver.pass_time(INTERVAL_MS)
    driver.asked(ConsumerGroupHeartbeatRequest)
    driver.answer(heartbeat_answer(1, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert driver.member.hand_out_until_ms == sent_ms + lease_ms(SESSION_MS), "it did not say that we are a member"


def test_lease_is_no_longer_than_the_group_waits_for_what_is_to_be_given_back() -> None:
    driver = Driver(options=KafkaGroupOptions(rebalance_timeout_ms=8_000))
    driver.own(0, 1)
    driver.now_ms = driver.member.due_ms
    driver.beat(0, epoch=1)
    asked_ms = driver.now_ms
    for _ in range(3):
        driver.pass_time(1_000)
        driver.settle()
    assert driver.member.hand_out_until_ms == asked_ms + lease_ms(8_000)
    driver.stop(1, 5)
    driver.settle()
    assert driver.member.hand_out_until_ms == driver.now_ms + lease_ms(SESSION_MS)


def test_lease_follows_the_session_timeout_of_the_group_when_it_is_changed() -> None:
    driver = Driver()
    driver.own(0)
    for _ in range(20):
        driver.pass_time(INTERVAL_MS)
        driver.look()
        if driver.ask is not None and driver.ask.answer.__name__ == "DescribeConfigsResponse":
            driver.asked(DescribeConfigsRequest)
            driver.answer(settings_answer(9_000))
        driver.settle()
    assert driver.member.hand_out_until_ms == driver.now_ms + lease_ms(9_000)


def test_assignment_of_an_unknown_topic_is_started_when_it_is_known() -> None:
    driver = Driver(partitions_counts={})
    driver.asked(ConsumerGroupHeartbeatRequest)
    driver.answer(heartbeat_answer(1, {topic_id("t"): [0]}))
    driver.settle()
    assert not driver.claims
    driver.partitions_counts["t"] = 1
    driver.ids["t"] = topic_id("t")
    for _ in range(5):
        driver.pass_time(1_000)
        driver.settle()
    assert T0 in driver.claims


def test_a_static_member_joins_and_leaves_with_its_instance() -> None:
    driver = Driver(options=KafkaGroupOptions(group_instance_id="host-7"))
    assert driver.asked(ConsumerGroupHeartbeatRequest).instance_id == "host-7"
    driver.own(0)
    driver.leave()
    driver.stop(0, 3)
    request = driver.asked(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.instance_id) == (-2, "host-7")


def test_a_static_member_waits_for_the_session_of_the_one_that_was_killed() -> None:
    driver = Driver(options=KafkaGroupOptions(group_instance_id="host-7"))
    driver.asked(ConsumerGroupHeartbeatRequest)
    driver.answer(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNRELEASED_INSTANCE_ID))
    driver.pass_time(2_000)
    driver.own(0)
    assert T0 in driver.claims


def test_a_changed_subscription_is_sent_with_the_next_heartbeat() -> None:
    driver = Driver()
    driver.own(0)
    driver.subscribe(Subscription({"u": 1}))
    assert driver.asked(ConsumerGroupHeartbeatRequest).subscribed_topic_names == ["u"]
    driver.answer_well()
    driver.stop(0, 3)
    assert owned(driver.asked(ConsumerGroupHeartbeatRequest)) == []
