from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.classic.rebalance import next_generation
from ottla.groups.commands import SyncGroup
from ottla.groups.replies import JoinReply, SyncReply
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import Coordinator

DELAY_MS = 3_000


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_first_rebalance_waits_for_its_delay(coordinator: Coordinator) -> None:
    asked = coordinator.ask_join()
    coordinator.pass_ms(DELAY_MS - 1)
    assert asked.waits
    coordinator.pass_ms(1)
    assert asked.of(JoinReply).generation == 1


def test_first_rebalance_waits_again_when_a_member_joined_meanwhile(coordinator: Coordinator) -> None:
    first = coordinator.ask_join()
    coordinator.pass_ms(DELAY_MS - 1)
    second = coordinator.ask_join()
    coordinator.pass_ms(DELAY_MS)
    assert first.waits
    coordinator.pass_ms(1)
    assert first.of(JoinReply).generation == second.of(JoinReply).generation == 1


def test_first_rebalance_waits_no_longer_than_the_rebalance_timeout(coordinator: Coordinator) -> None:
    first = coordinator.ask_join(rebalance_timeout_ms=10_000)
    for _ in range(9):
        assert first.waits
        coordinator.pass_ms(1_000)
        coordinator.ask_join(rebalance_timeout_ms=10_000)
    coordinator.pass_ms(1_000)
    assert len(first.of(JoinReply).members) == 10


def test_without_a_delay_the_first_member_is_answered_at_once() -> None:
    coordinator = Coordinator(GroupSettings(initial_rebalance_delay_ms=0))
    assert coordinator.ask_join().of(JoinReply).generation == 1


def test_rebalance_ends_when_all_members_have_joined(coordinator: Coordinator) -> None:
    first, second = coordinator.stable_group(2)
    third = coordinator.ask_join()
    again = coordinator.ask_join(first.member_id)
    assert again.waits
    coordinator.ask_join(second.member_id)
    assert again.of(JoinReply).generation == third.of(JoinReply).generation == 2


def test_member_that_does_not_join_in_time_is_expelled(coordinator: Coordinator) -> None:
    first, second = coordinator.stable_group(2, rebalance_timeout_ms=20_000)
    third = coordinator.ask_join(rebalance_timeout_ms=5_000)
    again = coordinator.ask_join(first.member_id, rebalance_timeout_ms=20_000)
    for _ in range(4):
        assert third.waits
        coordinator.heartbeat(second)
        coordinator.pass_ms(5_000)
    assert third.of(JoinReply).generation == 2
    assert len(again.of(JoinReply).members) == 2
    assert coordinator.heartbeat(second) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_leads_when_the_leader_does_not_join(coordinator: Coordinator) -> None:
    coordinator.stable_group(2)
    third = coordinator.ask_join()
    coordinator.pass_ms(10_000)
    told = third.of(JoinReply)
    assert told.leader_id == told.member_id


def test_assignment_reaches_those_that_waited_for_it_and_those_that_come_later(coordinator: Coordinator) -> None:
    asked = [coordinator.ask_join() for _ in range(3)]
    leader, early, late = coordinator.join_together(asked)
    waiting = coordinator.ask_sync(early)
    assert waiting.waits
    assignments = {leader.member_id: b"L", early.member_id: b"E", "stranger": b"S"}
    assert coordinator.ask_sync(leader, assignments).of(SyncReply).assignment == b"L"
    assert waiting.of(SyncReply) == SyncReply(ErrorCode.NONE, "consumer", "range", b"E")
    assert coordinator.ask_sync(late).of(SyncReply).assignment == b""
    assert coordinator.state() == "Stable"


def test_assignment_of_a_follower_is_not_taken(coordinator: Coordinator) -> None:
    leader, follower = coordinator.join_together([coordinator.ask_join(), coordinator.ask_join()])
    waiting = coordinator.ask_sync(follower, {follower.member_id: b"mine", leader.member_id: b"mine"})
    assert waiting.waits
    coordinator.ask_sync(leader, {})
    assert waiting.of(SyncReply).assignment == b""


def test_no_member_sees_an_assignment_before_it_is_stable(coordinator: Coordinator) -> None:
    leader, follower = coordinator.join_together([coordinator.ask_join(), coordinator.ask_join()])
    coordinator.log.holds_back = True
    waiting = [coordinator.ask_sync(follower), coordinator.ask_sync(leader, {leader.member_id: b"L"})]
    assert all(one.waits for one in waiting)
    assert coordinator.heartbeat(leader) is ErrorCode.NONE
    coordinator.flush()
    assert [one.of(SyncReply).assignment for one in waiting] == [b"", b"L"]


def test_refused_append_of_an_assignment_reaches_all_members_and_they_rebalance(coordinator: Coordinator) -> None:
    leader, follower = coordinator.join_together([coordinator.ask_join(), coordinator.ask_join()])
    waiting = coordinator.ask_sync(follower)
    coordinator.log.refuses_with = ErrorCode.MESSAGE_TOO_LARGE
    told = coordinator.ask_sync(leader, {leader.member_id: b"L"})
    assert told.of(SyncReply).error is waiting.of(SyncReply).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.log.refuses_with = None
    coordinator.ask_join(leader.member_id)
    again = coordinator.ask_join(follower.member_id).of(JoinReply)
    assert again.generation == 2


def test_sync_of_another_generation_or_protocol_is_refused(coordinator: Coordinator) -> None:
    (joined,) = coordinator.join_together([coordinator.ask_join()])

    def error_of(generation: int = 1, protocol_type: str | None = None, name: str | None = None) -> ErrorCode:
        command = SyncGroup("team", generation, joined.member_id, None, protocol_type, name, [])
        return coordinator.ask(command).of(SyncReply).error

    assert error_of(generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(name="sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(protocol_type="consumer", name="range") is ErrorCode.NONE


def test_sync_while_others_join_must_rejoin(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    coordinator.ask_join()
    assert coordinator.ask_sync(joined).of(SyncReply).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_leader_that_never_syncs_is_expelled_and_the_others_rebalance(coordinator: Coordinator) -> None:
    options: dict[str, Any] = {"rebalance_timeout_ms": 8_000}
    leader, follower = coordinator.join_together([coordinator.ask_join(**options), coordinator.ask_join(**options)])
    waiting = coordinator.ask_sync(follower)
    coordinator.pass_ms(7_999)
    coordinator.heartbeat(leader)
    assert waiting.waits
    coordinator.pass_ms(1)
    assert waiting.of(SyncReply).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.ask_join(follower.member_id).of(JoinReply).leader_id == follower.member_id


def test_follower_that_never_syncs_is_expelled_although_the_group_is_stable(coordinator: Coordinator) -> None:
    options: dict[str, Any] = {"rebalance_timeout_ms": 8_000}
    leader, silent = coordinator.join_together([coordinator.ask_join(**options), coordinator.ask_join(**options)])
    coordinator.ask_sync(leader, {})
    coordinator.pass_ms(4_000)
    coordinator.heartbeat(silent)
    coordinator.pass_ms(4_000)
    assert coordinator.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_waiting_member_keeps_its_session_however_long_it_waits(coordinator: Coordinator) -> None:
    options: dict[str, Any] = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 30_000}
    leader, follower = coordinator.join_together([coordinator.ask_join(**options), coordinator.ask_join(**options)])
    waiting = coordinator.ask_sync(follower)
    for _ in range(5):
        coordinator.pass_ms(5_000)
        coordinator.heartbeat(leader)
    coordinator.ask_sync(leader, {follower.member_id: b"F"})
    assert waiting.of(SyncReply).assignment == b"F"
    coordinator.pass_ms(5_999)
    assert coordinator.heartbeat(follower) is ErrorCode.NONE


def test_generation_that_was_not_logged_is_made_again_after_a_restart(coordinator: Coordinator) -> None:
    leader, follower = coordinator.stable_group(2)
    coordinator.ask_join(follower.member_id, protocols=())
    coordinator.ask_join(leader.member_id)
    coordinator.ask_join(follower.member_id)
    assert coordinator.state() == "CompletingRebalance"
    coordinator.restart()
    assert coordinator.state() == "Stable"
    assert coordinator.heartbeat(leader) is ErrorCode.NONE


def test_members_of_before_a_restart_have_a_whole_session_to_come_back(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1, session_timeout_ms=10_000)
    coordinator.restart()
    coordinator.pass_ms(9_999)
    assert coordinator.heartbeat(joined) is ErrorCode.NONE
    coordinator.pass_ms(10_000)
    assert coordinator.state() == "Empty"


def test_emptied_group_is_logged_with_its_generation(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    coordinator.leave((joined.member_id, None))
    assert coordinator.state() == "Empty"
    coordinator.restart()
    assert coordinator.state() == "Empty"
    assert coordinator.describe().protocol_type == "consumer"
    (again,) = coordinator.stable_group(1)
    assert again.generation == 3


def test_group_is_empty_although_the_log_refuses_to_note_it(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
    coordinator.leave((joined.member_id, None))
    assert coordinator.state() == "Empty"
    assert "empty generation not logged" in str(coordinator.shard.history("team"))


@pytest.mark.parametrize(("generation", "following"), [(0, 1), (41, 42), (2**31 - 1, 1), (-7, 1)])
def test_generation_stays_an_int32(generation: int, following: int) -> None:
    assert next_generation(generation) == following
