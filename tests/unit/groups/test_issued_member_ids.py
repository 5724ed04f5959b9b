"""Ids that are given out to clients that may never come back."""

from __future__ import annotations

import pytest

from ottla.groups import group
from ottla.groups.replies import JoinReply
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import Coordinator

LONGEST_SESSION_MS = 1_800_000


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Three ids of a shard are good."""
    monkeypatch.setattr(group, "ISSUED_IDS_MAX", 3)
    return Coordinator()


def given(coordinator: Coordinator, group_id: str) -> str:
    asked = coordinator.ask_join(
        group_id=group_id, requires_known_member_id=True, session_timeout_ms=LONGEST_SESSION_MS
    )
    reply = asked.of(JoinReply)
    assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
    return reply.member_id


def test_groups_of_which_nothing_but_an_id_is_there_are_bounded(coordinator: Coordinator) -> None:
    ids = [given(coordinator, f"group-{number}") for number in range(10)]
    coordinator.pass_ms(0)
    assert len(coordinator.shard) == len(coordinator.shard.issued_ids) == 3
    late = coordinator.ask_join(ids[0], group_id="group-0")
    assert late.of(JoinReply).error is ErrorCode.UNKNOWN_MEMBER_ID
    in_time = coordinator.ask_join(ids[-1], group_id="group-9")
    assert coordinator.join_together([in_time])[0].error is ErrorCode.NONE


def test_member_that_used_its_id_stays_however_many_are_given_out_after_it(coordinator: Coordinator) -> None:
    member_id = given(coordinator, "team")
    (joined,) = coordinator.join_together([coordinator.ask_join(member_id)])
    coordinator.sync_all([joined])
    for number in range(10):
        given(coordinator, f"group-{number}")
    coordinator.pass_ms(0)
    assert coordinator.heartbeat(joined) is ErrorCode.NONE


def test_ids_of_one_group_are_bounded_and_block_no_join_when_they_expire(coordinator: Coordinator) -> None:
    ids = [given(coordinator, "team") for _ in range(5)]
    coordinator.pass_ms(0)
    assert [coordinator.leave((member_id, None)).members[0].error for member_id in ids] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
