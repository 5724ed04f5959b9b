"""A disk that fails under an append: the shard is failed before the append has returned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.groups.group_log import GroupRecord
from ottla.groups.replies import CommitReply, JoinReply, SyncReply
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from tests.unit.groups.coordinator import Coordinator

GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def break_disk(coordinator: Coordinator) -> None:
    """The next append fails, and the directory is offline before any reply."""

    def append(records: Sequence[GroupRecord], now_ms: int, producer: object = None) -> int:
        coordinator.shard.fail_all(GONE)
        raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed")

    coordinator.log.append = append  # type: ignore[method-assign]  # the log of this test only


def test_commit_under_which_the_disk_fails_is_answered_behind_one_that_waits(coordinator: Coordinator) -> None:
    coordinator.log.holds_back = True
    waits = coordinator.commit({0: 5})
    break_disk(coordinator)
    fails = coordinator.commit({0: 6})
    assert [set(asked.of(CommitReply).errors) for asked in (waits, fails)] == [{GONE}, {GONE}]


def test_members_get_one_error_when_the_disk_fails_under_their_assignment(coordinator: Coordinator) -> None:
    asked = [coordinator.ask_join(client_id=f"client{number}") for number in range(3)]
    leader, *others = sorted(coordinator.join_together(asked), key=lambda one: one.leader_id != one.member_id)
    waiting = [coordinator.ask_sync(one) for one in others]
    break_disk(coordinator)
    led = coordinator.ask_sync(leader, {leader.member_id: b"all"})
    assert [one.of(SyncReply).error for one in (*waiting, led)] == [GONE] * 3


@pytest.mark.parametrize("how", ["leaves", "is silent"])
def test_last_member_goes_though_the_disk_fails_under_it(coordinator: Coordinator, how: str) -> None:
    (member,) = coordinator.stable_group(1)
    break_disk(coordinator)
    if how == "leaves":
        assert coordinator.leave((member.member_id, None)).error is GONE
    else:
        coordinator.pass_ms(20_000)
    assert coordinator.heartbeat(member) is GONE


def test_static_member_that_returns_gets_an_error_when_the_disk_fails_under_it(coordinator: Coordinator) -> None:
    coordinator.stable_group(1, instance_id="static")
    break_disk(coordinator)
    assert coordinator.ask_join(instance_id="static").of(JoinReply).error is GONE
