"""Who may speak for a member: epochs that a heartbeat, a commit and a fetch must bring."""

from __future__ import annotations

import pytest

from ottla.groups.commands import CommitOffsets
from ottla.model.error_code import ErrorCode
from tests.unit.groups.consumer.small_group import SmallGroup, image, names_of, owned


@pytest.fixture
def group() -> SmallGroup:
    """m has a-0 and a-1 at epoch 2 (it was at 1 before), n has the other two at epoch 2."""
    small = SmallGroup(image(a=4))
    small.joined("m")
    small.joined("n")
    small.beat("m", 1)
    small.beat("m", 1, owned=owned("a-0", "a-1"))
    small.beat("n", 2)
    return small


def test_unknown_member_gets_that_error(group: SmallGroup) -> None:
    assert group.beat("stranger", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("stranger", 2, instance_id="i").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.leave("stranger").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_left_is_unknown_though_its_group_is_known(group: SmallGroup) -> None:
    group.leave("m")
    group.leave("n")
    assert group.beat("m", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.group.state_name == "Empty"


@pytest.mark.parametrize("epoch", [0, 3, 77])
def test_epoch_that_the_member_never_had_is_fenced(group: SmallGroup, epoch: int) -> None:
    reply = group.join("m") if epoch == 0 else group.beat("m", epoch)
    assert reply.error is ErrorCode.FENCED_MEMBER_EPOCH


def test_previous_epoch_is_accepted_from_a_member_that_holds_no_more_than_its_assignment(group: SmallGroup) -> None:
    reply = group.beat("m", 1, owned=owned("a-0", "a-1"))
    assert (reply.error, reply.member_epoch) == (ErrorCode.NONE, 2)
    assert names_of(reply.assignment or ()) == {"a-0", "a-1"}, "it may have missed that, too"
    assert group.beat("m", 1, owned=owned("a-1")).error is ErrorCode.NONE


def test_previous_epoch_is_fenced_from_a_member_that_holds_more_or_does_not_say(group: SmallGroup) -> None:
    assert group.beat("m", 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("m", 1, owned=owned("a-0", "a-2")).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("m", 1, owned=owned("b-0")).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_previous_epoch_is_fenced_while_the_member_must_give_something_up(group: SmallGroup) -> None:
    # Else a late copy of an old heartbeat, from before m got a-1, would pass for its word that it gave a-1 up.
    group.joined("o")
    group.joined("p")
    assert group.beat("m", 2).member_epoch == 2
    assert group.assigned("m") == {"a-0"}
    assert group.beat("m", 1, owned=owned("a-0")).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("m", 2, owned=owned("a-0")).member_epoch == 4


def test_lost_answer_to_a_join_may_be_requested_again(group: SmallGroup) -> None:
    fresh = SmallGroup(image(a=1))
    fresh.joined("m")
    again = fresh.join("m")
    assert (again.error, again.member_epoch) == (ErrorCode.NONE, 1)
    assert again.assignment
    assert len(fresh.group.state.members) == 1


def commit(member_id: str, epoch: int, *, knows_stale_epoch: bool = True) -> CommitOffsets:
    return CommitOffsets("g", member_id, None, epoch, (), knows_stale_epoch=knows_stale_epoch)


def test_commit_is_taken_at_the_members_very_epoch_only(group: SmallGroup) -> None:
    check = group.group.check_commit
    assert check(commit("m", 2), group.moment) is ErrorCode.NONE
    assert check(commit("m", 1), group.moment) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(commit("m", 3), group.moment) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(commit("stranger", 2), group.moment) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_of_a_version_that_does_not_know_member_epochs_is_refused(group: SmallGroup) -> None:
    assert group.group.check_commit(commit("m", 2, knows_stale_epoch=False), group.moment) is (
        ErrorCode.UNSUPPORTED_VERSION
    )


def test_commit_without_a_member_is_taken_by_an_empty_group_only(group: SmallGroup) -> None:
    assert group.group.check_commit(commit("", -1), group.moment) is ErrorCode.UNKNOWN_MEMBER_ID
    group.leave("m")
    group.leave("n")
    assert group.group.check_commit(commit("", -1), group.moment) is ErrorCode.NONE


def test_commit_of_a_member_that_gives_something_up_is_taken_at_its_old_epoch(group: SmallGroup) -> None:
    group.joined("o")
    group.joined("p")
    group.beat("m", 2)
    assert group.group.check_commit(commit("m", 2), group.moment) is ErrorCode.NONE


def test_fetch_is_answered_without_a_member_and_for_members_at_their_epoch(group: SmallGroup) -> None:
    check = group.group.check_fetch
    assert check(None, -1) is ErrorCode.NONE
    assert check("m", 2) is ErrorCode.NONE
    assert check("m", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("stranger", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
