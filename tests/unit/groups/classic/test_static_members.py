"""KIP-345 and KIP-814: members with a name of their own, which return under a new id."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.commands import CommitOffsets, JoinProtocol, OffsetToCommit
from ottla.groups.group_metadata import parse_group_value
from ottla.groups.replies import JoinReply, LeftMember, SyncReply
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def static_group(coordinator: Coordinator, *names: str) -> list[JoinReply]:
    joined = coordinator.join_together([coordinator.ask_join(instance_id=name, client_id=name) for name in names])
    coordinator.sync_all(joined)
    return joined


def test_returning_member_takes_its_place_without_a_rebalance(coordinator: Coordinator) -> None:
    leader, old = static_group(coordinator, "a", "b")
    new = coordinator.ask_join(instance_id="b").of(JoinReply)
    assert new.member_id not in {leader.member_id, old.member_id}
    assert (new.error, new.generation, new.leader_id) == (ErrorCode.NONE, 1, leader.member_id)
    assert coordinator.ask_sync(new, instance_id="b").of(SyncReply).assignment == b"part 1"
    assert coordinator.heartbeat(leader, "a") is ErrorCode.NONE
    assert coordinator.state() == "Stable"


def test_id_of_before_is_fenced(coordinator: Coordinator) -> None:
    _, old = static_group(coordinator, "a", "b")
    coordinator.ask_join(instance_id="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.heartbeat(old, "b") is fenced
    assert coordinator.ask_sync(old, instance_id="b").of(SyncReply).error is fenced
    assert coordinator.ask_join(old.member_id, instance_id="b").of(JoinReply).error is fenced
    assert coordinator.leave((old.member_id, "b")).members == (LeftMember(old.member_id, "b", fenced),)
    assert coordinator.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID


def test_returning_leader_must_skip_the_assignment(coordinator: Coordinator) -> None:
    static_group(coordinator, "a", "b")
    new = coordinator.ask_join(instance_id="a").of(JoinReply)
    assert new.skip_assignment
    assert new.leader_id == new.member_id
    assert [one.instance_id for one in new.members] == ["b", "a"]
    assert coordinator.ask_sync(new, instance_id="a").of(SyncReply).assignment == b"part 0"


def test_returning_leader_that_cannot_skip_gets_its_old_id_as_leader(coordinator: Coordinator) -> None:
    old, _ = static_group(coordinator, "a", "b")
    new = coordinator.ask_join(instance_id="a", may_skip_assignment=False).of(JoinReply)
    assert (new.skip_assignment, new.leader_id, new.members) == (False, old.member_id, ())


def test_return_is_logged_before_it_is_answered_and_survives_a_restart(coordinator: Coordinator) -> None:
    static_group(coordinator, "a", "b")
    coordinator.log.holds_back = True
    asked = coordinator.ask_join(instance_id="b")
    assert asked.waits
    coordinator.flush()
    new = asked.of(JoinReply)
    coordinator.restart()
    assert coordinator.heartbeat(new, "b") is ErrorCode.NONE
    assert coordinator.ask_sync(new, instance_id="b").reply.error is ErrorCode.NONE


def test_return_does_not_change_since_when_the_group_is_stable(coordinator: Coordinator) -> None:
    static_group(coordinator, "a", "b")
    coordinator.pass_ms(5_000)
    coordinator.ask_join(instance_id="b")
    before, after = (parse_group_value(batch[0].value or b"") for batch in coordinator.log.batches)
    assert after.state_since_ms == before.state_since_ms


def test_return_that_the_log_refuses_leaves_the_old_id_in_its_place(coordinator: Coordinator) -> None:
    _, old = static_group(coordinator, "a", "b")
    coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
    assert coordinator.ask_join(instance_id="b").of(JoinReply) == JoinReply(ErrorCode.NOT_COORDINATOR)
    assert coordinator.heartbeat(old, "b") is ErrorCode.NONE


def test_return_with_another_protocol_starts_a_rebalance(coordinator: Coordinator) -> None:
    both = (JoinProtocol("range", b""), JoinProtocol("sticky", b""))
    asked = [coordinator.ask_join(instance_id=name, protocols=both) for name in ("a", "b")]
    leader, _ = coordinator.join_together(asked)
    coordinator.sync_all([one.reply for one in asked])
    asked_again = coordinator.ask_join(instance_id="b", protocols=both[1:])
    assert asked_again.waits
    assert coordinator.heartbeat(leader, "a") is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.ask_join(leader.member_id, instance_id="a", protocols=both)
    assert asked_again.of(JoinReply).protocol_name == "sticky"


def test_member_that_returns_while_others_join_fences_its_own_waiting_join(coordinator: Coordinator) -> None:
    lost = coordinator.ask_join(instance_id="a")
    kept = coordinator.ask_join(instance_id="a")
    assert lost.of(JoinReply).error is ErrorCode.FENCED_INSTANCE_ID
    coordinator.pass_ms(6_000)
    assert kept.of(JoinReply).generation == 1


def test_member_that_returns_before_the_assignment_is_known_restarts_the_rebalance(coordinator: Coordinator) -> None:
    asked = [coordinator.ask_join(instance_id=name) for name in ("a", "b")]
    leader, follower = coordinator.join_together(asked)
    synced = coordinator.ask_sync(follower, instance_id="b")
    again = coordinator.ask_join(instance_id="b")
    assert synced.of(SyncReply).error is ErrorCode.FENCED_INSTANCE_ID
    assert again.waits
    coordinator.ask_join(leader.member_id, instance_id="a")
    assert again.of(JoinReply).generation == 2


def test_returning_leader_still_leads_after_the_rebalance_that_it_caused(coordinator: Coordinator) -> None:
    asked = [coordinator.ask_join(instance_id=name) for name in ("a", "b")]
    coordinator.join_together(asked)
    again = coordinator.ask_join(instance_id="a")
    coordinator.ask_join(asked[1].reply.member_id, instance_id="b")
    assert again.of(JoinReply).leader_id == again.reply.member_id


def test_static_member_is_not_expelled_when_it_joins_late_but_by_its_session(coordinator: Coordinator) -> None:
    options: dict[str, Any] = {"session_timeout_ms": 100_000, "rebalance_timeout_ms": 10_000}
    asked = [coordinator.ask_join(instance_id=name, **options) for name in ("a", "b")]
    leader, away = coordinator.join_together(asked)
    coordinator.sync_all([leader, away])
    again = coordinator.ask_join(leader.member_id, instance_id="a", **options)
    coordinator.pass_ms(10_000)
    assert len(again.of(JoinReply).members) == 2
    coordinator.ask_sync(again.reply, {})
    coordinator.heartbeat(again.reply, "a")
    assert len(coordinator.describe().members) == 2


def test_administrator_removes_a_static_member_by_its_name(coordinator: Coordinator) -> None:
    static_group(coordinator, "a", "b")
    told = coordinator.leave(("", "b"), ("", "nobody"))
    assert [one.error for one in told.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert [one.instance_id for one in coordinator.describe().members] == ["a"]
    assert coordinator.state() == "PreparingRebalance"


def test_commit_of_a_fenced_member_is_refused(coordinator: Coordinator) -> None:
    _, old = static_group(coordinator, "a", "b")
    coordinator.ask_join(instance_id="b")
    offsets = [OffsetToCommit("orders", 0, 5, -1, "")]
    asked = coordinator.ask(CommitOffsets("team", old.member_id, "b", old.generation, offsets))
    assert asked.reply.errors == (ErrorCode.FENCED_INSTANCE_ID,)
    assert coordinator.committed() == {}
