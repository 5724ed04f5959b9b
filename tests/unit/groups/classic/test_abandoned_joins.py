"""A connection that closes while its JoinGroup is parked: new members are removed, known ones keep their time."""

from __future__ import annotations

from ottla.groups.replies import JoinReply
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, Coordinator

DELAY_MS = GroupSettings().initial_rebalance_delay_ms
SESSION_MS = 30 * 60_000


def abandon(coordinator: Coordinator, waiter: object, group_id: str = GROUP) -> None:
    coordinator.shard.abandon_join(group_id, waiter, coordinator.now)
    coordinator.shard.assert_sound()


def test_new_member_is_removed_when_its_connection_closes_before_the_join_completed() -> None:
    coordinator = Coordinator()
    coordinator.ask_join(waiter="a", session_timeout_ms=SESSION_MS)
    assert coordinator.member_bytes.held_bytes > 0
    abandon(coordinator, "a")
    assert coordinator.member_bytes.held_bytes == 0
    coordinator.pass_ms(DELAY_MS)
    assert len(coordinator.shard) == 0


def test_others_of_the_first_join_become_the_group() -> None:
    coordinator = Coordinator()
    gone, stays = coordinator.ask_join(waiter="a"), coordinator.ask_join(waiter="b")
    abandon(coordinator, "a")
    (joined,) = coordinator.join_together([stays])
    assert joined.error is ErrorCode.NONE
    assert [member.member_id for member in joined.members] == [joined.member_id]
    assert gone.of(JoinReply).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_with_a_generation_keeps_its_session_when_its_connection_closes() -> None:
    coordinator = Coordinator()
    (first,) = coordinator.stable_group(1)
    late = coordinator.ask_join(waiter="late")
    assert late.waits
    coordinator.ask_join(first.member_id, waiter="first")
    assert late.of(JoinReply).error is ErrorCode.NONE
    abandon(coordinator, "late")
    assert len(coordinator.describe().members) == 2


def test_rebalance_completes_without_the_newcomer_that_is_gone() -> None:
    coordinator = Coordinator()
    (first,) = coordinator.stable_group(1)
    coordinator.ask_join(waiter="late", rebalance_timeout_ms=SESSION_MS)
    abandon(coordinator, "late")
    again = coordinator.ask_join(first.member_id)
    assert [member.member_id for member in again.of(JoinReply).members] == [first.member_id]


def test_member_of_an_earlier_generation_keeps_its_place_while_it_joins() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable_group(2)
    coordinator.ask_join(first.member_id, waiter="first")
    abandon(coordinator, "first")
    coordinator.ask_join(second.member_id)
    assert {member.member_id for member in coordinator.describe().members} == {first.member_id, second.member_id}


def test_new_static_member_keeps_its_place() -> None:
    coordinator = Coordinator()
    coordinator.ask_join(instance_id="one", waiter="a")
    abandon(coordinator, "a")
    assert len(coordinator.describe().members) == 1


def test_join_repeated_on_another_connection_outlives_the_first_one() -> None:
    coordinator = Coordinator()
    required = coordinator.ask_join(requires_known_member_id=True).of(JoinReply)
    superseded = coordinator.ask_join(required.member_id, waiter="first")
    repeated = coordinator.ask_join(required.member_id, waiter="second")
    assert superseded.of(JoinReply).error is ErrorCode.REBALANCE_IN_PROGRESS
    abandon(coordinator, "first")
    (joined,) = coordinator.join_together([repeated])
    assert joined.member_id == required.member_id


def test_closed_connection_changes_nothing_in_a_group_that_it_did_not_join() -> None:
    coordinator = Coordinator()
    coordinator.stable_group(1)
    abandon(coordinator, "stranger")
    abandon(coordinator, "stranger", group_id="unknown")
    assert coordinator.state() == "Stable"


def test_connection_that_closes_after_the_shard_failed_changes_nothing() -> None:
    coordinator = Coordinator()
    asked = coordinator.ask_join(waiter="a")
    coordinator.shard.fail_all(ErrorCode.NOT_COORDINATOR)
    abandon(coordinator, "a")
    assert asked.of(JoinReply).error is ErrorCode.NOT_COORDINATOR
