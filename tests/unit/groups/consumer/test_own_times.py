"""A group's own session time-out and interval of heartbeats take hold of members that are there."""

from __future__ import annotations

from ottla.groups.commands import ConsumerGroupHeartbeat, DescribeConsumerGroup
from ottla.groups.replies import ConsumerGroupDescription, ConsumerGroupHeartbeatReply
from ottla.groups.settings import ConsumerTimes
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import Coordinator


def beat(coordinator: Coordinator, group_id: str, epoch: int) -> ConsumerGroupHeartbeatReply:
    command = ConsumerGroupHeartbeat(group_id, "m", epoch, "client", "/127.0.0.1")
    if epoch == 0:
        command = command._replace(rebalance_timeout_ms=60_000, topic_names=["t"], owned=[])
    reply = coordinator.ask(command).of(ConsumerGroupHeartbeatReply)
    assert reply.error is ErrorCode.NONE
    return reply


def state_of(coordinator: Coordinator, group_id: str) -> str:
    return coordinator.ask(DescribeConsumerGroup(group_id)).of(ConsumerGroupDescription).state


def test_each_group_has_its_own_times_and_else_the_brokers() -> None:
    coordinator = Coordinator()
    coordinator.own_times["own"] = ConsumerTimes(10_000, 2_000)
    assert beat(coordinator, "own", 0).heartbeat_interval_ms == 2_000
    assert beat(coordinator, "plain", 0).heartbeat_interval_ms == 5_000
    coordinator.pass_ms(10_001)
    assert [state_of(coordinator, group_id) for group_id in ("own", "plain")] == ["Empty", "Stable"]


def test_new_times_hold_from_a_members_next_heartbeat() -> None:
    coordinator = Coordinator()
    epoch = beat(coordinator, "g", 0).member_epoch
    coordinator.own_times["g"] = ConsumerTimes(10_000, 2_000)
    coordinator.pass_ms(20_000)
    assert state_of(coordinator, "g") == "Stable", "the session that it has was promised"
    assert beat(coordinator, "g", epoch).heartbeat_interval_ms == 2_000
    coordinator.pass_ms(10_001)
    assert state_of(coordinator, "g") == "Empty"


def test_sessions_after_a_restart_are_the_groups_own() -> None:
    coordinator = Coordinator()
    beat(coordinator, "g", 0)
    coordinator.own_times["g"] = ConsumerTimes(10_000, 2_000)
    coordinator.restart()
    coordinator.pass_ms(9_999)
    assert state_of(coordinator, "g") == "Stable"
    coordinator.pass_ms(2)
    assert state_of(coordinator, "g") == "Empty"
