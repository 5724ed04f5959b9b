"""Changes of in-sync replicas are proposed when they are due, and their outcomes are reported to their partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_read import ReplicaReader
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.replicas.in_sync_changes import LOOKS_PER_TURN, InSyncChanges
from ottla.coordination.state_changes import StateChange
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.partition_state import NO_STATE_VERSION, ChangeOutcome, ChangeResult
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of, replicated
from tests.unit.broker.served_log import MANY_BYTES, ServedLog
from tests.unit.broker.turned_loop import TurnedClock

LAG_MS = 30_000
ALL = (HERE, ELSEWHERE, NodeId(3))


class Leading:
    """Partitions that this broker leads, and what they propose."""

    def __init__(self) -> None:
        self.loop = TurnedClock()
        self.table = PartitionTable()
        self.proposed: list[StateChange] = []
        self.answers: list[Callable[[ChangeOutcome], None]] = []
        self.lifecycle = one_of(*ALL)
        self.changes = InSyncChanges(
            self.table,
            self._propose,
            self.loop,
            self.loop,  # type: ignore[arg-type]  # what it uses of it
            LAG_MS,
        )
        self.changes.start()

    def _propose(self, change: StateChange, on_outcome: Callable[[ChangeOutcome], None]) -> None:
        self.proposed.append(change)
        self.answers.append(on_outcome)

    def lead(self, index: int = 0, *in_sync: NodeId) -> Partition:
        served = ServedLog("t", index, leader_epoch=None)
        partition = Partition(served.log, HERE, lag_time_max_ms=LAG_MS, in_sync_observer=self.changes)
        node = replicated(HERE, 1, 4, in_sync or (HERE,), ALL)._replace(partition_index=index)
        partition.on_state(node, self.lifecycle, self.loop.monotonic_ms())
        self.table.add(partition)
        self.loop.turn()
        return partition

    def fetch(self, partition: Partition, node_id: NodeId) -> None:
        reader = ReplicaReader(node_id, 10 * node_id, self.loop.monotonic_ms())
        partition.read_as_replica(reader, 1, 0, -1, MANY_BYTES, whole_first_batch=True)
        self.loop.turn()

    def answer(self, result: ChangeResult, version: int = NO_STATE_VERSION) -> None:
        self.answers.pop(0)(ChangeOutcome(result, version))
        self.loop.turn()

    @property
    def members(self) -> list[tuple[int, ...]]:
        """Who would be in sync, by proposal."""
        return [change.state.in_sync_nodes() for change in self.proposed]


def test_replica_that_caught_up_is_proposed_once_over_the_version_that_is_known() -> None:
    leading = Leading()
    partition = leading.lead()
    leading.fetch(partition, ELSEWHERE)
    leading.fetch(partition, ELSEWHERE)
    (change,) = leading.proposed
    assert leading.members == [(HERE, ELSEWHERE)]
    assert change.path == f"/brokers/topics/t/{change.path.split('/')[4]}/partitions/0/state"
    assert change.expected_version == 4


def test_next_change_follows_the_outcome_of_the_one_before() -> None:
    leading = Leading()
    partition = leading.lead()
    leading.fetch(partition, ELSEWHERE)
    leading.fetch(partition, ALL[2])
    leading.answer(ChangeResult.APPLIED, 5)
    assert partition.in_sync_count == 2
    assert leading.members == [(HERE, ELSEWHERE), ALL]
    assert leading.proposed[1].expected_version == 5


def test_change_of_unknown_outcome_is_proposed_again_over_the_same_version() -> None:
    leading = Leading()
    leading.fetch(leading.lead(), ELSEWHERE)
    leading.answer(ChangeResult.UNKNOWN)
    assert [change.expected_version for change in leading.proposed] == [4, 4]


def test_change_that_was_stale_waits_for_the_newer_state() -> None:
    leading = Leading()
    partition = leading.lead()
    leading.fetch(partition, ELSEWHERE)
    leading.answer(ChangeResult.STALE)
    assert len(leading.proposed) == 1
    partition.on_state(replicated(HERE, 1, 6, (HERE,), ALL), leading.lifecycle, leading.loop.monotonic_ms())
    leading.loop.turn()
    assert [change.expected_version for change in leading.proposed] == [4, 6]


def test_replica_that_falls_behind_is_noticed_without_an_event() -> None:
    leading = Leading()
    partition = leading.lead(0, *ALL)
    for node_id in ALL[1:]:
        leading.fetch(partition, node_id)
    assert leading.proposed == []
    for _ in range(2):
        leading.loop.advance(LAG_MS / 2 / 1000)
        leading.fetch(partition, ALL[2])
    assert leading.proposed == [], "a replica that has everything stays in sync"
    other = leading.lead(1, *ALL)
    assert other.role is partition.role
    for _ in range(3):
        leading.loop.advance(LAG_MS / 2 / 1000)
    assert leading.members == [(HERE,)], "of the one whose followers never fetched"


def test_nothing_is_proposed_right_after_a_pause_of_the_process() -> None:
    leading = Leading()
    leading.lead(0, *ALL)
    leading.loop.now_s = 10 * LAG_MS / 1000
    leading.loop.advance(0)
    assert leading.proposed == []
    leading.loop.advance(LAG_MS / 2 / 1000)
    assert leading.members == [(HERE,)]


def test_partition_that_left_this_broker_proposes_nothing_and_its_outcome_is_nobodys() -> None:
    leading = Leading()
    partition = leading.lead()
    leading.fetch(partition, ELSEWHERE)
    leading.changes.look_at(partition)
    leading.table.remove(TopicPartition("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leading.answer(ChangeResult.UNKNOWN)
    assert len(leading.proposed) == 1


@pytest.mark.parametrize("count", [LOOKS_PER_TURN + 1])
def test_many_partitions_are_looked_at_in_several_turns(count: int) -> None:
    leading = Leading()
    partition = leading.lead()
    looked: list[int] = []

    class Counted:
        is_served = True

        def propose(self, now_ms: int) -> None:
            looked.append(now_ms)

    for _ in range(count):
        leading.changes.look_at(Counted())  # type: ignore[arg-type]  # the part of a partition that it uses
    leading.changes._look()
    assert len(looked) == LOOKS_PER_TURN
    leading.loop.turn()
    assert len(looked) == count
    assert partition.is_served


def test_stopped_changes_propose_nothing() -> None:
    leading = Leading()
    partition = leading.lead()
    leading.changes.look_at(partition)
    leading.changes.stop()
    leading.loop.advance(10 * LAG_MS / 1000)
    assert leading.proposed == []


def test_outcome_that_comes_after_the_stop_is_followed_by_no_other_change() -> None:
    leading = Leading()
    leading.fetch(leading.lead(), ELSEWHERE)
    assert leading.members == [(HERE, ELSEWHERE)]
    leading.changes.stop()
    leading.answer(ChangeResult.UNKNOWN)
    assert len(leading.members) == 1


def test_follower_whose_process_is_gone_leaves_and_is_back_with_its_next_fetch() -> None:
    leading = Leading()
    partition = leading.lead(0, *ALL)
    assert partition.on_follower_gone(ELSEWHERE, leading.lifecycle.live[ELSEWHERE])
    leading.changes.look_at(partition)
    leading.loop.turn()
    leading.answer(ChangeResult.APPLIED, 5)
    leading.fetch(partition, ELSEWHERE)
    assert leading.members == [(HERE, ALL[2]), ALL]
