"""What members hold in memory is bounded over all groups, and given back when they are gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.groups.commands import ConsumerGroupHeartbeat, JoinProtocol
from ottla.groups.replies import ConsumerGroupHeartbeatReply, JoinReply, SyncReply
from ottla.groups.settings import GroupSettings
from ottla.groups.shared_bytes import network_of
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import HOST, RANGE, Asked, Coordinator

LARGE = (JoinProtocol("range", bytes(100_000)),)
FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def coordinator() -> Coordinator:
    """Room for three members of 100 kB of one network, not for four."""
    coordinator = Coordinator(GroupSettings(initial_rebalance_delay_ms=0))
    coordinator.member_bytes.limit_bytes = 700_000
    return coordinator


def joins(coordinator: Coordinator, count: int) -> list[Asked]:
    return [coordinator.ask_join(group_id=f"group-{n}", protocols=LARGE) for n in range(count)]


def errors(asked: list[Asked]) -> list[ErrorCode]:
    return [one.of(JoinReply).error for one in asked]


def test_joins_beyond_the_memory_of_all_groups_must_retry(coordinator: Coordinator) -> None:
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


def test_member_that_says_no_more_than_before_comes_in_though_there_is_no_room(coordinator: Coordinator) -> None:
    joined = joins(coordinator, 1)[0].of(JoinReply)
    coordinator.member_bytes.limit_bytes = 0
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


def test_logged_members_are_loaded_at_a_restart_beyond_the_bound_too(coordinator: Coordinator) -> None:
    joined = joins(coordinator, 1)[0].of(JoinReply)
    coordinator.ask_sync(joined, {joined.member_id: b"all"}, group_id="group-0")
    before_bytes = coordinator.member_bytes.held_bytes
    coordinator.restart(member_limit_bytes=0)
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
    assert errors([coordinator.ask_join(group_id="classic", protocols=LARGE, host="/h")]) == [FULL]
    # Saying the same again, and less, needs no room.
    assert heartbeat(coordinator, "group-0", 1, names).error is ErrorCode.NONE
    assert heartbeat(coordinator, "group-0", 1, ["one"]).error is ErrorCode.NONE
    assert heartbeat(coordinator, "group-1", -1, []).error is ErrorCode.NONE
    assert errors([coordinator.ask_join(group_id="classic", protocols=LARGE, host="/h")]) == [ErrorCode.NONE]
    coordinator.pass_ms(60_000)
    assert coordinator.member_bytes.held_bytes == 0


def test_nothing_is_held_by_a_shard_that_failed(coordinator: Coordinator) -> None:
    joins(coordinator, 2)
    heartbeat(coordinator, "modern", 0, ["one"])
    coordinator.shard.fail_all(ErrorCode.NOT_COORDINATOR)
    assert coordinator.member_bytes.held_bytes == 0


def groups_of(coordinator: Coordinator, host: str, count: int) -> list[ErrorCode]:
    asked = [coordinator.ask_join(group_id=f"{host}-{n}", protocols=LARGE, host=host) for n in range(count)]
    return errors(asked)


def test_client_of_another_network_joins_after_one_has_taken_all_that_it_may(coordinator: Coordinator) -> None:
    assert FULL in groups_of(coordinator, "/192.0.2.1", 10)
    assert coordinator.ask_join(group_id="mine", host="/192.0.2.2").of(JoinReply).error is ErrorCode.NONE
    # The more networks there are the smaller is the share of each, and there is always some.
    assert FULL in groups_of(coordinator, "/192.0.2.3", 10)
    assert coordinator.ask_join(group_id="other", host="/192.0.2.4").of(JoinReply).error is ErrorCode.NONE
    coordinator.shard.assert_sound()


def test_hosts_of_one_ipv6_network_share_its_room(coordinator: Coordinator) -> None:
    asked = [coordinator.ask_join(group_id=f"group-{n}", protocols=LARGE, host=f"/2001:db8::{n}") for n in range(1, 5)]
    assert errors(asked) == [ErrorCode.NONE] * 3 + [FULL]


def test_one_group_leaves_room_to_others_with_members_of_many_networks(coordinator: Coordinator) -> None:
    asked = [coordinator.ask_join(protocols=LARGE, host=f"/192.0.2.{n}") for n in range(5)]
    assert [one.of(JoinReply).error for one in asked[-2:]] == [FULL] * 2
    assert coordinator.ask_join(group_id="mine", host="/192.0.2.9").of(JoinReply).error is ErrorCode.NONE


def test_share_of_a_network_is_counted_after_a_restart(coordinator: Coordinator) -> None:
    for n, one in enumerate(joins(coordinator, 3)):
        joined = one.of(JoinReply)
        coordinator.ask_sync(joined, {joined.member_id: b"all"}, group_id=f"group-{n}")
    coordinator.restart(member_limit_bytes=700_000)
    late, other = (
        coordinator.ask_join(group_id="late", protocols=LARGE),
        coordinator.ask_join(group_id="other", host="/192.0.2.2"),
    )
    assert errors([late, other]) == [FULL, ErrorCode.NONE]
    coordinator.shard.assert_sound()


def test_refused_join_is_counted_with_its_group_and_client(coordinator: Coordinator) -> None:
    joins(coordinator, 4)
    assert coordinator.member_bytes.refused_count == 1
    assert coordinator.member_bytes.last_refused == ("group-3", HOST)
    assert coordinator.member_bytes.largest_network[0] == HOST.removeprefix("/")


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("/192.0.2.7", "192.0.2.7"),
        ("/::ffff:192.0.2.7", "192.0.2.7"),
        ("/2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("/fe80::1%eth0", "fe80::/64"),
        ("no: address", "no: address"),
        ("", ""),
    ],
)
def test_network_is_the_address_or_its_first_64_bits(host: str, network: str) -> None:
    assert network_of(host) == network
