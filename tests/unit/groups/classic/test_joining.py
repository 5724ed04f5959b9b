from __future__ import annotations

import pytest

from ottla.groups.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.groups.commands import JoinProtocol
from ottla.groups.replies import JoinedMember, JoinReply
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, RANGE, Coordinator

OTHER_METADATA = (JoinProtocol("range", b"changed"),)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_member_without_an_id_is_given_one_to_join_with(coordinator: Coordinator) -> None:
    told = coordinator.ask_join(requires_known_member_id=True).of(JoinReply)
    assert told == JoinReply(ErrorCode.MEMBER_ID_REQUIRED, "client-1")
    joined = coordinator.ask_join("client-1", requires_known_member_id=True)
    assert joined.waits
    coordinator.pass_ms(3_000)
    assert joined.of(JoinReply).generation == 1


def test_id_that_is_not_used_in_time_is_forgotten_and_the_group_with_it(coordinator: Coordinator) -> None:
    coordinator.ask_join(requires_known_member_id=True, session_timeout_ms=10_000)
    assert coordinator.state() == "Empty"
    coordinator.pass_ms(10_000)
    assert coordinator.state() == "Dead"
    assert coordinator.ask_join("client-1").reply == JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, "client-1")


def test_rebalance_waits_for_an_id_that_was_given_out(coordinator: Coordinator) -> None:
    (first,) = coordinator.stable_group(1)
    told = coordinator.ask_join(requires_known_member_id=True, session_timeout_ms=20_000).reply
    again = coordinator.ask_join(first.member_id)
    assert again.waits
    coordinator.ask_join(told.member_id)
    assert again.of(JoinReply).generation == 2


def test_rebalance_continues_when_an_issued_id_is_returned_or_times_out(coordinator: Coordinator) -> None:
    (first,) = coordinator.stable_group(1)
    told = coordinator.ask_join(requires_known_member_id=True).reply
    again = coordinator.ask_join(first.member_id)
    coordinator.leave((told.member_id, None))
    assert not again.waits
    coordinator.ask_sync(again.reply, {})
    coordinator.ask_join(requires_known_member_id=True, session_timeout_ms=9_000)
    again = coordinator.ask_join(first.member_id)
    assert again.waits
    coordinator.pass_ms(9_000)
    assert not again.waits


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001, 0, -1])
def test_session_timeout_outside_of_the_limits_is_refused(coordinator: Coordinator, session_timeout_ms: int) -> None:
    asked = coordinator.ask_join(session_timeout_ms=session_timeout_ms)
    assert asked.of(JoinReply).error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_empty_group_id_is_refused(coordinator: Coordinator) -> None:
    assert coordinator.ask_join(group_id="").of(JoinReply).error is ErrorCode.INVALID_GROUP_ID


def test_unknown_id_is_refused_and_makes_no_group(coordinator: Coordinator) -> None:
    assert coordinator.ask_join("stranger").of(JoinReply) == JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    assert len(coordinator.shard) == 0
    coordinator.stable_group(1)
    assert coordinator.ask_join("stranger").of(JoinReply) == JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, "stranger")


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", RANGE), ("consumer", (JoinProtocol("other", b""),)), ("consumer", ()), ("", RANGE)],
)
def test_member_with_which_the_others_share_nothing_is_refused(
    coordinator: Coordinator, protocol_type: str, protocols: tuple[JoinProtocol, ...]
) -> None:
    coordinator.stable_group(1)
    asked = coordinator.ask_join(protocol_type=protocol_type, protocols=protocols)
    assert asked.of(JoinReply).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.state() == "Stable"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_first_member_must_have_a_protocol(
    coordinator: Coordinator, protocol_type: str, protocols: tuple[JoinProtocol, ...]
) -> None:
    asked = coordinator.ask_join(protocol_type=protocol_type, protocols=protocols)
    assert asked.of(JoinReply).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(coordinator.shard) == 0


def test_emptied_group_may_be_joined_with_another_protocol_type(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    coordinator.leave((joined.member_id, None))
    (again,) = coordinator.stable_group(1, protocol_type="connect")
    assert (again.protocol_type, again.generation) == ("connect", 3)


def test_only_the_leader_gets_the_members_and_their_metadata(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable_group(2)
    told = [JoinedMember(one.member_id, None, b"range of a") for one in (leader, follower)]
    assert list(leader.members) == told
    assert leader.leader_id == follower.leader_id == leader.member_id
    assert follower.members == ()


def test_follower_that_says_nothing_new_gets_the_present_generation_at_once(coordinator: Coordinator) -> None:
    _, follower = coordinator.stable_group(2)
    assert coordinator.ask_join(follower.member_id).reply == follower
    assert coordinator.state() == "Stable"


def test_follower_with_changed_metadata_starts_a_rebalance(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable_group(2)
    assert coordinator.ask_join(follower.member_id, protocols=OTHER_METADATA).waits
    assert coordinator.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    again = coordinator.ask_join(leader.member_id).of(JoinReply)
    assert (again.generation, again.members[1].metadata) == (2, b"changed")


def test_leader_that_joins_again_starts_a_rebalance(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable_group(2)
    assert coordinator.ask_join(leader.member_id).waits
    assert coordinator.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_missed_its_answer_gets_it_again_before_the_assignment_is_known(coordinator: Coordinator) -> None:
    leader, follower = coordinator.join_together([coordinator.ask_join(), coordinator.ask_join()])
    assert coordinator.ask_join(leader.member_id).reply == leader
    assert coordinator.ask_join(follower.member_id).reply == follower
    assert coordinator.state() == "CompletingRebalance"


def test_member_that_changes_before_the_assignment_is_known_restarts_the_rebalance(coordinator: Coordinator) -> None:
    leader, follower = coordinator.join_together([coordinator.ask_join(), coordinator.ask_join()])
    synced = coordinator.ask_sync(leader._replace(member_id=follower.member_id))
    assert synced.waits
    assert coordinator.ask_join(leader.member_id, protocols=OTHER_METADATA).waits
    assert synced.reply.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_second_join_of_a_member_supersedes_the_first(coordinator: Coordinator) -> None:
    first = coordinator.ask_join(requires_known_member_id=True).reply.member_id
    lost = coordinator.ask_join(first)
    kept = coordinator.ask_join(first)
    assert lost.of(JoinReply).error is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.pass_ms(3_000)
    assert kept.of(JoinReply).error is ErrorCode.NONE


def test_new_member_whose_connection_is_gone_does_not_stay_for_ever(coordinator: Coordinator) -> None:
    leader, *_ = coordinator.stable_group(1, rebalance_timeout_ms=1_800_000, session_timeout_ms=1_800_000)
    lost = coordinator.ask_join()
    coordinator.pass_ms(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert lost.of(JoinReply).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.member_id for one in coordinator.describe().members] == [leader.member_id]


class TestFullGroup:
    @pytest.fixture
    def coordinator(self) -> Coordinator:
        return Coordinator(GroupSettings(max_size=2))

    def test_full_stable_group_refuses_members(self, coordinator: Coordinator) -> None:
        members = coordinator.stable_group(2)
        refused = coordinator.ask_join().of(JoinReply)
        assert refused == JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED)
        assert coordinator.state() == "Stable"
        assert [coordinator.heartbeat(one) for one in members] == [ErrorCode.NONE] * 2

    def test_joining_group_takes_those_that_come_first(self, coordinator: Coordinator) -> None:
        asked = [coordinator.ask_join() for _ in range(3)]
        assert asked[2].of(JoinReply).error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert len(coordinator.join_together(asked[:2])) == 2

    def test_static_member_may_come_back_to_a_full_group(self, coordinator: Coordinator) -> None:
        coordinator.stable_group(1, instance_id="a")
        coordinator.settings = GroupSettings(max_size=1)
        coordinator.restart()
        assert coordinator.ask_join(instance_id="a").of(JoinReply).error is ErrorCode.NONE

    def test_group_that_is_larger_than_a_new_limit_keeps_those_that_rejoin_first(
        self, coordinator: Coordinator
    ) -> None:
        first, second = coordinator.stable_group(2)
        coordinator.settings = GroupSettings(max_size=1)
        coordinator.restart()
        assert coordinator.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
        kept = coordinator.ask_join(second.member_id)
        assert coordinator.ask_join(first.member_id).of(JoinReply).error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert kept.of(JoinReply).leader_id == second.member_id


def test_group_of_a_simple_consumer_may_be_joined(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5})
    coordinator.stable_group(1)
    assert coordinator.committed() == {("orders", 0): 5}
    assert coordinator.state(GROUP) == "Stable"
