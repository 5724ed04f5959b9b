"""A leader: who leads, what its high watermark counts, whose fetches count."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import PartitionState
from ottla.replication.replica import EpochBehindLog, Role
from tests.unit.replication.replicas import REPLICAS, OnePartition, log_of, member, state_of

READ = (0, None, False)
READ_AND_JOIN = (0, None, True)


def leader_of(*in_sync: int, min_in_sync: int = 2, epoch: int = 5) -> OnePartition:
    partition = OnePartition(1, log_of(1, 4), high_watermark=1, min_in_sync=min_in_sync)
    partition.see(state_of(1, epoch, in_sync or (1, 2, 3)), 7)
    return partition


def test_replica_starts_as_a_follower_without_a_leader() -> None:
    replica = OnePartition(1, log_of(1)).replica
    assert (replica.role, replica.leader, replica.leader_epoch) == (Role.FOLLOWER, -1, -1)
    assert replica.next_fetch() is None


def test_follower_with_records_that_cannot_be_compared_joins_after_its_reset() -> None:
    """The leader's records were all deleted: what the follower has below may be of an epoch that was replaced here."""
    partition = leader_of(1, min_in_sync=1)
    partition.append("x")
    partition.log.delete_records_before(3)
    assert partition.fetched_by(2, 3, 4, log_start_offset=0) == READ
    assert partition.fetched_by(2, 3, -1, log_start_offset=3) == READ_AND_JOIN


def test_follower_whose_records_came_in_this_epoch_joins_though_they_are_deleted_here() -> None:
    partition = leader_of(1, min_in_sync=1)
    partition.append("x")
    partition.log.delete_records_before(3)
    assert partition.fetched_by(2, 3, 5, log_start_offset=0) == READ_AND_JOIN


def test_replica_leads_in_the_life_in_which_it_is_in_sync() -> None:
    partition = leader_of()
    replica = partition.replica
    assert (replica.role, replica.leader, replica.leader_epoch, replica.in_sync_count) == (Role.LEADER, 1, 5, 3)
    partition.append("x")
    assert partition.log.epoch_of(2) == 5


@pytest.mark.parametrize("own_broker_epoch", [-1, 10, 12])
def test_broker_that_registered_again_leads_nothing(own_broker_epoch: int) -> None:
    partition = leader_of()
    partition.see(state_of(1, 5), 7, own_broker_epoch)
    assert (partition.replica.role, partition.replica.leader) == (Role.FOLLOWER, -1)
    assert partition.replica.next_fetch() is None


def test_older_state_than_the_one_seen_is_not_applied() -> None:
    partition = leader_of()
    partition.see(state_of(2, 4), 6)
    assert partition.replica.leader == 1


def test_tree_that_is_older_than_the_log_is_refused() -> None:
    partition = OnePartition(1, log_of(1, 9))
    with pytest.raises(EpochBehindLog):
        partition.see(state_of(1, 5), 7)
    assert partition.replica.leader == -1
    partition.see(state_of(1, 10), 8)
    assert partition.replica.leader == 1


def test_high_watermark_is_the_least_stable_end_of_the_in_sync_replicas() -> None:
    partition = leader_of()
    partition.append("a", "b", "c")
    assert partition.replica.high_watermark == 1
    partition.fetched_by(2, 4)
    assert partition.replica.high_watermark == 1
    partition.fetched_by(3, 3)
    assert partition.replica.high_watermark == 3
    partition.fetched_by(3, 5)
    assert partition.replica.high_watermark == 4


def test_high_watermark_does_not_pass_the_leaders_own_stable_end() -> None:
    partition = leader_of()
    partition.append("a", "b", flush=False)
    partition.fetched_by(2, 4)
    partition.fetched_by(3, 4)
    assert partition.replica.high_watermark == 2
    partition.flush()
    assert partition.replica.high_watermark == 4


def test_high_watermark_does_not_go_back_when_a_late_fetch_arrives() -> None:
    partition = leader_of(1, 2)
    partition.append("a")
    partition.fetched_by(2, 3)
    partition.fetched_by(2, 2)
    assert partition.replica.high_watermark == 3


def test_sole_replica_follows_its_own_stable_end() -> None:
    partition = OnePartition(1, log_of(1, stable_end=0), min_in_sync=2)
    partition.replicas = REPLICAS[:1]
    partition.see(state_of(1, 5, (1,)), 0)
    assert partition.replica.has_min_in_sync
    partition.flush()
    assert partition.replica.high_watermark == 1


def test_high_watermark_is_frozen_below_the_minimum_in_sync() -> None:
    partition = leader_of(1)
    partition.append("a")
    partition.fetched_by(2, 3)
    assert partition.replica.high_watermark == 1
    assert not partition.replica.has_min_in_sync


def test_high_watermark_is_frozen_while_an_eligible_member_may_still_be_elected() -> None:
    """Lowering the minimum must not commit what the eligible member lacks."""
    partition = OnePartition(1, log_of(1, 4), high_watermark=1, min_in_sync=2)
    partition.see(state_of(1, 5, (1,), eligible=(2,)), 7)
    partition.append("a")
    partition.min_in_sync = 1
    partition.replica.on_min_in_sync(1, 0)
    assert partition.replica.has_min_in_sync
    assert partition.replica.high_watermark == 1
    change = partition.replica.propose(0)
    assert change is not None
    assert change.state == state_of(1, 5, (1,))
    partition.see(change.state, 8)
    assert partition.replica.high_watermark == 3


def test_raised_minimum_freezes_and_a_lowered_one_releases() -> None:
    partition = leader_of(1, 2)
    partition.append("a")
    partition.replica.on_min_in_sync(3, 0)
    partition.fetched_by(2, 3)
    assert partition.replica.high_watermark == 1
    partition.replica.on_min_in_sync(2, 0)
    assert partition.replica.high_watermark == 3


def test_fetch_of_another_life_of_a_member_does_not_count() -> None:
    """The state has node 2 in life 12; it fetches in life 99, and what it had before is not known to be there still."""
    partition = leader_of(1, 2)
    partition.append("a")
    partition.live[NodeId(2)] = 99
    assert partition.fetched_by(2, 3)[0] == 0
    assert partition.replica.high_watermark == 1
    state = PartitionState(NodeId(1), state_of(1, 5).leader_epoch, (member(1), member(2, 99)))
    partition.see(state, 8)
    assert partition.replica.high_watermark == 3


def test_fetch_before_its_brokers_registration_is_seen_is_tried_again() -> None:
    partition = leader_of()
    assert partition.fetched_by(2, 2, broker_epoch=13)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    del partition.live[NodeId(2)]
    assert partition.fetched_by(2, 2, broker_epoch=12)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_fetch_of_a_former_life_is_refused() -> None:
    assert leader_of().fetched_by(2, 2, broker_epoch=11)[0] == ErrorCode.STALE_BROKER_EPOCH


def test_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    partition = leader_of()
    partition.live[NodeId(4)] = 14
    assert partition.fetched_by(4, 2)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_fetch_of_another_leader_epoch_is_refused() -> None:
    partition = leader_of()
    assert partition.fetched_by(2, 2, leader_epoch=4)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert partition.fetched_by(2, 2, leader_epoch=6)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_follower_answers_no_fetch() -> None:
    partition = OnePartition(1, log_of(1))
    partition.see(state_of(2, 5), 3)
    assert partition.fetched_by(3, 1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("own", "fetch_offset", "last_epoch", "expected"),
    [
        ((1, 1, 3), 3, 3, None),
        ((1, 1, 3), 2, 1, None),
        # A: the same epoch, a longer suffix that was never committed.
        ((1, 1), 4, 1, (1, 2)),
        # B: an epoch that this log never had.
        ((1, 1, 3), 4, 2, (1, 2)),
        # C: two fast elections (KIP-279): the largest epoch below the one asked for, and its end.
        ((1, 3, 3), 4, 2, (1, 1)),
        # D: below every known epoch.
        ((3, 3), 2, 2, (2, 0)),
        # E: an empty leader.
        ((), 2, 2, (2, 0)),
        # F: an empty follower.
        ((1, 1), 0, -1, None),
    ],
)
def test_follower_with_another_history_learns_where_it_diverges(
    own: tuple[int, ...], fetch_offset: int, last_epoch: int, expected: tuple[int, int] | None
) -> None:
    partition = OnePartition(1, log_of(*own))
    partition.see(state_of(1, 5, (1, 2)), 3)
    error_code, diverging, _ = partition.fetched_by(2, fetch_offset, last_epoch)
    assert (error_code, diverging) == (0, expected)


def test_diverging_fetch_is_no_progress() -> None:
    partition = leader_of(1, 2)
    partition.append("a")
    partition.fetched_by(2, 3, 3)
    assert partition.replica.high_watermark == 1


@pytest.mark.parametrize(("fetch_offset", "last_epoch"), [(0, -1), (2, 6)])
def test_position_outside_of_the_log_is_out_of_range(fetch_offset: int, last_epoch: int) -> None:
    partition = leader_of(1, 2)
    partition.log.delete_records_before(1)
    assert partition.fetched_by(2, fetch_offset, last_epoch)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_empty_log_that_starts_above_the_leaders_end_is_sent_back_to_it() -> None:
    """Retention had emptied it before an unclean election made a shorter log the partition's."""
    assert leader_of(1, 2).fetched_by(2, 9, -1) == (0, (5, 2), False)


def test_epoch_start_is_reached_with_the_high_watermark() -> None:
    """KIP-207: what an earlier leader committed may be above the high watermark that is known here."""
    partition = leader_of(1, 2)
    assert not partition.replica.has_reached_epoch_start
    partition.fetched_by(2, 1)
    assert not partition.replica.has_reached_epoch_start
    partition.fetched_by(2, 2)
    assert partition.replica.has_reached_epoch_start


def test_high_watermark_of_a_checkpoint_is_at_most_the_stable_end() -> None:
    assert OnePartition(1, log_of(1, 1, 1, stable_end=2), high_watermark=3).replica.high_watermark == 2
    log = log_of(1, 1, 1)
    log.delete_records_before(2)
    assert OnePartition(1, log, high_watermark=0).replica.high_watermark == 2


def test_lag_of_each_follower_is_known() -> None:
    partition = leader_of(1, 2)
    partition.fetched_by(2, 2)
    partition.now_ms = 500
    partition.append("a", "b", "c")
    partition.now_ms = 1_500
    partition.fetched_by(2, 4)
    partition.now_ms = 2_000
    lags = partition.replica.lags(2_000)
    assert [(lag.node_id, lag.is_in_sync, lag.lag_records, lag.lag_ms) for lag in lags] == [
        (2, True, 1, 2_000),
        (3, False, 5, 2_000),
    ]
    partition.fetched_by(2, 5)
    assert partition.replica.lags(2_000)[0][2:] == (0, 0)
