"""A follower: what it fetches, which answers count, where it cuts its log."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.replication.following import (
    APPEND,
    BACK_OFF,
    DROP,
    FETCH,
    FollowerAction,
    FollowerFetch,
    FollowerStep,
)
from tests.unit.replication.replicas import Answer, OnePartition, log_of, state_of


def follower_of(*epochs: int, stable_end: int | None = None, high_watermark: int = 0) -> OnePartition:
    partition = OnePartition(1, log_of(*epochs, stable_end=stable_end), high_watermark)
    partition.see(state_of(2, 5), 7)
    return partition


def fetch(partition: OnePartition) -> FollowerFetch:
    following = partition.replica.next_fetch()
    assert following is not None
    return following


def answer(
    partition: OnePartition,
    asked: FollowerFetch,
    *,
    error: ErrorCode = ErrorCode.NONE,
    high_watermark: int = 0,
    log_start_offset: int = 0,
    diverging: tuple[int, int] | None = None,
    has_records: bool = False,
) -> FollowerStep:
    records = ["a record"] if has_records else []
    told = Answer(error, high_watermark, log_start_offset, diverging, records)
    step = partition.replica.on_response(asked.request_id, told)
    partition.replica.check_invariants()
    return step


def append(partition: OnePartition, *epochs: int) -> None:
    for epoch in epochs:
        partition.log.append_record(epoch, f"e{epoch}")


def test_follower_fetches_from_its_end_with_what_its_leader_checks() -> None:
    partition = follower_of(1, 1, 4)
    asked = fetch(partition)
    assert asked[1:] == (2, 5, 3, 4)


def test_follower_flushes_before_it_fetches_again() -> None:
    partition = follower_of(1, 1, stable_end=1)
    assert partition.replica.next_fetch() is None
    partition.flush()
    assert fetch(partition).fetch_offset == 2


def test_same_fetch_is_sent_until_its_answer_moves_the_position() -> None:
    partition = follower_of(1)
    asked = fetch(partition)
    assert fetch(partition) is asked
    assert answer(partition, asked) == FETCH
    assert fetch(partition) is asked
    assert answer(partition, asked, has_records=True) == APPEND
    append(partition, 5)
    partition.flush()
    assert fetch(partition).request_id != asked.request_id


def test_repeated_answer_is_dropped() -> None:
    partition = follower_of(1)
    asked = fetch(partition)
    answer(partition, asked, has_records=True)
    append(partition, 5)
    assert answer(partition, asked, has_records=True) == DROP


def test_answer_of_another_epoch_is_dropped() -> None:
    partition = follower_of(1)
    asked = fetch(partition)
    partition.see(state_of(2, 6), 8)
    assert answer(partition, asked, diverging=(0, 0)) == DROP
    assert partition.log.log_end_offset == 1


def test_answer_after_the_log_moved_otherwise_is_dropped() -> None:
    partition = follower_of(1, 1)
    asked = fetch(partition)
    partition.log.truncate_to(1)
    partition.replica.on_truncated()
    assert answer(partition, asked, has_records=True) == DROP
    assert fetch(partition).fetch_offset == 1


def test_high_watermark_follows_the_leaders_as_far_as_it_is_stable_here() -> None:
    partition = follower_of(1, 1)
    assert answer(partition, fetch(partition), high_watermark=3, has_records=True) == APPEND
    append(partition, 5, 5)
    assert partition.replica.high_watermark == 2
    partition.flush()
    assert partition.replica.high_watermark == 3


def test_high_watermark_of_an_older_answer_does_not_lower_it() -> None:
    partition = follower_of(1, 1)
    asked = fetch(partition)
    answer(partition, asked, high_watermark=2)
    answer(partition, asked, high_watermark=1)
    assert partition.replica.high_watermark == 2


def test_high_watermark_of_an_earlier_leader_says_nothing_of_the_next_ones_records() -> None:
    partition = follower_of(1, 1)
    answer(partition, fetch(partition), high_watermark=9)
    partition.see(state_of(3, 6), 8)
    append(partition, 6)
    partition.flush()
    assert partition.replica.high_watermark == 2


@pytest.mark.parametrize(
    ("own", "diverging", "end_offset"),
    [
        ((1, 1, 1), (1, 2), 2),
        # KIP-279: the leader's epoch is one that this log has less of than the leader.
        ((1, 2, 2), (1, 3), 1),
        # This log never had the leader's epoch: the end of the one below it.
        ((1, 1, 4), (3, 5), 2),
        ((2, 2), (1, 0), 0),
    ],
)
def test_follower_cuts_where_the_histories_part(
    own: tuple[int, ...], diverging: tuple[int, int], end_offset: int
) -> None:
    partition = follower_of(*own, high_watermark=0)
    step = answer(partition, fetch(partition), diverging=diverging)
    assert step.action is FollowerAction.TRUNCATE
    partition.cut(step)
    assert partition.log.log_end_offset == end_offset
    assert fetch(partition).fetch_offset == end_offset


def test_high_watermark_is_lowered_after_the_log_was_cut() -> None:
    partition = follower_of(1, 1, 1, high_watermark=3)
    step = answer(partition, fetch(partition), diverging=(1, 1), high_watermark=3)
    assert partition.replica.high_watermark == 3
    partition.cut(step)
    assert partition.replica.high_watermark == 1


def test_fetch_counts_until_the_log_was_cut_as_its_answer_requires() -> None:
    partition = follower_of(1, 1, 1)
    asked = fetch(partition)
    step = answer(partition, asked, diverging=(1, 1))
    assert fetch(partition) is asked
    assert answer(partition, asked, diverging=(1, 1)) == step
    partition.cut(step)
    assert answer(partition, asked, diverging=(1, 1)) == DROP


def test_answer_that_requires_a_cut_is_dropped_in_the_next_epoch() -> None:
    partition = follower_of(1, 1, 1)
    asked = fetch(partition)
    answer(partition, asked, diverging=(1, 1))
    partition.see(state_of(2, 6), 8)
    assert not partition.replica.is_current_fetch(asked.request_id)


@pytest.mark.parametrize("diverging", [(4, 3), (4, 9), (-1, -1)])
def test_nothing_is_cut_on_an_answer_that_contradicts_its_question(diverging: tuple[int, int]) -> None:
    partition = follower_of(1, 1, 4)
    assert answer(partition, fetch(partition), diverging=diverging) == BACK_OFF
    assert partition.log.log_end_offset == 3


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_error_changes_nothing(error: ErrorCode) -> None:
    partition = follower_of(1, 1)
    asked = fetch(partition)
    assert answer(partition, asked, error=error) == BACK_OFF
    assert fetch(partition) is asked
    assert partition.log.log_end_offset == 2


def test_follower_is_reset_where_the_leaders_log_starts_above_its_end() -> None:
    partition = follower_of(1, 1, high_watermark=2)
    asked = fetch(partition)
    step = answer(partition, asked, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=9)
    assert step == (FollowerAction.RESET, 9, -1)
    partition.cut(step)
    assert partition.replica.high_watermark == 9
    assert fetch(partition)[3:] == (9, -1)


def test_follower_is_reset_when_the_histories_diverge_below_its_start() -> None:
    partition = follower_of(1, 1, 1, 1)
    partition.log.delete_records_before(3)
    partition.replica.on_truncated()
    partition.replica.on_reset()
    step = answer(partition, fetch(partition), diverging=(0, 1), log_start_offset=1)
    assert step == (FollowerAction.RESET, 1, 1)


def test_empty_follower_is_reset_to_the_end_of_a_shorter_leader() -> None:
    partition = follower_of(1, 1, high_watermark=2)
    partition.log.delete_records_before(2)
    partition.log.reset_to(9)
    partition.replica.on_reset()
    step = answer(partition, fetch(partition), diverging=(5, 4))
    assert step == (FollowerAction.RESET, 4, 4)
    partition.cut(step)
    assert partition.replica.high_watermark == 4


def test_follower_is_reset_when_the_leader_deleted_all_that_could_prove_its_records() -> None:
    """The leader replaced offset 1 in another epoch, and its records were deleted up to its end, 2."""
    partition = follower_of(1, 1, 1, high_watermark=1)
    step = answer(partition, fetch(partition), diverging=(1, 2), log_start_offset=2)
    assert step == (FollowerAction.RESET, 2, 2)


def test_records_that_the_leader_cannot_compare_any_more_are_dropped() -> None:
    """The leader replaced offset 1 in another epoch, and retention deleted its records up to 2 afterwards."""
    partition = follower_of(1, 2, high_watermark=1)
    step = answer(partition, fetch(partition), high_watermark=3, log_start_offset=2, has_records=True)
    assert step == (FollowerAction.RESET, 2, -1)
    assert partition.replica.high_watermark == 1


def test_replica_follows_no_broker_while_there_is_no_leader() -> None:
    partition = follower_of(1)
    partition.see(state_of(-1, 5, ()), 8)
    assert partition.replica.next_fetch() is None


def test_former_leader_follows_the_next_one() -> None:
    partition = OnePartition(1, log_of(1), high_watermark=1)
    partition.see(state_of(1, 5), 7)
    partition.append("a")
    partition.see(state_of(2, 6, (2, 3)), 8)
    assert fetch(partition)[1:] == (2, 6, 2, 5)
    assert answer(partition, fetch(partition), diverging=(1, 1)) == (FollowerAction.TRUNCATE, 1, 1)
