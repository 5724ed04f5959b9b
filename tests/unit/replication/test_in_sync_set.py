"""How a leader changes the in-sync set, and what counts while a change's outcome is not known."""

from __future__ import annotations

from ottla.model.identifiers import NodeId
from ottla.model.partition_state import ChangeResult
from ottla.replication.leadership import InSyncChange
from tests.unit.replication.replicas import LAG_TIME_MAX_MS, OnePartition, log_of, member, state_of


def leader_of(*in_sync: int, min_in_sync: int = 2, eligible: tuple[int, ...] = ()) -> OnePartition:
    partition = OnePartition(1, log_of(1, 1), high_watermark=2, min_in_sync=min_in_sync)
    partition.see(state_of(1, 5, in_sync, eligible), 7)
    for node_id in in_sync:
        if node_id != 1:
            partition.fetched_by(node_id, 2)
    return partition


def propose(partition: OnePartition) -> InSyncChange:
    change = partition.replica.propose(partition.now_ms)
    assert change is not None
    partition.replica.check_invariants()
    return change


def resolve(partition: OnePartition, change: InSyncChange, outcome: ChangeResult, version: int = -1) -> None:
    partition.replica.on_outcome(change, outcome, version, partition.now_ms)
    partition.replica.check_invariants()


def test_nothing_is_proposed_while_all_are_in_sync() -> None:
    assert leader_of(1, 2, 3).replica.propose(0) is None


def test_follower_that_lags_for_too_long_leaves() -> None:
    partition = leader_of(1, 2, 3)
    partition.append("a")
    partition.now_ms = LAG_TIME_MAX_MS
    partition.fetched_by(2, 3)
    assert partition.replica.propose(partition.now_ms) is None
    partition.now_ms += 1
    change = propose(partition)
    assert (change.state, change.expected_version) == (state_of(1, 5, (1, 2)), 7)


def test_follower_that_has_everything_stays_while_nothing_is_appended() -> None:
    partition = leader_of(1, 2, 3)
    assert partition.replica.propose(10 * LAG_TIME_MAX_MS) is None


def test_follower_that_had_everything_has_its_whole_time_from_the_next_record_on() -> None:
    partition = leader_of(1, 2, 3)
    partition.now_ms = 10 * LAG_TIME_MAX_MS
    assert partition.replica.propose(partition.now_ms) is None
    partition.append("a")
    assert partition.replica.propose(partition.now_ms + LAG_TIME_MAX_MS) is None
    assert partition.replica.propose(partition.now_ms + LAG_TIME_MAX_MS + 1) is not None


def test_replica_that_is_assigned_again_joins_by_what_it_fetches_then() -> None:
    partition = leader_of(1, 2, 3)
    partition.replicas = (NodeId(1), NodeId(2))
    partition.see(state_of(1, 5, (1, 2)), 8)
    partition.replicas = (NodeId(1), NodeId(2), NodeId(3))
    partition.see(state_of(1, 5, (1, 2)), 9)
    assert partition.replica.propose(partition.now_ms) is None
    partition.fetched_by(3, 0)
    assert partition.replica.propose(partition.now_ms) is None
    partition.fetched_by(3, 2)
    assert propose(partition).state == state_of(1, 5, (1, 2, 3))


def test_follower_that_is_always_a_little_behind_stays() -> None:
    partition = leader_of(1, 2)
    for turn in range(1, 9):
        partition.append("a")
        partition.now_ms = turn * LAG_TIME_MAX_MS // 2
        partition.fetched_by(2, 1 + turn)
        assert partition.replica.propose(partition.now_ms) is None


def test_member_in_another_life_leaves_at_once_and_its_new_life_may_join() -> None:
    partition = leader_of(1, 2, 3)
    partition.live[NodeId(3)] = 99
    assert propose(partition).state == state_of(1, 5, (1, 2))
    again = leader_of(1, 2, 3)
    again.live[NodeId(3)] = 99
    again.fetched_by(3, 2)
    assert propose(again).state.in_sync == (member(1), member(2), member(3, 99))


def test_members_that_leave_below_the_minimum_become_eligible() -> None:
    partition = leader_of(1, 2)
    del partition.live[NodeId(2)]
    assert propose(partition).state == state_of(1, 5, (1,), eligible=(2,))


def test_members_that_leave_above_the_minimum_are_not_eligible() -> None:
    partition = leader_of(1, 2, 3)
    del partition.live[NodeId(3)]
    assert propose(partition).state == state_of(1, 5, (1, 2))


def test_enough_members_end_the_eligible_set() -> None:
    partition = leader_of(1, eligible=(2,))
    assert partition.fetched_by(3, 2)[2]
    assert propose(partition).state == state_of(1, 5, (1, 3))


def test_follower_joins_at_the_high_watermark_and_the_epochs_start() -> None:
    """KAFKA-7128: at the high watermark alone it may lack what an earlier leader committed."""
    partition = OnePartition(1, log_of(1, 1, 4), high_watermark=1)
    partition.see(state_of(1, 5, (1,)), 7)
    assert not partition.fetched_by(2, 1)[2]
    assert not partition.fetched_by(2, 2)[2]
    assert partition.replica.propose(0) is None
    assert partition.fetched_by(2, 3)[2]
    assert propose(partition).state == state_of(1, 5, (1, 2))


def test_follower_below_the_high_watermark_does_not_join() -> None:
    partition = leader_of(1, 2)
    partition.append("a")
    partition.fetched_by(2, 3)
    assert not partition.fetched_by(3, 2)[2]
    assert partition.fetched_by(3, 3)[2]


def test_broker_without_a_replica_does_not_join() -> None:
    partition = leader_of(1, 2)
    partition.replicas = partition.replicas[:2]
    partition.see(partition_state := state_of(1, 5, (1, 2)), 7)
    partition.fetched_by(3, 2)
    assert partition.replica.propose(0) is None
    assert partition_state.in_sync == (member(1), member(2))


def test_joining_follower_counts_from_its_proposal_on() -> None:
    partition = leader_of(1, 2)
    partition.fetched_by(3, 2)
    propose(partition)
    partition.append("a")
    partition.fetched_by(2, 3)
    assert partition.replica.high_watermark == 2
    partition.fetched_by(3, 3)
    assert partition.replica.high_watermark == 3


def test_leaving_follower_counts_until_the_change_is_known_to_be_applied() -> None:
    partition = leader_of(1, 2, 3)
    partition.append("a")
    partition.fetched_by(2, 3)
    del partition.live[NodeId(3)]
    change = propose(partition)
    assert partition.replica.high_watermark == 2
    resolve(partition, change, ChangeResult.APPLIED, 8)
    assert partition.replica.high_watermark == 3
    assert partition.replica.in_sync_count == 2


def test_one_change_at_a_time_is_under_way() -> None:
    partition = leader_of(1, 2, 3)
    del partition.live[NodeId(3)]
    propose(partition)
    del partition.live[NodeId(2)]
    assert partition.replica.propose(0) is None


def test_unknown_outcome_keeps_both_sets_until_a_higher_version_is_seen() -> None:
    partition = leader_of(1, 2)
    partition.fetched_by(3, 2)
    first = propose(partition)
    resolve(partition, first, ChangeResult.UNKNOWN)
    # The follower that was to join is gone meanwhile, so the next change is another one over the same version.
    del partition.live[NodeId(3)]
    assert partition.replica.propose(0) is None
    del partition.live[NodeId(2)]
    second = propose(partition)
    assert second.expected_version == first.expected_version == 7
    partition.append("a")
    partition.live |= {NodeId(2): 12, NodeId(3): 13}
    partition.fetched_by(2, 3)
    assert partition.replica.high_watermark == 2, "the first change may still be applied, and needs node 3"
    partition.see(state_of(1, 5, (1, 2)), 7)
    assert partition.replica.high_watermark == 2, "a read of the same version proves nothing"
    partition.see(state_of(1, 5, (1, 2)), 9)
    assert partition.replica.high_watermark == 3


def test_outcome_of_a_change_that_was_overtaken_says_nothing() -> None:
    partition = leader_of(1, 2, 3)
    del partition.live[NodeId(3)]
    change = propose(partition)
    partition.see(state_of(1, 5, (1, 2, 3)), 9)
    resolve(partition, change, ChangeResult.STALE)
    assert partition.replica.in_sync_count == 3
    assert propose(partition).expected_version == 9


def test_stale_change_is_proposed_again_only_over_a_newer_version() -> None:
    partition = leader_of(1, 2, 3)
    del partition.live[NodeId(3)]
    resolve(partition, propose(partition), ChangeResult.STALE)
    assert partition.replica.propose(0) is None
    partition.see(state_of(1, 5, (1, 2, 3)), 8)
    assert propose(partition).expected_version == 8


def test_lagging_view_after_an_applied_change_is_not_applied() -> None:
    partition = leader_of(1, 2, 3)
    del partition.live[NodeId(3)]
    resolve(partition, propose(partition), ChangeResult.APPLIED, 8)
    partition.see(state_of(1, 5, (1, 2, 3)), 7)
    assert partition.replica.in_sync_count == 2


def test_outcome_of_an_earlier_epochs_change_says_nothing() -> None:
    partition = leader_of(1, 2, 3)
    del partition.live[NodeId(3)]
    change = propose(partition)
    partition.see(state_of(2, 6, (1, 2)), 8)
    resolve(partition, change, ChangeResult.STALE)
    assert partition.replica.leader == 2
    assert partition.replica.propose(0) is None


def test_follower_whose_process_has_ended_leaves_at_once() -> None:
    partition = leader_of(1, 2, 3)
    assert partition.replica.on_gone(NodeId(3), member(3).broker_epoch)
    assert not partition.replica.on_gone(NodeId(3), member(3).broker_epoch), "each call returns it"
    assert propose(partition).state == state_of(1, 5, (1, 2))


def test_follower_that_fetches_again_before_it_was_left_out_stays() -> None:
    partition = leader_of(1, 2, 3)
    partition.replica.on_gone(NodeId(3), member(3).broker_epoch)
    partition.fetched_by(3, 2)
    assert partition.replica.propose(0) is None


def test_end_of_another_life_of_a_follower_changes_nothing() -> None:
    partition = leader_of(1, 2, 3)
    assert not partition.replica.on_gone(NodeId(3), member(3).broker_epoch - 1)
    assert partition.replica.propose(0) is None
