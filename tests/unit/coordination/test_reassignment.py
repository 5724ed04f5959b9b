"""Moves of replicas: what a request makes of a partition, and what ends its move."""

from __future__ import annotations

import pytest

from ottla.coordination.reassignment import Reassigned, completed, requested
from ottla.coordination.topics_view import NO_MOVE, Move, PartitionNode
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import NO_LEADER, Members, PartitionState, ReplicaIncarnation

LIVE = {NodeId(node): 10 + node for node in range(1, 7)}


def nodes(text: str) -> tuple[NodeId, ...]:
    return tuple(NodeId(int(digit)) for digit in text)


def members(text: str) -> Members:
    return tuple(ReplicaIncarnation(node, 10 + node) for node in nodes(text))


def partition(
    replicas: str, in_sync: str, *, adding: str = "", removing: str = "", eligible: str = "", leader: int | None = None
) -> PartitionNode:
    led = NodeId(int(in_sync[0]) if leader is None else leader)
    state = PartitionState(led, LeaderEpoch(5), members(in_sync), members(eligible))
    return PartitionNode(0, nodes(replicas), state, 8, Move(nodes(adding), nodes(removing)))


def min_in_sync(setting: int, each: PartitionNode) -> int:
    return min(setting, each.replicas_count_min)


def ask(
    before: PartitionNode, target: str | None, *, setting: int = 1, may_change_count: bool = True
) -> Reassigned | None:
    return requested(
        before,
        None if target is None else nodes(target),
        LIVE,
        lambda each: min_in_sync(setting, each),
        may_change_count=may_change_count,
    )


def done(before: PartitionNode, *, live: dict[NodeId, int] = LIVE) -> Reassigned | None:
    return completed(before, live, lambda each: min_in_sync(1, each))


def told(after: Reassigned | None) -> tuple[str, str, str, int, int, str, str]:
    assert after is not None
    state = after.state
    written = ["".join(map(str, each)) for each in (after.replicas, after.move.adding, after.move.removing)]
    in_sync, eligible = ("".join(str(m.node_id) for m in each) for each in (state.in_sync, state.eligible))
    return (written[0], written[1], written[2], state.leader, state.leader_epoch, in_sync, eligible)


@pytest.mark.parametrize(
    ("replicas", "target", "union", "adding", "removing"),
    [
        ("12", "34", "3412", "34", "12"),
        ("12", "23", "231", "3", "1"),
        ("12", "123", "123", "3", ""),
        ("123", "21", "213", "", "3"),
        ("12", "31", "312", "3", "2"),
    ],
)
def test_replicas_of_before_and_after_are_all_replicas_while_they_move(
    replicas: str, target: str, union: str, adding: str, removing: str
) -> None:
    after = ask(partition(replicas, replicas), target)
    assert told(after)[:5] == (union, adding, removing, int(replicas[0]), 5)
    assert after is not None
    assert {member.node_id for member in after.state.in_sync} == set(nodes(replicas))
    moved = partition(replicas, replicas)._replace(replicas=after.replicas, move=after.move)
    assert moved.target == nodes(target)
    assert set(moved.origin) == set(nodes(replicas))


def test_other_order_alone_is_written_at_once_and_moves_nothing() -> None:
    assert told(ask(partition("12", "12"), "21")) == ("21", "", "", 1, 5, "21", "")


def test_request_for_the_present_replicas_changes_nothing() -> None:
    assert ask(partition("12", "12"), "12") is None
    assert ask(partition("3412", "12", adding="34", removing="12"), "34") is None


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("11", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("19", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_request_that_cannot_be_is_refused(target: str | None, code: ErrorCode) -> None:
    with pytest.raises(RequestError) as refusal:
        ask(partition("12", "12"), target)
    assert refusal.value.code is code


def test_dead_broker_may_stay_a_replica_but_not_become_one() -> None:
    before = partition("17", "1")
    assert told(ask(before, "73"))[:3] == ("731", "3", "1")
    with pytest.raises(RequestError):
        ask(before, "18")


def test_number_of_replicas_is_kept_where_the_request_says_so() -> None:
    with pytest.raises(RequestError) as refusal:
        ask(partition("12", "12"), "123", may_change_count=False)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert ask(partition("3412", "12", adding="34", removing="12"), "56", may_change_count=False) is not None


def test_move_ends_when_all_later_replicas_are_in_sync() -> None:
    assert done(partition("3412", "123", adding="34", removing="12")) is None
    after = done(partition("3412", "1234", adding="34", removing="12"))
    assert told(after) == ("34", "", "", 3, 6, "34", "")


def test_leader_that_stays_leads_on_in_another_epoch_where_a_replica_leaves() -> None:
    assert told(done(partition("231", "123", adding="3", removing="1", leader=2))) == ("23", "", "", 2, 6, "23", "")
    assert told(done(partition("123", "123", adding="3"))) == ("123", "", "", 1, 5, "123", "")


def test_member_of_a_former_life_does_not_end_a_move() -> None:
    before = partition("231", "123", adding="3", removing="1")
    assert done(before, live={**LIVE, NodeId(3): 99}) is None
    assert done(before, live={node: epoch for node, epoch in LIVE.items() if node != 3}) is None


def test_partition_that_does_not_move_has_nothing_to_end() -> None:
    assert done(partition("12", "12")) is None


def test_requested_end_leaves_the_former_replicas() -> None:
    assert told(ask(partition("3412", "12", adding="34", removing="12"), None)) == ("12", "", "", 1, 6, "12", "")
    assert told(ask(partition("312", "1", adding="3", removing="2"), None)) == ("12", "", "", 1, 6, "1", "")


def test_added_replica_that_leads_gives_leadership_back() -> None:
    before = partition("312", "312", adding="3", removing="2", leader=3)
    assert told(ask(before, None)) == ("12", "", "", 1, 6, "12", "")


def test_move_does_not_end_so_that_no_replica_has_the_records() -> None:
    with pytest.raises(RequestError) as refusal:
        ask(partition("3412", "34", adding="34", removing="12"), None)
    assert refusal.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_former_replicas_that_are_eligible_have_every_acknowledged_record() -> None:
    before = partition("312", "3", adding="3", removing="1", eligible="12")
    assert told(ask(before, None, setting=2)) == ("12", "", "", 1, 6, "1", "2")


def test_eligible_replicas_are_forgotten_once_enough_are_in_sync() -> None:
    before = partition("312", "31", adding="3", removing="2", eligible="2", leader=1)
    assert told(ask(before, None, setting=1)) == ("12", "", "", 1, 6, "1", "")
    assert told(ask(before, None, setting=2)) == ("12", "", "", 1, 6, "1", "2")


def test_partition_whose_former_leader_is_dead_waits_for_an_election() -> None:
    state = partition("312", "1", adding="3", removing="2").state._replace(leader=NO_LEADER)
    before = partition("312", "1", adding="3", removing="2")._replace(state=state)
    after = requested(before, None, {NodeId(3): 13}, lambda each: 1)
    assert told(after) == ("12", "", "", NO_LEADER, 6, "1", "")


def test_another_request_replaces_a_move_under_way() -> None:
    before = partition("3412", "124", adding="34", removing="12")
    assert told(ask(before, "45")) == ("4512", "45", "12", 1, 6, "412", "")
    assert told(ask(before, "12")) == ("12", "", "", 1, 6, "12", "")
    assert told(ask(before, "346")) == ("34612", "346", "12", 1, 5, "412", "")


def test_no_more_replicas_need_to_be_in_sync_while_they_move() -> None:
    moving = ask(partition("1", "1"), "23")
    assert moving is not None
    assert PartitionNode(0, moving.replicas, moving.state, 9, moving.move).replicas_count_min == 1
    assert partition("12", "12").replicas_count_min == 2
    assert partition("12", "12").move == NO_MOVE
