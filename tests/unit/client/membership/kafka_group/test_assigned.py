"""Partitions that the user assigns: the group keeps their offsets, and no member is in it."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.membership import CommitRefused, Failed
from ottla.consumers.effects import Committed, Left, Released, Revoke, Start
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.protocol.schemas.metadata import MetadataRequest
from ottla.protocol.schemas.offset_commit import OffsetCommitRequest
from ottla.protocol.schemas.offset_fetch import OffsetFetchRequest
from tests.unit.client.membership.kafka_group.member_driver import Driver

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def assigning(*partitions: TopicPartition, committed: dict[TopicPartition, int] | None = None) -> Driver:
    driver = Driver(subscription=Subscription.of_partitions(partitions), committed=committed or {})
    driver.settle()
    return driver


def starts(events: Iterable[object]) -> dict[TopicPartition, int]:
    return {event.partition: event.offset for event in events if isinstance(event, Start)}


def test_assigned_partitions_start_at_the_groups_offsets_by_two_requests() -> None:
    driver = Driver(subscription=Subscription.of_partitions([T0, T1]), committed={T0: 42})
    driver.asked(MetadataRequest)
    driver.answer_well()
    request = driver.asked(OffsetFetchRequest)
    assert (request.groups[0].member_id, request.groups[0].member_epoch) == (None, -1)
    driver.answer_well()
    assert starts(driver.events) == {T0: 42, T1: NO_OFFSET}
    assert driver.look() is None


def test_their_offsets_are_committed_as_by_no_member() -> None:
    driver = assigning(T0)
    driver.commit(t0=5)
    request = driver.asked(OffsetCommitRequest)
    assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)
    assert driver.answer(driver.commit_answer(request)) == [Committed(T0, driver.claims[T0], 5)]


def test_a_group_with_members_refuses_their_commits_and_they_are_read_on() -> None:
    driver = assigning(T0)
    driver.commit(t0=5)
    request = driver.asked(OffsetCommitRequest)
    (refused,) = driver.answer(driver.commit_answer(request, ErrorCode.UNKNOWN_MEMBER_ID))
    assert isinstance(refused, CommitRefused)
    assert not any(isinstance(event, Failed) for event in driver.events)
    assert T0 in driver.claims


def test_another_assignment_keeps_what_is_in_both() -> None:
    driver = assigning(T0, T1, committed={T2: 7})
    driver.events.clear()
    driver.subscribe(Subscription.of_partitions([T1, T2]))
    assert [event.partition for event in driver.events if isinstance(event, Revoke)] == [T0]
    driver.stop(0, 3)
    driver.settle()
    assert driver.committed[T0] == 3
    assert starts(driver.events) == {T2: 7}


def test_leaving_commits_and_needs_no_request_more() -> None:
    driver = assigning(T0)
    driver.leave()
    driver.stop(0, 9)
    driver.settle()
    assert driver.committed == {T0: 9}
    assert [type(event) for event in driver.events[-2:]] == [Released, Left]
    assert driver.member.is_over
