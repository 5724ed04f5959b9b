"""A member of a Kafka group, of either protocol: offsets, commits, streams, trouble with the coordinator."""

from __future__ import annotations

import pytest

from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.client.membership.membership import CommitRefused, Event, Failed
from ottla.consumers.effects import Blocked, Committed, Left, Lost, Released, Revoke, Settled, Start
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.schemas.metadata import MetadataRequest
from ottla.protocol.schemas.offset_commit import OffsetCommitRequest
from ottla.protocol.schemas.offset_fetch import OffsetFetchRequest
from tests.unit.client.membership.kafka_group.coordinator_answers import heartbeat_answer
from tests.unit.client.membership.kafka_group.member_driver import Driver, topic_id

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def kinds(events: list[Event]) -> list[tuple[str, int]]:
    """The names of events about partitions, each with its partition's number."""
    return [
        (type(event).__name__, event.partition.partition)
        for event in events
        if isinstance(event, Start | Revoke | Released | Lost | Committed | CommitRefused)
    ]


def offsets_asked(request: OffsetCommitRequest) -> dict[int, int]:
    return {row.partition_index: row.committed_offset for topic in request.topics for row in topic.partitions}


def test_member_starts_where_the_group_has_committed_and_says_where_it_has_not() -> None:
    driver = Driver(committed={T0: 42})
    driver.own(0, 1)
    starts = {event.partition: event.offset for event in driver.events if isinstance(event, Start)}
    assert starts == {T0: 42, T1: NO_OFFSET}
    assert isinstance(driver.events[-1], Settled)


def test_nothing_is_started_before_the_offset_is_known() -> None:
    driver = Driver()
    driver.beat(0)
    driver.asked(OffsetFetchRequest)
    assert not kinds(driver.events)


def test_commit_that_was_asked_for_during_another_is_written_after_it() -> None:
    driver = Driver()
    driver.own(0)
    driver.commit(t0=5)
    first = driver.asked(OffsetCommitRequest)
    driver.commit(t0=7)
    assert kinds(driver.answer(driver.commit_answer(first))) == [("Committed", 0)]
    second = driver.asked(OffsetCommitRequest)
    assert (offsets_asked(first), offsets_asked(second)) == ({0: 5}, {0: 7})


def test_commit_of_what_the_group_has_is_answered_without_a_request() -> None:
    driver = Driver(committed={T0: 5})
    driver.own(0)
    assert kinds(driver.commit(t0=5)) == [("Committed", 0)]
    assert driver.look() is None


def test_offset_that_is_set_back_during_a_commit_is_written_again() -> None:
    """The group may have the later one: to say nothing would lose what lies between."""
    driver = Driver(committed={T0: 5})
    driver.own(0)
    driver.commit(t0=9)
    request = driver.asked(OffsetCommitRequest)
    assert driver.commit(t0=5) == []
    driver.answer(driver.commit_answer(request))
    assert offsets_asked(driver.asked(OffsetCommitRequest)) == {0: 5}


def test_commit_without_an_answer_is_written_again() -> None:
    driver = Driver()
    driver.own(0)
    driver.commit(t0=5)
    driver.asked(OffsetCommitRequest)
    driver.lose_answer()
    driver.pass_time(1_000)
    assert offsets_asked(driver.asked(OffsetCommitRequest)) == {0: 5}


def test_offset_that_is_set_back_after_a_commit_without_an_answer_is_written_again() -> None:
    """The group may have the later one: it is not known."""
    driver = Driver(committed={T0: 5})
    driver.own(0)
    driver.commit(t0=9)
    driver.asked(OffsetCommitRequest)
    driver.lose_answer()
    assert driver.commit(t0=5) == []
    driver.pass_time(1_000)
    assert offsets_asked(driver.asked(OffsetCommitRequest)) == {0: 5}


def test_commit_that_the_group_forbids_is_refused_once_and_the_claim_goes_on() -> None:
    driver = Driver()
    driver.own(0)
    driver.commit(t0=5)
    events = driver.answer(driver.commit_answer(driver.asked(OffsetCommitRequest), ErrorCode.OFFSET_METADATA_TOO_LARGE))
    assert kinds(events) == [("CommitRefused", 0)]
    assert driver.look() is None
    driver.commit(t0=6)
    assert offsets_asked(driver.asked(OffsetCommitRequest)) == {0: 6}


def test_commit_that_cannot_be_done_now_is_tried_again_until_its_time_is_over() -> None:
    driver = Driver(options=KafkaGroupOptions(commit_timeout_ms=3_000))
    driver.own(0)
    driver.commit(t0=5)
    for _ in range(50):
        request = driver.asked(OffsetCommitRequest)
        events = driver.answer(driver.commit_answer(request, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        if kinds(events):
            break
        driver.pass_time(1_100)
    assert kinds(driver.events)[-1] == ("CommitRefused", 0)
    [refused] = [event for event in driver.events if isinstance(event, CommitRefused)]
    assert (refused.offset, "NOT_ENOUGH_REPLICAS" in str(refused.error)) == (5, True)


def test_commit_of_a_claim_that_is_over_is_dropped() -> None:
    driver = Driver()
    driver.own(0)
    former = driver.claims[T0]
    driver.beat(epoch=2)
    driver.stop(0, 3)
    driver.settle()
    driver.own(0, epoch=3)
    assert driver.member.commit([(T0, former, 9)]) == []
    assert driver.look() is None
    assert driver.committed == {T0: 3}


def test_partition_is_given_back_after_what_was_passed_is_committed() -> None:
    driver = Driver()
    driver.own(0, 1)
    assert kinds(driver.beat(0, epoch=1)) == [("Revoke", 1)]
    assert driver.look() is None
    assert kinds(driver.stop(1, 8)) == []
    request = driver.asked(OffsetCommitRequest)
    assert offsets_asked(request) == {1: 8}
    assert kinds(driver.answer(driver.commit_answer(request))) == [("Released", 1)]


def test_partition_without_a_position_is_given_back_without_a_commit() -> None:
    driver = Driver()
    driver.own(0)
    driver.beat()
    assert kinds(driver.stop(0, NO_OFFSET)) == [("Released", 0)]
    assert driver.committed == {}


def test_release_that_the_group_refuses_is_lost_and_not_released() -> None:
    driver = Driver()
    driver.own(0)
    driver.beat()
    driver.stop(0, 8)
    request = driver.asked(OffsetCommitRequest)
    assert kinds(driver.answer(driver.commit_answer(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED))) == [("Lost", 0)]


def test_release_during_a_commit_waits_for_both() -> None:
    driver = Driver(committed={T0: 5})
    driver.own(0)
    driver.commit(t0=9)
    request = driver.asked(OffsetCommitRequest)
    # The user has sought back to where the group was.
    assert driver.leave()
    assert kinds(driver.stop(0, 5)) == []
    driver.answer(driver.commit_answer(request))
    driver.settle()
    assert driver.committed == {T0: 5}
    assert kinds(driver.events)[-2:] == [("Revoke", 0), ("Released", 0)]


def test_partitions_are_spread_over_the_streams_of_their_topic() -> None:
    driver = Driver(subscription=Subscription({"t": 2}))
    driver.own(0, 1, 2)
    streams = {event.partition.partition: event.stream.number for event in driver.events if isinstance(event, Start)}
    assert streams == {0: 0, 1: 0, 2: 1}


def test_partition_that_changes_its_stream_goes_on_where_it_was_stopped() -> None:
    driver = Driver(subscription=Subscription({"t": 2}))
    driver.own(0, 1)
    driver.events.clear()
    driver.own(0, 1, 2, 3, epoch=2)
    assert kinds(driver.events) == [("Start", 2), ("Start", 3)]
    driver.events.clear()
    # Stream 0 has nothing left: one of stream 1's moves.
    driver.beat(1, 3, epoch=3)
    for number in {partition.partition for partition in driver.claims} - {1, 3}:
        driver.stop(number, 10)
    revoked = [number for name, number in kinds(driver.events) if name == "Revoke"]
    for number in set(revoked) & {1, 3}:
        driver.stop(number, 20 + number)
    driver.settle()
    started = [event for event in driver.events if isinstance(event, Start)]
    assert {event.partition.partition: event.offset for event in started} == {
        number: 20 + number for number in set(revoked) & {1, 3}
    }


def test_filter_reads_topics_that_exist_and_joins_new_ones_within_the_refresh_time() -> None:
    driver = Driver(
        subscription=Subscription({}, TopicFilter("a.*", "ax"), 1),
        options=KafkaGroupOptions(topics_refresh_ms=1_000),
        partitions_counts={"a1": 1, "ax": 1, "b": 1},
    )
    assert driver.asked(MetadataRequest).topics is None
    assert driver.asked(ConsumerGroupHeartbeatRequest).subscribed_topic_names == ["a1"]
    driver.settle()
    driver.partitions_counts["a2"] = 1
    driver.ids["a2"] = topic_id("a2")
    driver.pass_time(1_000)
    driver.asked(MetadataRequest)
    driver.answer_well()
    assert driver.asked(ConsumerGroupHeartbeatRequest).subscribed_topic_names == ["a1", "a2"]


def test_topics_by_name_are_not_made_by_asking_for_them() -> None:
    driver = Driver(partitions_counts={})
    request = driver.asked(MetadataRequest)
    assert [topic.name for topic in request.topics or []] == ["t"]
    assert not request.allow_auto_topic_creation


def test_topic_that_was_made_anew_is_started_anew() -> None:
    driver = Driver()
    driver.own(0)
    driver.commit(t0=9)
    driver.settle()
    former = driver.ids["t"]
    driver.ids["t"] = topic_id("another t")
    driver.committed.clear()
    driver.pass_time(5_000)
    driver.asked(ConsumerGroupHeartbeatRequest)
    driver.events.clear()
    driver.answer(heartbeat_answer(2, {driver.ids["t"]: [0]}))
    driver.settle()
    assert not kinds(driver.events), "which topic it is, is not known yet"
    driver.pass_time(200)
    driver.settle()
    assert former not in driver.ids.values()
    assert kinds(driver.events) == [("Lost", 0), ("Start", 0)]
    assert driver.committed == {}, "an offset of the former topic is none of this one"


def test_trouble_of_the_coordinator_is_waited_out_and_told_when_it_lasts() -> None:
    driver = Driver()
    driver.own(0)
    driver.pass_time(5_000)
    pauses = []
    for _ in range(10):
        assert driver.look() is not None
        driver.lose_answer()
        assert driver.member.next_ask(driver.now_ms) is None
        pauses.append(driver.member.due_ms - driver.now_ms)
        driver.now_ms = driver.member.due_ms
    assert pauses[0] < 110
    assert max(pauses) <= 1_001
    assert [type(event) for event in driver.events if isinstance(event, Blocked)] == [Blocked]
    assert T0 in driver.claims, "the group may still count it as ours"


def test_another_coordinator_is_looked_up_when_this_one_says_that_it_is_none() -> None:
    driver = Driver()
    driver.own(0)
    driver.pass_time(5_000)
    driver.asked(ConsumerGroupHeartbeatRequest)
    assert not driver.member.take_moved()
    driver.answer(heartbeat_answer(1, code=ErrorCode.NOT_COORDINATOR))
    assert driver.member.take_moved()
    assert not driver.member.take_moved()
    assert T0 in driver.claims


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_MAX_SIZE_REACHED])
def test_refusal_that_time_does_not_mend_ends_the_membership(code: ErrorCode) -> None:
    driver = Driver()
    driver.own(0)
    driver.pass_time(5_000)
    driver.asked(ConsumerGroupHeartbeatRequest)
    lost, failed = driver.answer(heartbeat_answer(1, code=code))
    assert isinstance(lost, Lost)
    assert isinstance(failed, Failed)
    assert code.name in str(failed.error)
    assert failed.error.hint
    assert driver.member.next_ask(driver.now_ms) is None
    assert driver.member.hand_out_until_ms == 0


def test_member_that_leaves_gives_back_commits_and_says_so() -> None:
    driver = Driver()
    driver.own(0, 1)
    assert kinds(driver.leave()) == [("Revoke", 0), ("Revoke", 1)]
    driver.stop(0, 4)
    driver.stop(1, 6)
    request = driver.asked(OffsetCommitRequest)
    assert offsets_asked(request) == {0: 4, 1: 6}
    driver.answer(driver.commit_answer(request))
    assert driver.asked(ConsumerGroupHeartbeatRequest).member_epoch == -1
    assert driver.answer_well() == [Left()]
    assert driver.member.is_over


def test_member_that_never_joined_leaves_at_once() -> None:
    driver = Driver()
    driver.asked(MetadataRequest)
    assert driver.leave() == [Left()]


def test_member_leaves_in_the_end_when_nobody_answers() -> None:
    driver = Driver()
    driver.own(0)
    driver.leave()
    driver.stop(0, NO_OFFSET)
    for _ in range(3):
        driver.asked(ConsumerGroupHeartbeatRequest)
        driver.lose_answer()
        driver.pass_time(2_000)
    assert driver.events[-1] == Left()


def test_heartbeats_go_on_while_commits_come_one_after_the_other() -> None:
    driver = Driver()
    driver.own(0)
    beats = 0
    for offset in range(1, 200):
        driver.commit(t0=offset)
        driver.pass_time(100)
        ask = driver.look()
        assert ask is not None
        beats += ask.answer.__name__.startswith("ConsumerGroupHeartbeat")
        driver.answer_well()
    assert beats >= 4
    assert driver.committed[T0] > 180
