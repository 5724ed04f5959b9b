"""Transactional ids: the states, wrong calls, time-outs, exhausted epochs, parked calls, restarts."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.transactions.commands import (
    DescribedTransaction,
    DescribeTransaction,
    InitProducer,
    ListedTransaction,
    ListReply,
    ListTransactions,
    ProducerReply,
)
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.transaction import EPOCH_MAX, Transaction, TransactionState
from tests.unit.transactions.coordinator import START_MS, TX, A, B, Coordinator, coordinator_with

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
WRONG_STATE = ErrorCode.INVALID_TXN_STATE
WRONG_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
P = 4000


def state_of(coordinator: Coordinator) -> tuple[str, int, int]:
    found = coordinator.state()
    return found.state.title, found.producer_id, found.producer_epoch


def open_transaction(epoch: int = 0, *, is_complete: bool = False, commits: bool = True, **ends: bool) -> Coordinator:
    coordinator = Coordinator()
    coordinator.init()
    for _ in range(epoch):
        coordinator.init()
    coordinator.add((P, epoch))
    if is_complete:
        coordinator.end((P, epoch), commits=commits, **ends)
        coordinator.write_all_markers()
    return coordinator


def test_unknown_id_gets_a_new_producer_id_and_each_later_producer_the_next_epoch() -> None:
    coordinator = Coordinator()
    assert coordinator.init() == ProducerReply(NONE, P, 0)
    assert coordinator.init() == ProducerReply(NONE, P, 1)
    assert state_of(coordinator) == ("Empty", P, 1)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (InitProducer("", 1000), ErrorCode.INVALID_REQUEST),
        (InitProducer(TX, 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducer(TX, 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducer(TX, 1000, producer_id=7), ErrorCode.INVALID_REQUEST),
        (InitProducer(TX, 1000, producer_epoch=7), ErrorCode.INVALID_REQUEST),
    ],
)
def test_init_with_wrong_fields_is_refused(command: InitProducer, error: ErrorCode) -> None:
    coordinator = Coordinator()
    assert coordinator.submit(command) == [ProducerReply(error)]
    assert len(coordinator.shard) == 0


def test_producer_that_continues_gets_the_next_epoch_and_its_repeat_the_same() -> None:
    coordinator = Coordinator()
    coordinator.init()
    assert coordinator.init(P, 0) == ProducerReply(NONE, P, 1)
    assert coordinator.init(P, 0) == ProducerReply(NONE, P, 1)


def test_producer_whose_id_was_taken_over_is_fenced() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.init()
    assert coordinator.init(P, 0) == ProducerReply(FENCED)
    command = InitProducer(TX, 1000, P, 0, knows_fenced=False)
    assert coordinator.submit(command) == [ProducerReply(ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert coordinator.init(P + 1, 1) == ProducerReply(FENCED)


def test_init_aborts_the_open_transaction_and_is_answered_after_its_markers() -> None:
    coordinator = open_transaction()
    replies = coordinator.submit(InitProducer(TX, 1000))
    assert (replies, state_of(coordinator)) == ([], ("PrepareAbort", P, 1))
    coordinator.write_all_markers()
    assert replies == [ProducerReply(NONE, P, 2)]
    assert coordinator.end((P, 0), commits=True) == [ProducerReply(FENCED)]


def test_own_init_in_an_open_transaction_advances_the_epoch_once() -> None:
    coordinator = open_transaction()
    replies = coordinator.submit(InitProducer(TX, 1000, P, 0))
    coordinator.write_all_markers()
    assert replies == [ProducerReply(NONE, P, 1)]


def test_late_repeat_of_an_init_does_not_abort_the_transaction_that_followed() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.init(P, 0)
    coordinator.add((P, 1))
    assert coordinator.submit(InitProducer(TX, 1000, P, 0)) == [ProducerReply(FENCED)]
    assert state_of(coordinator) == ("Ongoing", P, 1)


def test_tree_without_an_answer_is_reported_as_loading_and_forgets_the_id() -> None:
    coordinator = Coordinator()
    replies = coordinator.submit(InitProducer(TX, 1000))
    coordinator.shard.on_producer_id(TX, None, coordinator.moment)
    assert replies == [ProducerReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    assert len(coordinator.shard) == 0


def test_partitions_are_added_once_and_verified() -> None:
    coordinator = Coordinator()
    coordinator.init()
    assert coordinator.add((P, 0), A) == [NONE]
    assert coordinator.add((P, 0), A, B) == [NONE]
    count = len(coordinator.log.records)
    assert coordinator.add((P, 0), B) == [NONE]
    assert len(coordinator.log.records) == count
    assert coordinator.verify((P, 0), A, B) == [NONE]
    assert coordinator.state().started_ms == START_MS


def test_add_of_another_producer_is_refused() -> None:
    coordinator = Coordinator()
    assert coordinator.add((P, 0)) == [WRONG_ID]
    coordinator.init()
    coordinator.init()
    assert coordinator.add((P + 1, 1)) == [WRONG_ID]
    assert coordinator.add((P, 0)) == [FENCED]
    assert coordinator.add((P, 2)) == [FENCED]
    assert state_of(coordinator) == ("Empty", P, 1)


def test_partition_that_is_not_in_the_open_transaction_is_not_verified() -> None:
    coordinator = open_transaction(1)
    assert coordinator.verify((P, 1), B) == [WRONG_STATE]
    assert coordinator.verify((P, 0)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert coordinator.verify((P + 1, 1)) == [WRONG_ID]


def test_late_produce_of_a_decided_transaction_is_not_verified() -> None:
    coordinator = open_transaction()
    coordinator.end((P, 0), commits=True, advances_epoch=False)
    assert coordinator.verify((P, 0), A) == [WRONG_STATE]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("advances_epoch", [True, False])
def test_end_is_answered_when_it_is_decided_and_markers_follow(commits: bool, advances_epoch: bool) -> None:
    coordinator = open_transaction()
    coordinator.add((P, 0), B)
    epoch = 1 if advances_epoch else 0
    assert coordinator.end((P, 0), commits=commits, advances_epoch=advances_epoch) == [ProducerReply(NONE, P, epoch)]
    assert coordinator.markers == [EndMarkers(TX, P, epoch, commits, advances_epoch, 5, frozenset({A, B}))]
    assert state_of(coordinator)[0] == ("PrepareCommit" if commits else "PrepareAbort")
    coordinator.write_all_markers()
    assert state_of(coordinator) == ("CompleteCommit" if commits else "CompleteAbort", P, epoch)


def test_end_is_not_answered_and_no_marker_requested_before_the_decision_is_stable() -> None:
    coordinator = open_transaction()
    coordinator.is_slow = True
    replies = coordinator.end((P, 0), commits=True)
    assert (replies, coordinator.markers) == ([], [])
    coordinator.flush()
    assert replies == [ProducerReply(NONE, P, 1)]
    assert len(coordinator.markers) == 1


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("advances_epoch", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_repeated_end_gets_the_same_answer_and_the_opposite_one_none(
    commits: bool, advances_epoch: bool, is_complete: bool
) -> None:
    coordinator = open_transaction()
    first = coordinator.end((P, 0), commits=commits, advances_epoch=advances_epoch)
    if is_complete:
        coordinator.write_all_markers()
    assert coordinator.end((P, 0), commits=commits, advances_epoch=advances_epoch) == first
    opposite = coordinator.end((P, 0), commits=not commits, advances_epoch=advances_epoch)
    assert opposite == [ProducerReply(WRONG_STATE)]


def test_end_without_a_transaction_is_refused() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.init()
    for commits in (True, False):
        assert coordinator.end((P, 1), commits=commits, advances_epoch=False) == [ProducerReply(WRONG_STATE)]
    assert coordinator.end((P, 1), commits=True) == [ProducerReply(WRONG_STATE)]
    assert coordinator.end((P, 0), commits=False) == [ProducerReply(FENCED)]
    assert coordinator.end((P + 1, 1), commits=False) == [ProducerReply(WRONG_ID)]


def test_abort_of_nothing_gives_the_next_epoch_each_time() -> None:
    coordinator = Coordinator()
    coordinator.init()
    assert coordinator.end((P, 0), commits=False) == [ProducerReply(NONE, P, 1)]
    assert coordinator.end((P, 0), commits=False) == [ProducerReply(NONE, P, 1)]
    assert coordinator.end((P, 1), commits=False) == [ProducerReply(NONE, P, 2)]
    assert (state_of(coordinator), coordinator.markers) == (("CompleteAbort", P, 2), [])


def test_current_epoch_of_a_complete_transaction_ends_the_next_one() -> None:
    coordinator = open_transaction(is_complete=True)
    assert coordinator.end((P, 1), commits=True) == [ProducerReply(WRONG_STATE)]
    assert coordinator.end((P, 1), commits=False) == [ProducerReply(NONE, P, 2)]


def test_replaced_producer_does_not_repeat_an_end_that_kept_the_epoch() -> None:
    coordinator = open_transaction(1, is_complete=True, advances_epoch=False)
    assert coordinator.end((P, 0), commits=True) == [ProducerReply(FENCED)]


def test_old_versions_get_invalid_producer_epoch_for_fenced() -> None:
    coordinator = open_transaction(1)
    (reply,) = coordinator.end((P, 0), commits=True, advances_epoch=False, knows_fenced=False)
    assert reply == ProducerReply(ErrorCode.INVALID_PRODUCER_EPOCH)


def test_end_that_was_delayed_on_an_older_connection_does_not_end_the_next_transaction() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.add((P, 0), connection=1)
    coordinator.end((P, 0), commits=False, advances_epoch=False, connection=2)
    coordinator.write_all_markers()
    coordinator.add((P, 0), connection=2)
    late = coordinator.end((P, 0), commits=False, advances_epoch=False, connection=1)
    assert late == [ProducerReply(BUSY)]
    assert coordinator.add((P, 0), B, connection=1) == [BUSY]
    assert state_of(coordinator)[0] == "Ongoing"


def test_next_producer_may_use_an_older_connection() -> None:
    coordinator = Coordinator()
    coordinator.init()
    coordinator.add((P, 0), connection=9)
    coordinator.end((P, 0), commits=True, advances_epoch=False, connection=9)
    coordinator.write_all_markers()
    coordinator.init()
    assert coordinator.add((P, 1), connection=3) == [NONE]


def test_calls_during_the_markers_wait_and_keep_their_order() -> None:
    coordinator = open_transaction()
    coordinator.end((P, 0), commits=True)
    added = coordinator.add((P, 1), B)
    ended = coordinator.end((P, 1), commits=False)
    assert (added, ended) == ([], [])
    coordinator.write_all_markers()
    assert (added, ended) == ([NONE], [ProducerReply(NONE, P, 2)])
    assert state_of(coordinator) == ("PrepareAbort", P, 2)


def test_call_is_busy_when_the_markers_take_longer_than_it_may_wait() -> None:
    coordinator = open_transaction()
    coordinator.end((P, 0), commits=True)
    added = coordinator.add((P, 1), B)
    coordinator.pass_ms(999)
    assert added == []
    coordinator.pass_ms(1)
    assert added == [BUSY]
    coordinator.write_all_markers()
    assert state_of(coordinator)[0] == "CompleteCommit"


def test_marker_of_another_transaction_does_not_complete_this_one() -> None:
    coordinator = open_transaction(is_complete=True)
    coordinator.add((P, 1))
    coordinator.end((P, 1), commits=True)
    coordinator.shard.on_marker_written(TX, (P, 1), A, coordinator.moment)
    assert state_of(coordinator) == ("PrepareCommit", P, 2)


def test_refused_append_changes_nothing_and_the_client_tries_again() -> None:
    coordinator = open_transaction()
    coordinator.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.end((P, 0), commits=True) == [ProducerReply(error)]
    assert coordinator.add((P, 0), B) == [error]
    assert state_of(coordinator) == ("Ongoing", P, 0)
    coordinator.log.refusal = None
    assert coordinator.end((P, 0), commits=True) == [ProducerReply(NONE, P, 1)]


def test_completion_that_the_log_refuses_is_tried_again() -> None:
    coordinator = open_transaction()
    coordinator.end((P, 0), commits=True)
    coordinator.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.write_all_markers()
    assert state_of(coordinator)[0] == "PrepareCommit"
    coordinator.log.refusal = None
    coordinator.pass_ms(500)
    assert state_of(coordinator)[0] == "CompleteCommit"


def test_completion_that_the_log_refused_is_tried_again_after_a_suspension() -> None:
    coordinator = open_transaction()
    coordinator.end((P, 0), commits=True)
    coordinator.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.write_all_markers()
    coordinator.shard.suspend(ErrorCode.NOT_COORDINATOR)
    coordinator.log.refusal = None
    coordinator.shard.resume(coordinator.moment)
    coordinator.pass_ms(0)
    assert state_of(coordinator)[0] == "CompleteCommit"


def test_transaction_that_times_out_is_aborted_with_the_next_epoch() -> None:
    coordinator = open_transaction()
    coordinator.pass_ms(59_999)
    assert state_of(coordinator)[0] == "Ongoing"
    coordinator.pass_ms(1)
    assert coordinator.markers == [EndMarkers(TX, P, 1, False, True, 5, frozenset({A}))]
    coordinator.write_all_markers()
    assert coordinator.end((P, 0), commits=True) == [ProducerReply(WRONG_STATE)]
    assert coordinator.end((P, 0), commits=True, advances_epoch=False) == [ProducerReply(FENCED)]
    assert coordinator.add((P, 0)) == [FENCED]
    assert coordinator.end((P, 0), commits=False) == [ProducerReply(NONE, P, 1)]
    assert coordinator.init(P, 0) == ProducerReply(NONE, P, 1)


def test_next_transaction_has_its_whole_time() -> None:
    coordinator = open_transaction()
    coordinator.pass_ms(50_000)
    coordinator.end((P, 0), commits=True)
    coordinator.write_all_markers()
    coordinator.add((P, 1))
    coordinator.pass_ms(59_999)
    assert state_of(coordinator)[0] == "Ongoing"
    coordinator.pass_ms(1)
    assert state_of(coordinator)[0] == "PrepareAbort"


def test_time_out_that_the_log_refuses_is_tried_again() -> None:
    coordinator = open_transaction()
    coordinator.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.pass_ms(60_000)
    coordinator.log.refusal = None
    coordinator.pass_ms(500)
    assert state_of(coordinator) == ("PrepareAbort", P, 1)


def test_id_without_a_transaction_for_a_week_expires() -> None:
    coordinator = open_transaction(is_complete=True)
    coordinator.pass_ms(7 * 24 * 3_600_000 - 1)
    assert len(coordinator.shard) == 1
    coordinator.pass_ms(3_600_000)
    assert len(coordinator.shard) == 0
    assert coordinator.log.records[-1].value is None
    assert coordinator.add((P, 1)) == [WRONG_ID]
    assert coordinator.init(P, 1) == ProducerReply(NONE, 5000, 0)


def test_ids_that_have_expired_are_removed_at_the_next_check() -> None:
    settings = TransactionSettings(id_expiration_ms=50, expiry_check_ms=200)
    coordinator = Coordinator(settings=settings)
    assert coordinator.init() == ProducerReply(NONE, 4000, 0)
    coordinator.pass_ms(199)
    assert len(coordinator.shard) == 1
    coordinator.pass_ms(1)
    assert len(coordinator.shard) == 0
    assert coordinator.init() == ProducerReply(NONE, 5000, 0)
    coordinator.pass_ms(199)
    assert len(coordinator.shard) == 1
    coordinator.pass_ms(1)
    assert len(coordinator.shard) == 0


def exhausted(state: TransactionState = TransactionState.EMPTY) -> Coordinator:
    partitions = frozenset({A}) if state is TransactionState.ONGOING else frozenset()
    return coordinator_with(Transaction(77, EPOCH_MAX, 60_000, state, partitions, START_MS, START_MS))


def test_init_of_an_exhausted_producer_gives_a_new_id() -> None:
    coordinator = exhausted()
    assert coordinator.init(77, EPOCH_MAX) == ProducerReply(NONE, P, 0)
    assert coordinator.init(77, EPOCH_MAX) == ProducerReply(NONE, P, 0)
    assert coordinator.state().previous_producer_id == 77


@pytest.mark.parametrize("commits", [True, False])
def test_end_of_an_exhausted_producer_gives_a_new_id_and_marks_with_the_old_one(commits: bool) -> None:
    coordinator = exhausted(TransactionState.ONGOING)
    replies = coordinator.end((77, EPOCH_MAX), commits=commits)
    assert replies == []
    coordinator.give_ids()
    assert replies == [ProducerReply(NONE, P, 0)]
    assert coordinator.markers == [EndMarkers(TX, 77, EPOCH_MAX + 1, commits, True, 6, frozenset({A}))]
    assert coordinator.end((77, EPOCH_MAX), commits=commits) == replies
    added = coordinator.add((P, 0), B)
    coordinator.write_all_markers()
    assert added == [NONE]
    assert coordinator.end((77, EPOCH_MAX), commits=commits) == [ProducerReply(WRONG_ID)]


def test_repeated_end_of_an_exhausted_producer_is_answered_after_completion() -> None:
    coordinator = exhausted(TransactionState.ONGOING)
    coordinator.end((77, EPOCH_MAX), commits=True)
    coordinator.give_ids()
    coordinator.write_all_markers()
    assert coordinator.end((77, EPOCH_MAX), commits=True) == [ProducerReply(NONE, P, 0)]
    assert coordinator.end((77, EPOCH_MAX), commits=False) == [ProducerReply(WRONG_STATE)]


def test_exhausted_producer_whose_transaction_timed_out_gets_a_new_id() -> None:
    coordinator = exhausted(TransactionState.ONGOING)
    coordinator.pass_ms(60_000)
    aborted = coordinator.end((77, EPOCH_MAX), commits=False)
    coordinator.write_all_markers()
    coordinator.give_ids()
    assert aborted == [ProducerReply(NONE, P, 0)]


def test_no_producer_is_given_the_epoch_of_a_marker() -> None:
    coordinator = exhausted(TransactionState.ONGOING)
    replies = coordinator.submit(InitProducer(TX, 1000))
    assert coordinator.markers[0].producer_epoch == EPOCH_MAX + 1
    coordinator.write_all_markers()
    coordinator.give_ids()
    assert replies == [ProducerReply(NONE, P, 0)]


@pytest.mark.parametrize("commits", [True, False])
def test_next_coordinator_completes_what_was_decided(commits: bool) -> None:
    before = open_transaction()
    before.end((P, 0), commits=commits)
    after = Coordinator(before.log, epoch=6)
    assert after.markers == [EndMarkers(TX, P, 1, commits, True, 6, frozenset({A}))]
    added = after.add((P, 1))
    after.write_all_markers()
    assert added == [NONE]


def test_next_coordinator_requests_markers_when_what_it_read_is_stable() -> None:
    before = open_transaction()
    before.is_slow = True
    before.end((P, 0), commits=True)
    after = Coordinator(before.log, epoch=6)
    after.is_slow = True
    repeated = after.end((P, 0), commits=True)
    assert (after.markers, repeated) == ([], [])
    after.flush()
    assert len(after.markers) == 1
    assert repeated == [ProducerReply(NONE, P, 1)]


def test_next_coordinator_has_the_rest_of_the_time_out() -> None:
    before = open_transaction()
    after = Coordinator(before.log, epoch=6, passed_ms=59_000)
    after.pass_ms(999)
    assert state_of(after)[0] == "Ongoing"
    after.pass_ms(1)
    assert state_of(after)[0] == "PrepareAbort"


def test_replayed_state_is_the_live_one() -> None:
    coordinator = open_transaction()
    for commits in (True, False):
        producer = coordinator.state().next_identity
        coordinator.add(producer, A, B)
        assert dict(Coordinator(coordinator.log).shard.transactions()) == dict(coordinator.shard.transactions())
        coordinator.end(producer, commits=commits)
        assert dict(Coordinator(coordinator.log).shard.transactions()) == dict(coordinator.shard.transactions())
        coordinator.write_all_markers()
        assert dict(Coordinator(coordinator.log).shard.transactions()) == dict(coordinator.shard.transactions())


def test_shard_that_fails_answers_what_waits_and_requests_no_markers() -> None:
    coordinator = open_transaction()
    coordinator.is_slow = True
    held = coordinator.end((P, 0), commits=True)
    parked = coordinator.add((P, 1))
    coordinator.shard.fail_all(ErrorCode.NOT_COORDINATOR)
    assert held == [ProducerReply(ErrorCode.NOT_COORDINATOR)]
    assert parked == [ErrorCode.NOT_COORDINATOR]
    coordinator.flush()
    assert coordinator.markers == []
    assert coordinator.add((P, 1)) == [ErrorCode.NOT_COORDINATOR]
    coordinator.shard.on_marker_written(TX, (P, 1), A, coordinator.moment)
    assert state_of(coordinator)[0] == "PrepareCommit"


def test_suspended_shard_continues_with_its_decisions() -> None:
    coordinator = open_transaction()
    coordinator.is_slow = True
    coordinator.end((P, 0), commits=True)
    coordinator.shard.suspend(ErrorCode.NOT_COORDINATOR)
    assert coordinator.add((P, 1)) == [ErrorCode.NOT_COORDINATOR]
    coordinator.flush()
    assert coordinator.markers == []
    coordinator.shard.resume(coordinator.moment)
    assert len(coordinator.markers) == 1
    assert coordinator.end((P, 0), commits=True) == [ProducerReply(NONE, P, 1)]


def test_markers_that_are_written_during_a_suspension_count_after_it() -> None:
    coordinator = open_transaction()
    coordinator.end((P, 0), commits=True)
    coordinator.shard.suspend(ErrorCode.NOT_COORDINATOR)
    coordinator.write_all_markers()
    assert state_of(coordinator)[0] == "PrepareCommit"
    coordinator.shard.resume(coordinator.moment)
    coordinator.pass_ms(0)
    assert (state_of(coordinator)[0], coordinator.markers) == ("CompleteCommit", [])


def test_transactions_are_described_and_listed() -> None:
    coordinator = open_transaction()
    described = coordinator.submit(DescribeTransaction(TX))
    assert described == [DescribedTransaction(NONE, TX, coordinator.state())]
    unknown = coordinator.submit(DescribeTransaction("x"))
    assert unknown == [DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "x")]
    coordinator.passed_ms = 5_000
    listed = [ListReply(NONE, [ListedTransaction(TX, P, "Ongoing")])]
    assert coordinator.submit(ListTransactions()) == listed
    assert coordinator.submit(ListTransactions(("Ongoing",), (P,), 4_999, TX.__eq__)) == listed
    for other in (
        ListTransactions(("Empty",)),
        ListTransactions(producer_ids=(1,)),
        ListTransactions(running_ms=5_000),
        ListTransactions(matches="x".__eq__),
    ):
        assert coordinator.submit(other) == [ListReply(NONE, [])]
