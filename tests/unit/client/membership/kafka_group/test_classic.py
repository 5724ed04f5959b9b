"""A member of a classic group: it gives back before it joins, assigns when it leads, and finds the group's protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.client.groups.group_types import decode_assignment
from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.client.membership.kafka_group.classic import encode_assignment
from ottla.client.membership.kafka_group.options import AUTO, CLASSIC, CONSUMER, KafkaGroupOptions
from ottla.client.membership.membership import Failed
from ottla.client.wire.errors import ClientError
from ottla.consumers.effects import Left, Lost, Released, Revoke, Start
from ottla.groups.subscription import subscribed_topics
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.session_lease import lease_ms
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.schemas.leave_group import LeaveGroupRequest
from ottla.protocol.schemas.metadata import MetadataRequest
from ottla.protocol.schemas.offset_commit import OffsetCommitRequest
from ottla.protocol.schemas.offset_fetch import OffsetFetchRequest
from ottla.protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.client.membership.kafka_group.coordinator_answers import heartbeat_answer, join_answer
from tests.unit.client.membership.kafka_group.member_driver import Driver

OPTIONS = KafkaGroupOptions(protocol=CLASSIC)
T0 = TopicPartition("t", 0)


def classic(**fields: object) -> Driver:
    return Driver(options=OPTIONS, **fields)  # type: ignore[arg-type]


def owning(*partitions: int) -> Driver:
    """A follower that was assigned these partitions of topic t."""
    driver = classic()
    join(driver, partitions)
    return driver


def join(driver: Driver, partitions: tuple[int, ...], generation: int = 1) -> None:
    driver.asked(JoinGroupRequest)
    if driver.ask is not None and not _member_id(driver):
        driver.answer_well()
        driver.asked(JoinGroupRequest)
    driver.answer(join_answer("given", {}, leader="other", generation=generation))
    driver.asked(SyncGroupRequest)
    driver.answer(SyncGroupResponse(assignment=encode_assignment({"t": partitions})))
    driver.settle()


def _member_id(driver: Driver) -> str:
    return driver.asked(JoinGroupRequest).member_id


def rebalance(driver: Driver) -> None:
    """The member learns that the group rebalances."""
    driver.now_ms = driver.member.due_ms
    driver.asked(HeartbeatRequest)
    driver.answer(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


def test_join_offers_the_assignors_that_other_clients_have() -> None:
    request = classic().asked(JoinGroupRequest)
    assert request.protocol_type == "consumer"
    assert [offered.name for offered in request.protocols] == ["range", "roundrobin"]
    assert [subscribed_topics(offered.metadata) for offered in request.protocols] == [frozenset({"t"})] * 2
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)


def test_member_without_an_id_joins_again_with_the_one_that_it_is_given() -> None:
    driver = classic()
    assert driver.asked(JoinGroupRequest).member_id == ""
    driver.answer(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given"))
    assert driver.asked(JoinGroupRequest).member_id == "given"


def test_follower_starts_what_the_leader_has_assigned() -> None:
    driver = classic(committed={T0: 12})
    join(driver, (0, 3))
    starts = {event.partition.partition: event.offset for event in driver.events if isinstance(event, Start)}
    assert starts == {0: 12, 3: -1}


def test_leader_assigns_the_topics_of_all_members_with_their_partitions_as_they_are_now() -> None:
    driver = classic()
    driver.asked(JoinGroupRequest)
    driver.answer_well()
    driver.asked(JoinGroupRequest)
    driver.partitions_counts["u"] = 1
    driver.ids["u"] = driver.ids["t"].__class__(int=5)
    driver.answer(join_answer("given", {"given": ["t"], "another": ["t", "u"]}))
    metadata = driver.asked(MetadataRequest)
    assert [topic.name for topic in metadata.topics or []] == ["t", "u"]
    request = driver.asked(SyncGroupRequest)
    shares = {row.member_id: decode_assignment(row.assignment) for row in request.assignments}
    assert shares == {
        "another": (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)),
        "given": (TopicPartition("t", 2), TopicPartition("t", 3)),
    }
    assert (request.generation_id, request.member_id, request.protocol_name) == (1, "given", "range")


def test_leader_uses_the_assignor_that_the_group_has_chosen() -> None:
    driver = classic()
    driver.asked(JoinGroupRequest)
    driver.answer_well()
    driver.asked(JoinGroupRequest)
    driver.answer(join_answer("given", {"given": ["t"], "another": ["t"]}, assignor="roundrobin"))
    shares = {row.member_id: decode_assignment(row.assignment) for row in driver.asked(SyncGroupRequest).assignments}
    assert shares["another"] == (TopicPartition("t", 0), TopicPartition("t", 2))


def test_everything_is_given_back_and_committed_before_the_member_joins_the_next_generation() -> None:
    driver = owning(0, 1)
    rebalance(driver)
    assert [type(event) for event in driver.events[-2:]] == [Revoke, Revoke]
    driver.settle()
    driver.stop(0, 5)
    driver.stop(1, -1)
    assert driver.asked(OffsetCommitRequest).generation_id_or_member_epoch == 1
    driver.answer_well()
    assert [type(event) for event in driver.events[-1:]] == [Released]
    assert driver.asked(JoinGroupRequest).member_id == "given"
    assert driver.committed == {T0: 5}


def test_heartbeats_go_on_while_everything_is_given_back() -> None:
    driver = owning(0)
    rebalance(driver)
    for _ in range(3):
        driver.now_ms = driver.member.due_ms
        assert driver.asked(HeartbeatRequest).generation_id == 1
        driver.answer(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert T0 in driver.claims


def test_new_partitions_make_the_leader_join_anew_and_a_follower_not() -> None:
    follower = owning(0)
    follower.partitions_counts["t"] = 5
    follower.pass_time(OPTIONS.topics_refresh_ms)
    follower.settle()
    assert T0 in follower.claims
    assert not any(isinstance(event, Revoke) for event in follower.events)
    leader = classic()
    leader.settle()
    leader.partitions_counts["t"] = 5
    leader.pass_time(OPTIONS.topics_refresh_ms)
    leader.asked(JoinGroupRequest)


def test_new_topic_of_a_filter_is_told_to_the_group() -> None:
    driver = classic(subscription=Subscription({}, TopicFilter(".*"), 1))
    driver.settle()
    driver.partitions_counts["u"] = 1
    driver.ids["u"] = driver.ids["t"].__class__(int=5)
    driver.pass_time(OPTIONS.topics_refresh_ms)
    request = driver.asked(JoinGroupRequest)
    assert subscribed_topics(request.protocols[0].metadata) == frozenset({"t", "u"})


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "given")]
)
def test_member_that_is_none_any_more_loses_everything_and_joins_anew(code: ErrorCode, member_id: str) -> None:
    driver = owning(0)
    driver.now_ms = driver.member.due_ms
    driver.asked(HeartbeatRequest)
    assert [type(event) for event in driver.answer(HeartbeatResponse(error_code=code))] == [Lost]
    assert driver.member.hand_out_until_ms == 0
    driver.pass_time(1_000)
    assert driver.asked(JoinGroupRequest).member_id == member_id


def test_sync_in_a_generation_that_is_over_joins_again() -> None:
    driver = classic()
    driver.asked(SyncGroupRequest)
    driver.answer(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    driver.pass_time(1_000)
    assert driver.asked(JoinGroupRequest).member_id == "given"


def test_commit_during_a_rebalance_begins_the_giving_back() -> None:
    driver = owning(0)
    driver.commit(t0=5)
    request = driver.asked(OffsetCommitRequest)
    events = driver.answer(driver.commit_answer(request, ErrorCode.REBALANCE_IN_PROGRESS))
    assert [type(event) for event in events] == [Revoke]


def test_commit_of_a_generation_that_is_over_loses_everything() -> None:
    driver = owning(0)
    driver.commit(t0=5)
    request = driver.asked(OffsetCommitRequest)
    events = driver.answer(driver.commit_answer(request, ErrorCode.ILLEGAL_GENERATION))
    assert [type(event) for event in events] == [Lost]


def test_lease_ends_two_thirds_of_our_session_timeout_after_the_sending_of_what_was_answered() -> None:
    driver = owning(0)
    assert driver.member.hand_out_until_ms == driver.now_ms + lease_ms(OPTIONS.session_timeout_ms)
    driver.now_ms = driver.member.due_ms
    driver.asked(HeartbeatRequest)
    sent_ms = driver.now_ms
    driver.pass_time(400)
    driver.answer(HeartbeatResponse())
    assert driver.member.hand_out_until_ms == sent_ms + lease_ms(OPTIONS.session_timeout_ms)


def test_member_that_leaves_tells_the_group_and_does_not_wait_for_a_join() -> None:
    driver = owning(0)
    driver.leave()
    driver.stop(0, 3)
    assert [row.member_id for row in driver.asked(LeaveGroupRequest).members] == ["given"]
    assert driver.answer_well() == [Left()]
    waiting = classic()
    waiting.asked(JoinGroupRequest)
    waiting.answer_well()
    waiting.asked(JoinGroupRequest)
    waiting.leave()
    assert waiting.ask is not None
    assert waiting.member.abandons(waiting.ask)
    waiting.lose_answer()
    assert waiting.asked(LeaveGroupRequest).members[0].member_id == "given"


def test_offsets_of_a_classic_group_are_read_without_a_member() -> None:
    driver = classic()
    driver.asked(JoinGroupRequest)
    driver.answer_well()
    driver.asked(JoinGroupRequest)
    driver.answer(join_answer("given", {}, leader="other"))
    driver.asked(SyncGroupRequest)
    driver.answer(SyncGroupResponse(assignment=encode_assignment({"t": [0]})))
    [group] = driver.asked(OffsetFetchRequest).groups
    assert (group.member_id, group.member_epoch) == (None, -1)


def test_old_broker_is_spoken_to_in_the_classic_protocol() -> None:
    assert Driver(offers_consumer=False).asked(JoinGroupRequest)


def test_group_with_classic_members_is_joined_as_one_of_them() -> None:
    driver = Driver()
    driver.asked(ConsumerGroupHeartbeatRequest)
    assert not driver.answer(heartbeat_answer(0, code=ErrorCode.GROUP_ID_NOT_FOUND))
    assert driver.asked(JoinGroupRequest)


def test_group_that_refuses_both_protocols_ends_the_membership_with_its_reason() -> None:
    driver = Driver()
    driver.asked(ConsumerGroupHeartbeatRequest)
    driver.answer(heartbeat_answer(0, code=ErrorCode.GROUP_ID_NOT_FOUND))
    driver.asked(JoinGroupRequest)
    [failed] = driver.answer(JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    assert isinstance(failed, Failed)
    assert "INCONSISTENT_GROUP_PROTOCOL" in str(failed.error)
    assert "roundrobin" in (failed.error.hint or "")


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_protocol_that_was_asked_for_is_not_changed(protocol: str) -> None:
    driver = Driver(options=KafkaGroupOptions(protocol=protocol))
    if protocol == CLASSIC:
        driver.asked(JoinGroupRequest)
        events = driver.answer(JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    else:
        driver.asked(ConsumerGroupHeartbeatRequest)
        events = driver.answer(heartbeat_answer(0, code=ErrorCode.GROUP_ID_NOT_FOUND))
    assert [type(event) for event in events] == [Failed]


def test_broker_that_is_too_old_for_the_protocol_that_was_asked_for_is_told_as_such() -> None:
    driver = Driver(options=KafkaGroupOptions(protocol=CONSUMER), offers_consumer=False)
    driver.asked(ConsumerGroupHeartbeatRequest)
    assert driver.ask is not None
    [failed] = driver.member.on_unsupported(driver.ask, ClientError("v0 to v0"), driver.now_ms)
    assert isinstance(failed, Failed)
    assert "KIP-848" in str(failed.error)


def test_setting_that_the_broker_does_not_tell_is_taken_from_the_options() -> None:
    driver = Driver(options=KafkaGroupOptions(session_timeout_ms=20_000, protocol=AUTO))
    while driver.look() is not None and driver.ask is not None and driver.ask.api is not ApiKey.DESCRIBE_CONFIGS:
        driver.answer_well()
    assert driver.ask is not None
    assert not driver.member.on_unsupported(driver.ask, ClientError("it does not know it"), driver.now_ms)
    driver.ask = None
    driver.own(0)
    assert driver.member.hand_out_until_ms == driver.now_ms + lease_ms(20_000)


def test_a_changed_subscription_is_that_of_the_next_join() -> None:
    driver = owning(0)
    driver.partitions_counts["u"] = 1
    driver.ids["u"] = driver.ids["t"].__class__(int=5)
    driver.subscribe(Subscription({"u": 1}))
    assert [topic.name for topic in driver.asked(MetadataRequest).topics or []] == ["u"]
    driver.answer_well()
    driver.stop(0, 4)
    request = driver.asked(JoinGroupRequest)
    assert [subscribed_topics(offered.metadata) for offered in request.protocols] == [frozenset({"u"})] * 2
    assert driver.committed == {T0: 4}


def test_a_subscription_that_changes_between_join_and_sync_is_joined_with_again() -> None:
    driver = classic()
    driver.asked(JoinGroupRequest)
    driver.answer_well()
    driver.asked(JoinGroupRequest)
    driver.answer(join_answer("given", {}, leader="other"))
    driver.asked(SyncGroupRequest)
    driver.subscribe(Subscription({"u": 1}))
    driver.answer(SyncGroupResponse(assignment=encode_assignment({"t": (0,)})))
    request = driver.asked(JoinGroupRequest)
    assert [subscribed_topics(offered.metadata) for offered in request.protocols] == [frozenset({"u"})] * 2


def test_a_static_member_names_its_instance_and_keeps_its_place() -> None:
    driver = Driver(options=replace(OPTIONS, group_instance_id="host-7"))
    assert driver.asked(JoinGroupRequest).group_instance_id == "host-7"
    join(driver, (0,))
    driver.commit(t0=5)
    commit = driver.asked(OffsetCommitRequest)
    assert commit.group_instance_id == "host-7"
    driver.answer(driver.commit_answer(commit))
    driver.leave()
    driver.stop(0, 5)
    driver.settle()
    assert isinstance(driver.events[-1], Left)
    assert driver.look() is None, "it does not leave the group"


def test_a_fenced_static_member_fails_with_what_to_do() -> None:
    driver = Driver(options=replace(OPTIONS, group_instance_id="host-7"))
    join(driver, (0,))
    driver.now_ms = driver.member.due_ms
    assert driver.asked(HeartbeatRequest).group_instance_id == "host-7"
    driver.answer(HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    failed = driver.events[-1]
    assert isinstance(failed, Failed)
    assert "each process needs a different one" in str(failed.error.hint)
