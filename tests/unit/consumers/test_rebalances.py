"""When a consumer looks at its group, what it keeps, and what the end of a session means."""

from __future__ import annotations

import pytest

from ottla.consumers.effects import (
    Blocked,
    Left,
    Lost,
    ReadGroup,
    ReadPartitions,
    Register,
    Revoke,
    Settled,
    Start,
    Write,
    WriteKind,
)
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import GroupView, StreamId
from ottla.model.partition_state import ChangeResult
from tests.unit.consumers.one_consumer import FREE, T0, T1, T2, T3, OneConsumer, free_at, group


def test_burst_of_changes_is_one_look() -> None:
    one = OneConsumer()
    one.own_alone()
    for _ in range(5):
        one.now_ms += 20
        assert one.given(one.consumer.on_change(one.now_ms)) == []
    one.wait()
    assert one.has(ReadGroup)
    assert one.consumer.due_ms > 2**62


def test_changes_that_do_not_end_put_the_look_off_for_a_bounded_time() -> None:
    one = OneConsumer()
    one.own_alone()
    began_ms = one.now_ms
    while one.consumer.due_ms > one.now_ms:
        one.given(one.consumer.on_change(one.now_ms))
        one.now_ms += 10
    assert one.now_ms - began_ms <= 400 + 10


def test_change_during_a_look_is_looked_at_after_it() -> None:
    one = OneConsumer()
    one.own_alone()
    one.given(one.consumer.on_change(one.now_ms))
    one.wait()
    look = one.one(ReadGroup)
    one.given(one.consumer.on_change(one.now_ms))
    # Nothing is due before the answer is there.
    assert one.consumer.due_ms > 2**62
    one.given(one.consumer.on_view(look.request_id, group(1, a=1), one.now_ms))
    one.wait()
    assert one.has(ReadGroup)


def test_partitions_that_stay_are_handed_out_without_a_pause() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(4, a=1))
    one.find(FREE, FREE, FREE, FREE)
    for claim in [effect for effect in one.effects if isinstance(effect, Write)]:
        one.written(claim)
    one.see(group(4, a=1, b=1))
    assert {effect.partition for effect in one.effects if isinstance(effect, Revoke)} == {T2, T3}
    assert not one.has(Lost)


def test_rebalance_has_ended_when_a_second_look_shows_the_same_group() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(1, a=1))
    one.find(FREE)
    one.written(one.one(Write))
    look = one.one(ReadGroup)
    assert look.is_synced
    assert not one.consumer.is_settled
    one.see(group(1, a=1))
    assert one.has(Settled)
    assert one.consumer.is_settled


def test_group_that_changed_during_the_rebalance_is_shared_again() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(2, a=1))
    one.find(FREE, FREE)
    for claim in [effect for effect in one.effects if isinstance(effect, Write)]:
        one.written(claim)
    one.see(group(2, a=1, b=1))
    assert one.one(Revoke).partition == T1
    assert not one.has(Settled)


def test_consumer_without_a_share_is_settled() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(1, a=1, Z=1))
    one.see(group(1, a=1, Z=1))
    assert one.has(Settled)


def test_topic_that_does_not_exist_is_no_reason_to_wait() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(GroupView({"a": {"t": 1}}, {}))
    assert one.has(ReadGroup)
    assert not one.has(ReadPartitions)


def test_added_partitions_are_claimed() -> None:
    one = OneConsumer()
    one.own_alone()
    one.given(one.consumer.on_change(one.now_ms))
    one.wait()
    one.see(group(2, a=1))
    assert one.one(ReadPartitions).partitions == (T1,)


def test_lost_session_stops_everything_at_once_and_commits_nothing() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    one.given(one.consumer.on_session_lost())
    assert one.one(Lost).claim == start.claim
    assert one.consumer.hand_out_until_ms == 0
    assert one.given(one.consumer.commit([(T0, start.claim, 40)])) == []


def test_next_session_starts_with_a_registration_and_reads_before_it_claims() -> None:
    one = OneConsumer()
    former = one.own_alone(offset=30)
    one.given(one.consumer.on_session_lost())
    one.begin(session_id=8)
    one.wait()
    one.see(group(1, a=1))
    one.find(free_at(35, version=8))
    one.written(one.one(Write))
    start = one.one(Start)
    assert start.offset == 35
    assert start.claim.session_id == 8
    assert start.claim != former.claim


def test_hand_out_is_bounded_by_the_lease_and_no_answer_shortens_it() -> None:
    one = OneConsumer()
    one.own_alone()
    assert one.consumer.hand_out_until_ms == 1000
    one.consumer.on_lease(2500)
    one.consumer.on_lease(1800)
    assert one.consumer.hand_out_until_ms == 2500
    one.given(one.consumer.on_session_lost())
    one.consumer.on_lease(9000)
    assert one.consumer.hand_out_until_ms == 0


def test_connection_that_came_back_is_a_reason_to_look() -> None:
    one = OneConsumer()
    one.own_alone()
    one.given(one.consumer.on_reconnected(one.now_ms))
    one.wait()
    assert one.has(ReadGroup)


def test_failed_reads_are_repeated_later() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.given(one.consumer.on_read_failed(one.one(ReadGroup).request_id, one.now_ms))
    assert not one.effects
    one.wait()
    one.see(group(1, a=1))
    one.given(one.consumer.on_read_failed(one.one(ReadPartitions).request_id, one.now_ms))
    assert not one.effects
    one.wait()
    assert one.one(ReadPartitions).partitions == (T0,)


@pytest.mark.parametrize("outcome", [ChangeResult.STALE, ChangeResult.UNKNOWN])
def test_registration_that_failed_is_tried_again_and_said_after_a_while(outcome: ChangeResult) -> None:
    one = OneConsumer()
    one.given(one.consumer.on_session(7, 1000, 0))
    reasons: list[str] = []
    for _ in range(5):
        one.given(one.consumer.on_registered(one.one(Register).request_id, outcome, one.now_ms))
        reasons += [effect.reason for effect in one.effects if isinstance(effect, Blocked)]
        one.wait()
    is_taken = outcome is ChangeResult.STALE
    assert reasons == ["consumer a is still registered by another session" if is_taken else "the tree does not answer"]


def test_consumer_whose_node_was_deleted_releases_everything_and_registers_again() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    one.given(one.consumer.on_change(one.now_ms))
    one.wait()
    one.see(group(1, b=1))
    assert one.has(Revoke)
    one.stopped(start, 31)
    one.written(one.one(Write))
    assert one.has(Register)


def test_consumer_that_leaves_commits_and_releases_before_it_is_gone() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    one.given(one.consumer.leave(one.now_ms))
    assert one.one(Revoke).claim == start.claim
    assert not one.has(Left)
    one.stopped(start, 34)
    release = one.one(Write)
    assert (release.kind, release.offset) == (WriteKind.RELEASE, 34)
    one.written(release)
    assert one.has(Left)


def test_consumer_that_leaves_without_a_session_is_gone_at_once() -> None:
    one = OneConsumer()
    one.given(one.consumer.leave(0))
    assert one.effects == [Left()]
    assert one.given(one.consumer.leave(0)) == []


def test_session_that_ends_while_the_consumer_leaves_is_its_end() -> None:
    one = OneConsumer()
    one.own_alone()
    one.given(one.consumer.leave(one.now_ms))
    one.given(one.consumer.on_session_lost())
    assert one.has(Lost)
    assert one.has(Left)


def test_names_of_streams_and_claims_are_read_back() -> None:
    for stream in (StreamId("host-1", 0), StreamId("a", 12)):
        assert StreamId.parse(str(stream)) == stream
    for text in ("", "a", "-1", "a-", "a-b", "a-\u0661"):
        with pytest.raises(ValueError, match="stream"):
            StreamId.parse(text)
    claim = ClaimId(0x1234_5678_9ABC, 17)
    assert ClaimId.parse(str(claim)) == claim
