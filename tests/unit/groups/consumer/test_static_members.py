"""Members with an instance id: they keep their share while they are away for a moment."""

from __future__ import annotations

import pytest

from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from tests.unit.groups.consumer.small_group import SmallGroup, image, names_of, owned, topic_id


@pytest.fixture
def group() -> SmallGroup:
    """The static m (instance i) and the dynamic n share topic a, both at epoch 2."""
    small = SmallGroup(image(a=4))
    small.joined("m", instance_id="i")
    small.joined("n")
    small.beat("m", 1, instance_id="i")
    small.beat("m", 1, instance_id="i", owned=owned("a-0", "a-1"))
    small.beat("n", 2)
    return small


def test_instance_id_that_is_in_use_is_not_given_to_another(group: SmallGroup) -> None:
    reply = group.join("thief", instance_id="i")
    assert reply.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert reply.message is not None
    assert "in use by m" in reply.message


def test_static_member_that_leaves_for_a_while_keeps_its_partitions(group: SmallGroup) -> None:
    reply = group.leave("m", -2, instance_id="i")
    assert (reply.error, reply.member_id, reply.member_epoch) == (ErrorCode.NONE, "m", -2)
    assert group.beat("n", 2).member_epoch == 2, "no member is disturbed"
    assert group.target("m") == {"a-0", "a-1"}


def test_static_member_that_returns_gets_its_share_at_once_under_its_new_id(group: SmallGroup) -> None:
    group.leave("m", -2, instance_id="i")
    reply = group.join("m2", instance_id="i")
    assert (reply.error, reply.member_epoch) == (ErrorCode.NONE, 2)
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-0", "a-1"}
    assert group.group.state.members.keys() == {"m2", "n"}
    assert group.group.state.group_epoch == 2
    assert group.beat("n", 2).assignment is None


def test_static_member_that_returns_is_not_stopped_by_a_full_group() -> None:
    group = SmallGroup(image(a=1), GroupSettings(consumer_max_size=1))
    group.joined("m", instance_id="i")
    group.leave("m", -2, instance_id="i")
    assert group.join("m2", instance_id="i").error is ErrorCode.NONE


def test_static_member_that_returns_with_other_topics_raises_the_epoch(group: SmallGroup) -> None:
    group.topics = image(a=4, b=1)
    group.leave("m", -2, instance_id="i")
    reply = group.join("m2", ["b"], instance_id="i")
    assert reply.member_epoch == 3
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"b-0"}
    reply = group.beat("n", 2)
    assert reply.assignment is not None
    assert names_of(reply.assignment) == {"a-0", "a-1", "a-2", "a-3"}


def test_static_member_that_returns_to_changed_targets_holds_only_its_remaining_partitions(group: SmallGroup) -> None:
    group.leave("m", -2, instance_id="i")
    group.joined("o")
    group.joined("p")
    reply = group.join("m2", instance_id="i")
    assert reply.assignment is not None
    assert names_of(reply.assignment) == group.target("m2") == {"a-0"}
    assert group.group.state.holder(topic_id("a"), 1) is None, "what it had and is not to have is free"


def test_former_id_of_a_static_member_is_fenced(group: SmallGroup) -> None:
    group.leave("m", -2, instance_id="i")
    group.joined("m2", instance_id="i")
    assert group.beat("m", 2, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert group.leave("m", -1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert group.leave("m", -2, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert group.beat("m", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_that_does_not_return_is_fenced_when_its_session_ends(group: SmallGroup) -> None:
    group.leave("m", -2, instance_id="i")
    group.pass_time(44_000)
    group.beat("n", 2)
    assert group.pass_time(1_000) == ["session m"]
    assert group.beat("n", 2).member_epoch == 3
    assert group.assigned("n") == {"a-0", "a-1", "a-2", "a-3"}
    assert group.join("m2", instance_id="i").error is ErrorCode.NONE


def test_session_of_the_former_id_does_not_end_the_new_one(group: SmallGroup) -> None:
    group.leave("m", -2, instance_id="i")
    group.pass_time(40_000)
    group.joined("m2", instance_id="i")
    group.beat("n", 2)
    assert group.pass_time(10_000) == []


def test_static_member_may_leave_for_good(group: SmallGroup) -> None:
    assert group.leave("m", -1, instance_id="i").error is ErrorCode.NONE
    assert group.group.state.members.keys() == {"n"}
    assert group.leave("m", -1, instance_id="i").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_must_send_its_epoch_as_any_other(group: SmallGroup) -> None:
    assert group.beat("m", 7, instance_id="i").error is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("m", 2, instance_id="i").error is ErrorCode.NONE


def test_static_member_that_left_while_it_had_to_give_up_holds_nothing_of_it() -> None:
    group = SmallGroup(image(a=2))
    group.joined("m", instance_id="i")
    group.joined("n")
    assert names_of(group.beat("m", 1, instance_id="i").assignment or ()) == {"a-0"}
    group.leave("m", -2, instance_id="i")
    reply = group.beat("n", 2)
    assert names_of(reply.assignment or ()) == {"a-1"}
    reply = group.join("m2", instance_id="i")
    assert names_of(reply.assignment or ()) == {"a-0"}


def test_static_members_come_back_after_a_restart(group: SmallGroup) -> None:
    group.leave("m", -2, instance_id="i")
    group.restart()
    assert names_of(group.join("m2", instance_id="i").assignment or ()) == {"a-0", "a-1"}
