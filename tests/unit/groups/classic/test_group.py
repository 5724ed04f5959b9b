from __future__ import annotations

import pytest

from ottla.groups.commands import JoinProtocol
from ottla.groups.replies import DescribedMember, JoinReply, LeaveReply, LeftMember, SyncReply
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_heartbeat_is_judged_by_member_generation_and_state(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    assert coordinator.heartbeat(joined) is ErrorCode.NONE
    assert coordinator.heartbeat(joined._replace(generation=0)) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.heartbeat(joined._replace(member_id="x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(joined, group_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(joined, group_id="") is ErrorCode.INVALID_GROUP_ID


def test_heartbeat_waits_for_no_log(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    coordinator.log.holds_back = True
    commit = coordinator.commit({0: 1}, joined)
    assert coordinator.heartbeat(joined) is ErrorCode.NONE
    assert commit.waits


def test_heartbeat_queues_nothing(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    queued_count = coordinator.shard.deadlines.queued_count
    for _ in range(100):
        coordinator.monotonic_ms += 10
        coordinator.heartbeat(joined)
    assert coordinator.shard.deadlines.queued_count == queued_count


def test_silent_member_is_removed_and_the_others_rebalance(coordinator: Coordinator) -> None:
    leader, silent = coordinator.stable_group(2, session_timeout_ms=10_000)
    coordinator.pass_ms(6_000)
    coordinator.heartbeat(leader)
    coordinator.pass_ms(3_999)
    assert coordinator.state() == "Stable"
    coordinator.pass_ms(1)
    assert coordinator.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_leave_in_one_request_each_with_its_own_answer(coordinator: Coordinator) -> None:
    first, second, third = coordinator.stable_group(3)
    told = coordinator.leave((second.member_id, None), ("stranger", None), (third.member_id, None))
    assert told == LeaveReply(
        ErrorCode.NONE,
        (
            LeftMember(second.member_id, None, ErrorCode.NONE),
            LeftMember("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
            LeftMember(third.member_id, None, ErrorCode.NONE),
        ),
    )
    assert coordinator.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.ask_join(first.member_id).of(JoinReply).generation == 2


def test_leave_of_an_unknown_member_disturbs_no_member(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    coordinator.leave(("stranger", None))
    assert coordinator.heartbeat(joined) is ErrorCode.NONE
    assert coordinator.leave(("x", None), group_id="nobody").members[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.leave(("x", None), group_id="").error is ErrorCode.INVALID_GROUP_ID


def test_leaving_members_waiting_requests_are_answered(coordinator: Coordinator) -> None:
    leader, follower = coordinator.join_together([coordinator.ask_join(), coordinator.ask_join()])
    waiting = coordinator.ask_sync(follower)
    coordinator.leave((follower.member_id, None))
    assert waiting.of(SyncReply).error is ErrorCode.UNKNOWN_MEMBER_ID
    joining = coordinator.ask_join()
    newcomer_id = next(one.member_id for one in coordinator.describe().members if one.member_id != leader.member_id)
    coordinator.leave((newcomer_id, None))
    assert joining.of(JoinReply).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_last_that_leaves_during_the_first_rebalance_takes_the_group_along(coordinator: Coordinator) -> None:
    told = coordinator.ask_join(requires_known_member_id=True).reply
    coordinator.ask_join(told.member_id)
    coordinator.leave((told.member_id, None))
    coordinator.pass_ms(6_000)
    assert coordinator.state() == "Dead"
    assert coordinator.log.batches == []
    assert coordinator.shard.next_due_ms() is not None


def test_stable_group_is_described_with_what_members_say_and_have(coordinator: Coordinator) -> None:
    first, second = coordinator.stable_group(2)
    described = coordinator.describe()
    assert described[:5] == (ErrorCode.NONE, "team", "Stable", "consumer", "range")
    assert described.members == [
        DescribedMember(first.member_id, None, "client0", "/127.0.0.1", b"range of a", b"part 0"),
        DescribedMember(second.member_id, None, "client1", "/127.0.0.1", b"range of a", b"part 1"),
    ]


def test_group_that_is_not_stable_is_described_by_its_last_assignment_and_without_metadata(
    coordinator: Coordinator,
) -> None:
    coordinator.stable_group(1)
    coordinator.ask_join()
    described = coordinator.describe()
    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert {(one.metadata, one.assignment) for one in described.members} == {(b"", b"part 0"), (b"", b"")}


def test_cooperative_members_keep_what_they_have_through_a_rebalance(coordinator: Coordinator) -> None:
    """Cooperative assignors (KIP-429) ask nothing of the broker but that a rejoin with new metadata rebalances."""
    cooperative = (JoinProtocol("cooperative-sticky", b"owns 0,1"),)
    (first,) = coordinator.stable_group(1, protocols=cooperative)
    second = coordinator.ask_join(protocols=cooperative)
    assert coordinator.commit_errors({0: 9}, first) == {ErrorCode.NONE}
    coordinator.ask_join(first.member_id, protocols=cooperative)
    coordinator.sync_all([coordinator.ask_join(first.member_id, protocols=cooperative).reply, second.reply])
    revoked = (JoinProtocol("cooperative-sticky", b"owns 0"),)
    again = coordinator.ask_join(first.member_id, protocols=revoked)
    assert again.waits
    told = coordinator.ask_join(second.reply.member_id, protocols=cooperative).of(JoinReply)
    assert told.generation == 3
    assert again.of(JoinReply).members[0].metadata == b"owns 0"


def test_group_lists_its_history(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    coordinator.leave((joined.member_id, None))
    history = str(coordinator.shard.history("team"))
    for word in ("PreparingRebalance", "CompletingRebalance", "assigned", "left", "Empty"):
        assert word in history
    assert coordinator.shard.history("nobody") is None
