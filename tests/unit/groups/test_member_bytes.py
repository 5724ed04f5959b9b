"""What members hold in memory is bounded over all groups, and given back when they are gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.groups import member_bytes
from ottla.groups.commands import ConsumerGroupHeartbeat, JoinProtocol
from ottla.groups.replies import ConsumerGroupHeartbeatReply, JoinReply, SyncReply
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import RANGE, Asked, Coordinator

LARGE = (JoinProtocol("range", bytes(100_000)),)
FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Room for three members of 100 kB, not for four."""
    monkeypatch.setattr(member_bytes, "MEMBER_BYTES_MAX", 350_000)
    return Coordinator(GroupSettings(initial_rebalance_delay_ms=0))


def joins(coordinator: Coordinator, count: int) -> list[Asked]:
    return [coordinator.ask_join(group_id=f"group-{n}", protocols=LARGE) for n in range(count)]


def errors(asked: list[Asked]) -> list[ErrorCode]:
    return [one.of(JoinReply).error for one in asked]


def test_joins_beyond_the_memory_of_all_groups_are_told_to_come_again(coordinator: Coordinator) -> None:
    assert errors(joins(coordinator, 5)) == [ErrorCode.NONE] * 3 + [FULL] * 2
    # Nothing stays of a group whose only join was refused.
    assert len(coordinator.shard) == 3


def test_static_members_are_bounded_as_others_are(coordinator: Coordinator) -> None:
    asked = [
        coordinator.ask_join(group_id=f"group-{n}", protocols=LARGE, instance_id="one", requires_known_member_id=True)
        for n in range(4)
    ]
    assert errors(asked) == [ErrorCode.NONE] * 3 + [FULL]


def _leave(coordinator: Coordinator, joined: JoinReply) -> None:
    coordinator.leave((joined.member_id, None), group_id="group-0")


def _be_silent(coordinator: Coordinator, joined: JoinReply) -> None:
    coordinator.pass_ms(20_000)


def _say_less(coordinator: Coordinator, joined: JoinReply) -> None:
    coordinator.ask_join(joined.member_id, group_id="group-0", protocols=RANGE)


@pytest.mark.parametrize("go", [_leave, _be_silent, _say_less])
def test_room_is_given_back_when_a_member(
    coordinator: Coordinator, go: Callable[[Coordinator, JoinReply], None]
) -> None:
    first, *_ = joins(coordinator, 3)
    late = coordinator.ask_join(group_id="late", protocols=LARGE)
    go(coordinator, first.of(JoinReply))
    again = coordinator.ask_join(group_id="late", protocols=LARGE)
    assert errors([late, again]) == [FULL, ErrorCode.NONE]
    coordinator.shard.assert_sound()


def test_member_that_says_no_more_than_before_comes_in_though_there_is_no_room(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = joins(coordinator, 1)[0].of(JoinReply)
    monkeypatch.setattr(member_bytes, "MEMBER_BYTES_MAX", 0)
    same = coordinator.ask_join(joined.member_id, group_id="group-0", protocols=LARGE)
    more = coordinator.ask_join(joined.member_id, group_id="group-0", protocols=(*LARGE, *RANGE))
    assert errors([same, more]) == [ErrorCode.NONE, FULL]


def test_assignment_for_which_there_is_no_room_is_not_kept(coordinator: Coordinator) -> None:
    joined = joins(coordinator, 1)[0].of(JoinReply)
    refused = coordinator.ask_sync(joined, {joined.member_id: bytes(300_000)}, group_id="group-0")
    assert refused.of(SyncReply).error is FULL
    assert coordinator.state("group-0") == "PreparingRebalance"
    again = coordinator.ask_join(joined.member_id, group_id="group-0", protocols=LARGE).of(JoinReply)
    kept = coordinator.ask_sync(again, {again.member_id: bytes(200_000)}, group_id="group-0")
    assert kept.of(SyncReply).error is ErrorCode.NONE
    assert coordinator.member_bytes.held_bytes > 300_000


def test_many_protocols_without_metadata_count(coordinator: Coordinator) -> None:
    many = [JoinProtocol(f"{number:05}", b"") for number in range(3_000)]
    assert coordinator.ask_join(protocols=many).of(JoinReply).error is FULL


def test_members_that_were_logged_are_there_after_a_restart_whatever_they_hold(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = joins(coordinator, 1)[0].of(JoinReply)
    coordinator.ask_sync(joined, {joined.member_id: b"all"}, group_id="group-0")
    before_bytes = coordinator.member_bytes.held_bytes
    monkeypatch.setattr(member_bytes, "MEMBER_BYTES_MAX", 0)
    coordinator.restart()
    assert coordinator.heartbeat(joined, group_id="group-0") is ErrorCode.NONE
    assert coordinator.member_bytes.held_bytes == before_bytes


def heartbeat(coordinator: Coordinator, group_id: str, epoch: int, names: list[str]) -> ConsumerGroupHeartbeatReply:
    command = ConsumerGroupHeartbeat(
        group_id, "m", epoch, "client", "/h", None, None, 60_000, names, None, None, [], makes_own_id=True
    )
    return coordinator.ask(command).of(ConsumerGroupHeartbeatReply)


def test_members_of_consumer_groups_share_the_room(coordinator: Coordinator) -> None:
    names = [f"topic-{number:04}" for number in range(1_700)]
    told = [heartbeat(coordinator, f"group-{n}", 0, names).error for n in range(4)]
    assert told == [ErrorCode.NONE] * 3 + [FULL]
    assert errors([coordinator.ask_join(group_id="classic", protocols=LARGE)]) == [FULL]
    # Saying the same again, and less, needs no room.
    assert heartbeat(coordinator, "group-0", 1, names).error is ErrorCode.NONE
    assert heartbeat(coordinator, "group-0", 1, ["one"]).error is ErrorCode.NONE
    assert heartbeat(coordinator, "group-1", -1, []).error is ErrorCode.NONE
    assert errors([coordinator.ask_join(group_id="classic", protocols=LARGE)]) == [ErrorCode.NONE]
    coordinator.pass_ms(60_000)
    assert coordinator.member_bytes.held_bytes == 0


def test_nothing_is_held_by_a_shard_that_failed(coordinator: Coordinator) -> None:
    joins(coordinator, 2)
    heartbeat(coordinator, "modern", 0, ["one"])
    coordinator.shard.fail_all(ErrorCode.NOT_COORDINATOR)
    assert coordinator.member_bytes.held_bytes == 0
