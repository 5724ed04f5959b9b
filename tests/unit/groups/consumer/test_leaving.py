"""Leaving a consumer group: by word, by silence, for a while."""

from __future__ import annotations

import pytest

from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from tests.unit.groups.consumer.small_group import SmallGroup, image, names_of, owned

SESSION_MS = 45_000


@pytest.fixture
def group() -> SmallGroup:
    """m has a-0 and a-1, n the other two, both at epoch 2."""
    small = SmallGroup(image(a=4))
    small.joined("m")
    small.joined("n")
    small.beat("m", 1)
    small.beat("m", 1, owned=owned("a-0", "a-1"))
    small.beat("n", 2)
    return small


def test_partitions_of_a_member_that_left_go_to_the_others_with_their_next_heartbeat(group: SmallGroup) -> None:
    reply = group.leave("m")
    assert (reply.error, reply.member_id, reply.member_epoch) == (ErrorCode.NONE, "m", -1)
    assert (reply.heartbeat_interval_ms, reply.assignment) == (0, None)
    assert group.group.state_name == "Assigning"
    reply = group.beat("n", 2)
    assert reply.member_epoch == 3
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-0", "a-1", "a-2", "a-3"}


def test_group_that_everybody_left_is_empty_and_may_be_joined_again(group: SmallGroup) -> None:
    group.leave("m")
    group.leave("n")
    assert (group.group.state_name, group.group.is_empty) == ("Empty", True)
    assert group.group.has_records
    assert group.group.state.group_epoch == 4
    reply = group.join("o")
    assert reply.member_epoch == 5
    assert reply.assignment is not None
    assert len(names_of(reply.assignment)) == 4


def test_tombstones_cover_all_that_was_logged_and_nothing_else(group: SmallGroup) -> None:
    group.join("p", None, pattern="a.*")
    group.leave("m")
    records = group.group.tombstones()
    assert all(record.value is None for record in records)
    written = {record.key for record in group.log}
    deleted_before = {record.key for record in group.log if record.value is None}
    assert {record.key for record in records} == written - deleted_before
    group.log += records
    group.restart()
    assert group.group.is_forgettable


def test_silent_member_is_fenced_after_the_session_time_out(group: SmallGroup) -> None:
    assert group.pass_time(SESSION_MS - 1) == []
    group.beat("n", 2)
    assert group.pass_time(1) == ["session m"]
    assert group.beat("m", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("n", 2).member_epoch == 3


def test_every_heartbeat_starts_a_new_session(group: SmallGroup) -> None:
    for _ in range(4):
        assert group.pass_time(SESSION_MS // 2) == []
        group.beat("m", 2)
        group.beat("n", 2)
    assert group.group.state_name == "Stable"


def test_refused_heartbeat_starts_no_new_session(group: SmallGroup) -> None:
    group.pass_time(SESSION_MS - 1)
    assert group.beat("m", 9).error is ErrorCode.FENCED_MEMBER_EPOCH
    group.beat("n", 2)
    assert group.pass_time(1) == ["session m"]


def test_member_that_left_has_no_session_to_end(group: SmallGroup) -> None:
    group.leave("m")
    group.leave("n")
    records_count = len(group.log)
    assert len(group.group._deadlines) == 0
    assert group.pass_time(10 * SESSION_MS) == []
    assert len(group.log) == records_count


def test_member_that_the_log_refused_leaves_no_deadline_behind(group: SmallGroup) -> None:
    group.is_log_full = True
    group.join("late")
    group.is_log_full = False
    for _ in range(3):
        group.pass_time(SESSION_MS - 1)
        group.beat("m", 2)
        group.beat("n", 2)
    assert len(group.group._deadlines) == len(group.group.state.members) == 2


def test_member_that_does_not_give_up_in_its_rebalance_time_out_is_fenced() -> None:
    group = SmallGroup(image(a=2))
    group.join("m", rebalance_timeout_ms=10_000)
    group.joined("n")
    group.beat("m", 1)
    assert group.pass_time(5_000) == []
    group.beat("m", 1)
    group.beat("n", 2)
    assert group.pass_time(4_999) == [], "its heartbeats in between do not count"
    assert group.pass_time(1) == ["revocation m"]
    reply = group.beat("n", 2)
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-0", "a-1"}


def test_member_that_gave_up_in_time_is_not_fenced() -> None:
    group = SmallGroup(image(a=2))
    group.join("m", rebalance_timeout_ms=10_000)
    group.joined("n")
    group.beat("m", 1)
    group.beat("m", 1, owned=owned("a-0"))
    assert group.pass_time(20_000) == []


def test_member_is_not_fenced_for_a_revocation_that_it_never_received() -> None:
    group = SmallGroup(image(a=2))
    group.join("m", rebalance_timeout_ms=10_000)
    group.joined("n")
    group.is_log_full = True
    group.beat("m", 1)
    group.is_log_full = False
    assert group.pass_time(10_000) == []


def test_member_that_must_give_up_again_has_its_whole_time_again() -> None:
    group = SmallGroup(image(a=4))
    group.join("m", rebalance_timeout_ms=10_000)
    group.joined("n")
    group.beat("m", 1)
    group.pass_time(9_000)
    group.joined("o")
    group.joined("p")
    reply = group.beat("m", 1, owned=owned("a-0", "a-1"))
    assert reply.member_epoch == 2, "it has left its old epoch, and has not reached the group's, which is 4"
    assert group.group.state.current("m").pending_revocation
    assert group.pass_time(9_000) == []
    assert group.pass_time(1_000) == ["revocation m"]


def test_restart_gives_everybody_the_whole_time_again(group: SmallGroup) -> None:
    group.joined("o")
    group.beat("m", 2)
    group.beat("n", 2)
    before = group.group.state
    waiting = [m for m in "mn" if group.group.state.current(m).pending_revocation]
    assert waiting
    group.pass_time(29_000)
    group.restart()
    assert group.group.state is not before
    assert group.group.state.currents == before.currents
    assert group.pass_time(29_999) == []
    assert group.pass_time(1) == [f"revocation {member}" for member in waiting]
    for member in set("mno") - set(waiting):
        assert member in group.group.state.members
    assert {text.split()[1] for text in group.pass_time(SESSION_MS)} == set("mno") - set(waiting)


def test_member_stays_when_its_end_cannot_be_logged_and_is_fenced_later(group: SmallGroup) -> None:
    group.beat("n", 2)
    group.is_log_full = True
    assert set(group.pass_time(SESSION_MS)) == {"session m", "session n"}
    assert group.group.state.members.keys() == {"m", "n"}
    group.is_log_full = False
    assert set(group.pass_time(1_000)) == {"session m", "session n"}
    assert group.group.is_empty


def test_stopped_group_has_no_deadlines(group: SmallGroup) -> None:
    group.group.stop()
    assert group.pass_time(10 * SESSION_MS) == []


def test_session_time_out_is_the_settings() -> None:
    group = SmallGroup(image(a=1), GroupSettings(consumer_session_timeout_ms=100, consumer_heartbeat_interval_ms=7))
    assert group.join("m").heartbeat_interval_ms == 7
    assert group.pass_time(99) == []
    assert group.pass_time(1) == ["session m"]


def test_departure_is_written_in_the_order_that_apache_kafka_wants(group: SmallGroup) -> None:
    written = len(group.log)
    group.leave("m")
    types = [int.from_bytes(record.key[:2]) for record in group.log[written:]]
    assert types == [8, 7, 5, 3]
