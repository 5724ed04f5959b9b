"""What a broker writes about the partitions that it holds, after views, in its turn, and from time to time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

import pytest

from ottla.broker.replicas.elector import ELECTION_PATIENCE_MS, Departure, Elector, LeaderBalance
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.broker_registry import BrokerRegistration, BrokersView, LiveBroker
from ottla.coordination.elections import ElectionRules
from ottla.coordination.state_changes import StateChange
from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import (
    NO_LEADER,
    NO_STATE_VERSION,
    ChangeOutcome,
    ChangeResult,
    Members,
    PartitionState,
    ReplicaIncarnation,
)
from tests.unit.broker.turned_loop import TurnedClock

A, B, C = NodeId(1), NodeId(2), NodeId(3)
ALL = (A, B, C)
BALANCE = LeaderBalance(300_000, 10)


def members(text: str) -> Members:
    """`A1 B2`: A in its life 1, B in its life 2."""
    return tuple(ReplicaIncarnation(NodeId(" ABC".index(word[0])), int(word[1:])) for word in text.split())


def state_of(leader: str, epoch: int, in_sync: str, eligible: str = "") -> PartitionState:
    led = NO_LEADER if leader == "-" else NodeId(" ABC".index(leader))
    return PartitionState(led, LeaderEpoch(epoch), members(in_sync), members(eligible))


class Node:
    """Broker B in its life 9, with logs of which the test says what they hold."""

    def __init__(self, live: str = "A1 B9 C1", balance: LeaderBalance | None = None) -> None:
        self.loop = TurnedClock()
        self.lifecycle = BrokerLifecycle(B)
        self.complete_from = 0
        self.unusable: set[int] = set()
        self.is_stuck = False
        self.is_long_full = False
        self.refused: set[int] = set()
        self.usable_at: dict[NodeId, set[int]] = {}
        self.allows_unclean = False
        self.min_in_sync = 1
        self.states: list[tuple[PartitionState, int]] = []
        self.replicas: tuple[NodeId, ...] = ALL
        self.version = 0
        self.topics: dict[str, Topic] = {}
        self.proposed: list[tuple[int, PartitionState, int]] = []
        self.answers: list[Callable[[ChangeOutcome], None]] = []
        self.withheld: set[int] = set()
        self.elector = Elector(
            self.lifecycle,
            self,
            self._propose,
            ElectionRules(lambda _topic, _partition: self.min_in_sync, lambda _topic: self.allows_unclean),
            balance,
            self.loop,
            self.loop,  # type: ignore[arg-type]  # what it uses of it
            self,
            self,
        )
        self.elector.start()
        self.lifecycle.registered(9)
        self.alive(live)

    def is_complete(self, topic_partition: TopicPartition, broker_epoch: int, *, though_failed: bool = False) -> bool:
        lost = self.refused if though_failed else self.unusable
        return topic_partition.partition not in lost and broker_epoch >= self.complete_from

    def is_usable(self, topic_partition: TopicPartition, *, though_stuck: bool = False) -> bool:
        return topic_partition.partition not in self.unusable and (though_stuck or not self.is_stuck)

    @property
    def gives_way(self) -> bool:
        return self.is_stuck or self.is_long_full

    async def usable(
        self, node_id: NodeId, wanted: Sequence[TopicPartition], timeout_ms: int
    ) -> list[TopicPartition] | None:
        """What the other brokers answer."""
        found = self.usable_at.get(node_id)
        return None if found is None else [each for each in wanted if each.partition in found]

    def withhold(self, topic_partition: TopicPartition) -> None:
        self.withheld.add(topic_partition.partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        self.withheld.remove(topic_partition.partition)

    def _propose(self, change: StateChange, on_outcome: Callable[[ChangeOutcome], None]) -> None:
        self.proposed.append((change.topic_partition.partition, change.state, change.expected_version))
        self.answers.append(on_outcome)

    def alive(self, live: str) -> None:
        by_id: Mapping[NodeId, LiveBroker] = {
            member.node_id: LiveBroker(BrokerRegistration(member.node_id, ()), member.broker_epoch)
            for member in members(live)
        }
        self.lifecycle.saw(BrokersView(1, MappingProxyType(dict(by_id))))

    def see(self, *states: PartitionState, version: int = 4, topic: str = "orders") -> None:
        """A view in which the topic's partitions have these states."""
        self.version += 1
        partitions = tuple(PartitionNode(index, self.replicas, state, version) for index, state in enumerate(states))
        self.topics[topic] = Topic(topic, UUID(int=2**100 + len(topic)), partitions)
        self.look()

    def look(self) -> None:
        self.elector.on_view(TopicsView.of(self.version, self.topics))

    def taken(self) -> list[tuple[int, PartitionState, int]]:
        taken, self.proposed = self.proposed, []
        return taken


def test_election_that_this_broker_wins_is_written_at_once_and_once() -> None:
    node = Node("B9 C1")
    node.see(state_of("A", 5, "A1 B9 C1"), state_of("A", 5, "A1 C1"), state_of("C", 5, "B9 C1"))
    assert node.taken() == [(0, state_of("B", 6, "B9 C1"), 4)]
    node.look()
    node.alive("B9")
    node.look()
    assert all(index != 0 for index, _, _ in node.taken())


def test_election_of_another_replica_is_written_only_when_it_does_not_do_so_itself() -> None:
    node = Node("B9 C1")
    node.see(state_of("A", 5, "A1 C1"))
    node.loop.advance(ELECTION_PATIENCE_MS / 1000 - 0.1)
    assert node.taken() == []
    node.loop.advance(0.1)
    assert node.taken() == [(0, state_of("C", 6, "C1"), 4)]


def test_patience_grows_with_the_place_among_the_replicas_and_does_not_begin_anew_with_each_view() -> None:
    node = Node("A2 B9 C1")
    node.see(state_of("A", 5, "A1 C1"))
    node.loop.advance(ELECTION_PATIENCE_MS / 1000)
    node.see(state_of("A", 5, "A1 C1"))
    assert node.taken() == []
    node.loop.advance(ELECTION_PATIENCE_MS / 1000)
    assert node.taken() == [(0, state_of("C", 6, "C1"), 4)]


def test_election_that_was_written_meanwhile_is_forgotten() -> None:
    node = Node("B9 C1")
    node.see(state_of("A", 5, "A1 C1"))
    node.see(state_of("C", 6, "C1"), version=5)
    node.loop.advance(100)
    assert node.taken() == []


def test_election_that_nobody_can_win_any_more_is_not_asked_for_again_and_again() -> None:
    node = Node("B9 C1")
    node.see(state_of("A", 5, "A1 C1"))
    node.alive("B9")
    node.look()
    node.loop.advance(ELECTION_PATIENCE_MS / 1000)
    assert node.taken() == []
    for _ in range(3):
        node.loop.advance(0.0)
    assert node.loop.timers_count == 0
    node.alive("B9 C1")
    node.look()
    node.loop.advance(ELECTION_PATIENCE_MS / 1000)
    assert node.taken() == [(0, state_of("C", 6, "C1"), 4)]


def test_topic_that_was_deleted_meanwhile_is_forgotten() -> None:
    node = Node("B9 C1")
    node.see(state_of("A", 5, "A1 C1"))
    del node.topics["orders"]
    node.version += 1
    node.look()
    node.loop.advance(100)
    assert node.taken() == []


def test_topic_that_was_created_anew_between_two_views_has_its_own_elections() -> None:
    node = Node("B9 C1")
    node.see(state_of("A", 5, "A1 B9"), version=7)
    node.see(state_of("A", 5, "A1 C1"), version=7, topic="others")
    assert len(node.taken()) == 1
    created = PartitionNode(0, ALL, state_of("A", 0, "A1 B9"), 0)
    node.topics["orders"] = Topic("orders", UUID(int=2**101), (created,))
    node.version += 1
    node.look()
    assert node.taken() == [(0, state_of("B", 1, "B9"), 0)]


def test_burst_of_elections_is_proposed_in_one_pass() -> None:
    node = Node("B9 C1")
    node.see(*[state_of("A", 5, "A1 B9 C1")] * 2_000)
    assert len(node.taken()) == 2_000


def test_restarted_broker_reaffirms_what_it_kept_and_leaves_where_it_did_not() -> None:
    node = Node()
    node.complete_from = 3
    node.see(state_of("A", 5, "A1 B4"), state_of("A", 5, "A1 B2"), state_of("A", 5, "A1", "B4"))
    assert node.taken() == [
        (0, state_of("A", 5, "A1 B9"), 4),
        (1, state_of("A", 5, "A1"), 4),
        (2, state_of("A", 5, "A1", "B9"), 4),
    ]


def test_restarted_leader_is_elected_in_the_same_write_and_never_leads_its_old_epoch() -> None:
    node = Node("B9 C1")
    node.see(state_of("B", 5, "B4 C1"), state_of("B", 5, "B4"), state_of("-", 5, "", "B4"))
    assert node.taken() == [
        (0, state_of("B", 6, "B9 C1"), 4),
        (1, state_of("B", 6, "B9"), 4),
        (2, state_of("B", 6, "B9"), 4),
    ]


def test_restarted_leader_without_its_records_hands_over_in_the_same_write() -> None:
    node = Node()
    node.complete_from = 9
    node.see(state_of("B", 5, "B4 C1"), state_of("B", 5, "B4"))
    assert node.taken() == [(0, state_of("C", 6, "C1"), 4), (1, state_of("-", 5, ""), 4)]


def test_unusable_log_leaves_only_where_another_member_remains() -> None:
    node = Node()
    states = [state_of("B", 5, "B9 C1"), state_of("B", 5, "B9"), state_of("A", 5, "A1 B9")]
    # A is listed in a former life only: its disk may be lost.
    states.append(state_of("B", 5, "B9 A0"))
    node.see(*states)
    node.taken()
    node.unusable = {0, 1, 2, 3}
    node.elector.on_logs_changed()
    assert node.taken() == [(0, state_of("C", 6, "C1"), 4), (2, state_of("A", 5, "A1"), 4)]


@pytest.mark.parametrize("fault", ["is_stuck", "is_long_full"])
def test_stuck_or_full_disk_gives_way_where_the_other_members_can_acknowledge(fault: str) -> None:
    node = Node()
    node.min_in_sync = 2
    states = [
        state_of("B", 5, "A1 B9 C1"),
        state_of("A", 5, "A1 B9 C1"),
        # Without it produces with acks=all would be refused.
        state_of("B", 5, "B9 C1"),
        state_of("B", 5, "B9", "A1 C1"),
        # A is listed in a former life only.
        state_of("B", 5, "A0 B9 C1"),
        state_of("A", 5, "A1 C1"),
    ]
    node.see(*states)
    node.taken()
    setattr(node, fault, True)
    node.elector.on_logs_changed()
    assert node.taken() == [(0, state_of("A", 6, "A1 C1"), 4), (1, state_of("A", 5, "A1 C1"), 4)]


def test_leader_that_leaves_the_sync_withholds_reads_unless_its_change_is_refused() -> None:
    node = Node()
    node.see(state_of("B", 5, "A1 B9 C1"), state_of("A", 5, "A1 B9 C1"), state_of("B", 5, "B9"))
    node.is_stuck = True
    node.elector.on_logs_changed()
    assert node.taken() == [(0, state_of("A", 6, "A1 C1"), 4), (1, state_of("A", 5, "A1 C1"), 4)]
    assert node.withheld == {0}, "before the change is written"
    refused = ChangeOutcome(ChangeResult.STALE, NO_STATE_VERSION)
    node.answers[1](refused)
    assert node.withheld == {0}
    node.answers[0](refused)
    assert node.withheld == set()


def test_leader_withholds_reads_while_it_is_unknown_whether_it_leads() -> None:
    node = Node()
    node.see(state_of("B", 5, "A1 B9 C1"))
    node.is_stuck = True
    node.elector.on_logs_changed()
    node.answers[0](ChangeOutcome(ChangeResult.UNKNOWN, NO_STATE_VERSION))
    assert node.withheld == {0}


async def test_leader_that_hands_over_to_the_preferred_one_stays_in_sync_and_withholds_nothing() -> None:
    """The new leader commits nothing before this broker has fetched in its epoch."""
    node = Node()
    node.see(state_of("B", 5, "A1 B9 C1"))
    await node.elector.elect([TopicPartition("orders", 0)], is_unclean=False, timeout_ms=1)
    assert node.taken() == [(0, state_of("A", 6, "A1 B9 C1"), 4)]
    assert node.withheld == set()


def test_last_member_leads_though_its_disk_is_full() -> None:
    """It still answers readers, and also an unclean election may choose it."""
    node = Node("B9")
    node.allows_unclean = True
    node.is_long_full = True
    node.see(state_of("B", 5, "B9"), state_of("-", 5, "A1"))
    assert node.taken() == [(1, state_of("B", 6, "B9"), 4)]


def test_last_member_with_a_stuck_disk_leads_on_also_where_an_unclean_election_is_allowed() -> None:
    node = Node("B9")
    node.allows_unclean = True
    node.see(state_of("B", 5, "B9"), state_of("B", 5, "A1 B9"))
    node.taken()
    node.is_stuck = True
    node.elector.on_logs_changed()
    assert node.taken() == []


def test_broker_that_registered_again_while_its_disk_is_stuck_gives_way_or_leads_as_the_last_member() -> None:
    node = Node()
    node.is_stuck = True
    node.see(state_of("B", 5, "B4 C1"), state_of("B", 5, "B4"), state_of("A", 5, "A1 B4"))
    assert node.taken() == [
        (0, state_of("C", 6, "C1"), 4),
        (1, state_of("B", 6, "B9"), 4),
        (2, state_of("A", 5, "A1"), 4),
    ]


def test_broker_that_lost_its_records_leaves_though_its_disk_is_stuck() -> None:
    node = Node()
    node.is_stuck, node.complete_from = True, 9
    node.see(state_of("A", 5, "A1 B4"))
    assert node.taken() == [(0, state_of("A", 5, "A1"), 4)]


def test_preferred_leader_is_elected_again_only_when_it_is_in_sync_after_its_disk_was_stuck() -> None:
    node = Node(balance=BALANCE)
    node.replicas = (B, A, C)
    node.is_stuck = True
    node.see(state_of("A", 6, "A1 C1"))
    node.loop.advance(BALANCE.interval_ms / 1000)
    assert node.taken() == []
    node.is_stuck = False
    node.see(state_of("A", 6, "B9 A1 C1"), version=5)
    node.loop.advance(BALANCE.interval_ms / 1000)
    assert node.taken() == [(0, state_of("B", 7, "B9 A1 C1"), 5)]


@pytest.mark.parametrize("fault", ["is_stuck", "is_long_full"])
def test_preferred_leader_takes_nothing_back_while_its_disk_is_stuck_or_full(fault: str) -> None:
    """It is in sync, since the others could not acknowledge without it."""
    node = Node("A1 B9", balance=BALANCE)
    node.min_in_sync = 2
    node.replicas = (B, A, C)
    setattr(node, fault, True)
    node.see(state_of("A", 6, "A1 B9"))
    node.loop.advance(BALANCE.interval_ms / 1000)
    assert node.taken() == []
    setattr(node, fault, False)
    node.loop.advance(BALANCE.interval_ms / 1000)
    assert node.taken() == [(0, state_of("B", 7, "B9 A1"), 4)]


@pytest.mark.parametrize("fault", ["is_stuck", "is_long_full"])
def test_leader_that_nobody_listens_for_is_not_replaced_by_one_with_a_stuck_or_full_disk(fault: str) -> None:
    node = Node()
    node.min_in_sync = 2
    setattr(node, fault, True)
    node.see(state_of("A", 5, "A1 B9"))
    node.elector.on_leader_refused(A)
    assert node.taken() == []


def test_failed_log_that_is_listed_in_a_former_life_waits_for_its_repair_where_no_other_member_remains() -> None:
    node = Node()
    node.unusable = {0, 1, 2}
    # Its session was lost after the log failed; A is listed in a former life, too, and its disk may be lost.
    node.see(state_of("B", 5, "B4"), state_of("B", 5, "B4 C1"), state_of("B", 5, "B4 A0"))
    assert node.taken() == [(1, state_of("C", 6, "C1"), 4)]
    node.unusable = set()
    node.look()
    assert node.taken() == [(0, state_of("B", 6, "B9"), 4), (2, state_of("B", 6, "B9"), 4)]


def test_log_that_was_refused_at_the_start_leaves_also_as_the_last_one() -> None:
    node = Node()
    node.unusable = node.refused = {0}
    node.see(state_of("B", 5, "B4"))
    assert node.taken() == [(0, state_of("-", 5, ""), 4)]


def test_unusable_log_gives_way_to_an_unclean_election_where_that_is_allowed() -> None:
    node = Node()
    node.unusable, node.allows_unclean = {0, 1}, True
    node.see(state_of("B", 5, "B4"), state_of("B", 5, "B9"))
    assert node.taken() == [(0, state_of("-", 5, ""), 4), (1, state_of("-", 5, ""), 4)]


async def test_operators_unclean_election_does_not_wait_for_a_log_that_cannot_be_used() -> None:
    node = Node()
    node.unusable, node.usable_at = {0}, {A: set(), C: {0}}
    node.see(state_of("B", 5, "B4"))
    assert node.taken() == []
    await node.elector.elect([TopicPartition("orders", 0)], is_unclean=True, timeout_ms=1)
    assert node.taken() == [(0, state_of("C", 6, "C1"), 4)]


def test_leader_hands_over_a_partition_whose_log_failed_and_no_other() -> None:
    node = Node()
    node.see(state_of("B", 5, "B9 C1"), state_of("B", 5, "B9 C1"))
    node.unusable = {0, 1}
    node.elector.on_log_failed(TopicPartition("orders", 1))
    assert node.taken() == [(1, state_of("C", 6, "C1"), 4)]
    node.elector.on_log_failed(TopicPartition("orders", 1))
    node.elector.on_log_failed(TopicPartition("payments", 0))
    assert node.taken() == []


def test_late_addition_of_a_former_life_is_mended_when_it_is_seen() -> None:
    node = Node()
    node.see(state_of("A", 5, "A1"))
    assert node.taken() == []
    node.see(state_of("A", 5, "A1 B4"), version=5)
    assert node.taken() == [(0, state_of("A", 5, "A1 B9"), 5)]


def test_new_registration_makes_it_look_at_everything_again() -> None:
    node = Node()
    node.see(state_of("A", 5, "A1 B9"))
    node.lifecycle.unregistered()
    node.look()
    node.lifecycle.registered(12)
    node.alive("A1 B12")
    node.look()
    assert node.taken() == [(0, state_of("A", 5, "A1 B12"), 4)]


def test_nothing_is_proposed_without_a_registration_or_for_partitions_of_others() -> None:
    node = Node("B9 C1")
    node.lifecycle.unregistered()
    node.see(state_of("A", 5, "A1 B9"))
    node.lifecycle.registered(9)
    node.replicas = (A, C)
    node.see(state_of("A", 5, "A1 C1"))
    node.loop.advance(100)
    assert node.taken() == []


def test_change_of_unknown_outcome_is_decided_again_when_the_view_of_the_next_session_came_before_it() -> None:
    node = Node()
    node.see(state_of("A", 5, "A1 B4"))
    assert node.taken() == [(0, state_of("A", 5, "A1 B9"), 4)]
    node.lifecycle.unregistered()
    node.lifecycle.registered(12)
    node.alive("A1 B12")
    node.look()
    assert node.taken() == []
    node.answers[0](ChangeOutcome(ChangeResult.UNKNOWN, NO_STATE_VERSION))
    assert node.taken() == [(0, state_of("A", 5, "A1 B12"), 4)]


def test_change_of_unknown_outcome_is_left_to_the_next_session_while_there_is_none() -> None:
    node = Node()
    node.see(state_of("A", 5, "A1 B4"))
    assert len(node.taken()) == 1
    node.lifecycle.unregistered()
    node.answers[0](ChangeOutcome(ChangeResult.UNKNOWN, NO_STATE_VERSION))
    assert node.taken() == []
    node.lifecycle.registered(12)
    node.alive("A1 B12")
    node.look()
    assert node.taken() == [(0, state_of("A", 5, "A1 B12"), 4)]


@pytest.mark.parametrize("result", [ChangeResult.STALE, ChangeResult.APPLIED])
def test_change_that_was_decided_waits_for_the_view_that_shows_it(result: ChangeResult) -> None:
    node = Node("B9 C1")
    node.see(state_of("A", 5, "A1 B9"))
    assert len(node.taken()) == 1
    node.answers[0](ChangeOutcome(result, 5))
    node.alive("B9")
    node.look()
    assert node.taken() == []
    node.see(state_of("A", 6, "A1 B9"), version=5)
    assert node.taken() == [(0, state_of("B", 7, "B9"), 5)]


def test_unclean_election_is_held_as_soon_as_it_is_allowed_if_the_log_can_be_used() -> None:
    node = Node("B9")
    node.unusable = {1}
    node.see(state_of("A", 5, "A1"), state_of("A", 5, "A1"))
    node.loop.advance(100)
    assert node.taken() == []
    node.allows_unclean = True
    node.look()
    assert node.taken() == [(0, state_of("B", 6, "B9"), 4)]


def test_unclean_election_is_left_to_the_replicas_before_this_one_for_a_while() -> None:
    node = Node("A1 B9")
    node.allows_unclean = True
    node.see(state_of("C", 5, "C1"))
    assert node.taken() == []
    node.loop.advance(ELECTION_PATIENCE_MS / 1000)
    assert node.taken() == [(0, state_of("B", 6, "B9"), 4)]


async def test_operators_unclean_election_passes_over_logs_that_cannot_be_used() -> None:
    node = Node("A1 B9 C1")
    node.replicas = (B, A, C)
    node.unusable = {0}
    node.usable_at = {A: {1}, C: {0, 1}}
    dead = state_of("-", 5, "")
    node.see(dead, dead, state_of("A", 5, "A1"))
    wanted = [TopicPartition("orders", index) for index in (0, 1, 2)]
    codes = await node.elector.elect(wanted, is_unclean=True, timeout_ms=1)
    assert node.taken() == [(0, state_of("C", 6, "C1"), 4), (1, state_of("B", 6, "B9"), 4)]
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert codes == [timed_out, timed_out, ErrorCode.ELECTION_NOT_NEEDED], "the tree has not answered"
    node.answers[0](ChangeOutcome(ChangeResult.APPLIED, 5))


async def test_elections_of_many_partitions_are_held_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.runtime.loop_offload.SLICE_S", 0.0)
    node, partitions_count = Node(), 100
    node.see(*[state_of("A", 5, "A1")] * partitions_count)
    turns_of_others = itertools.count()

    async def be_beside() -> None:
        while True:
            next(turns_of_others)
            await asyncio.sleep(0)

    others = asyncio.get_running_loop().create_task(be_beside())
    wanted = [TopicPartition("orders", index) for index in range(partitions_count)]
    codes = await node.elector.elect(wanted, is_unclean=False, timeout_ms=60_000)
    others.cancel()
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED] * partitions_count
    assert next(turns_of_others) >= partitions_count


async def test_operators_unclean_election_is_refused_where_no_log_can_be_used() -> None:
    node = Node("A1 B9")
    node.unusable, node.usable_at = {0}, {A: set()}
    node.see(state_of("C", 5, "C1"))
    codes = await node.elector.elect([TopicPartition("orders", 0)], is_unclean=True, timeout_ms=60_000)
    assert (codes, node.taken()) == ([ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE], [])


def test_leader_that_nobody_listens_for_is_replaced_before_its_session_ends() -> None:
    node = Node()
    node.min_in_sync = 2
    node.see(
        state_of("A", 5, "A1 B9 C1"),  # it is this broker's turn
        state_of("A", 5, "A1 B9"),
        state_of("A", 5, "A1 C1"),  # another's, or of no broker
        state_of("A", 5, "A1", "B9"),
        state_of("C", 5, "B9 C1"),  # not led by it
    )
    assert node.taken() == []
    node.elector.on_leader_refused(A)
    assert node.taken() == [(0, state_of("B", 6, "B9 C1"), 4), (1, state_of("B", 6, "B9", "A1"), 4)]
    node.elector.on_leader_refused(A)
    assert node.taken() == []


def test_preferred_leader_takes_over_when_too_many_are_led_by_others() -> None:
    node = Node(balance=BALANCE)
    node.replicas = (B, A, C)
    ours, theirs = state_of("B", 5, "B9 A1"), state_of("A", 5, "B9 A1")
    node.see(*[ours] * 9, theirs, state_of("A", 5, "A1"))
    node.loop.advance(299)
    assert node.taken() == []
    node.loop.advance(1)
    assert node.taken() == [(9, state_of("B", 6, "B9 A1"), 4)]
    node.see(*[ours] * 9, theirs, version=5)
    node.loop.advance(300)
    assert node.taken() == []  # one of ten


def test_nothing_is_balanced_when_it_is_turned_off_or_after_the_stop() -> None:
    for balance in (None, BALANCE):
        node = Node(balance=balance)
        node.replicas = (B, A, C)
        node.see(state_of("A", 5, "B9 A1"))
        node.elector.stop()
        node.loop.advance(1_000)
        assert node.taken() == []


class Departing:
    """A tree whose answers to changes of states are given, and what is withheld when they are written."""

    def __init__(self, node: Node, outcome: ChangeResult) -> None:
        self.view = TopicsView.of(node.version, node.topics)
        self._node = node
        self._outcome = outcome
        self.withheld_at_writes: list[set[int]] = []

    async def sync(self) -> None: ...

    async def refresh(self) -> None: ...

    async def change_states(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]:
        self.withheld_at_writes.append(set(self._node.withheld))
        return [ChangeOutcome(self._outcome, NO_STATE_VERSION) for _ in changes]


@pytest.mark.parametrize(
    ("outcome", "withheld"), [(ChangeResult.APPLIED, {0}), (ChangeResult.UNKNOWN, {0}), (ChangeResult.STALE, set())]
)
async def test_departing_leader_withholds_reads_before_it_writes_and_unless_it_is_refused(
    outcome: ChangeResult, withheld: set[int]
) -> None:
    node = Node()
    node.see(state_of("B", 5, "A1 B9"), state_of("A", 5, "A1 B9"), state_of("B", 5, "B9"))
    tree = Departing(node, outcome)
    departure = Departure(
        tree,  # type: ignore[arg-type]  # what it uses of it
        tree,  # type: ignore[arg-type]
        node.lifecycle,
        lambda _topic, _partition: 1,
        node,
    )
    await departure.leave()
    assert tree.withheld_at_writes[0] == {0}
    assert node.withheld == withheld
