"""The rules of a partition for transactions: guards, markers, the last stable offset, aborted transactions."""

from __future__ import annotations

import pytest

from ottla.records.end_marker import EndMarker
from ottla.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.storage.errors import (
    CoordinatorReplaced,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    WrongTransactionState,
)
from ottla.storage.producers import producer_state
from ottla.storage.producers.aborted_transactions import AbortedIndex, AbortedTransaction, aborted_between
from ottla.storage.producers.log_transactions import LogTransactions
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.producer_state import ProducerStates

P = 7
NOW_MS = 1_000_000


def data(
    base_offset: int, first: int, epoch: int = 0, *, producer_id: int = P, is_transactional: bool = True
) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if is_transactional else 0
    return BatchHeader(base_offset, 100, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, first, 1)


class Log:
    """A log's end, and what happens to its producers."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.transactions = LogTransactions(self.states)
        self.aborted = AbortedIndex()
        self.end = 0

    def produce(self, first: int, epoch: int = 0, producer_id: int = P) -> int | None:
        """A transactional batch that the coordinator allows."""
        guard = self.transactions.guard(producer_id, epoch, first)
        header = data(self.end, first, epoch, producer_id=producer_id)
        found = self.transactions.check(header, guard)
        if found is None:
            self.append(header)
        return found

    def append(self, header: BatchHeader) -> None:
        first = header.base_sequence
        self.states.update(header.producer_id, header.producer_epoch, first, first, header.base_offset, 0, NOW_MS)
        self.transactions.batch_appended(header)
        self.end += 1

    def mark(
        self, epoch: int, *, commits: bool, coordinator_epoch: int = 3, advances: bool = True, producer_id: int = P
    ) -> bool:
        """Whether a marker was appended."""
        if not self.transactions.check_marker(producer_id, epoch, coordinator_epoch, advances_epoch=advances):
            return False
        attributes = TRANSACTIONAL_BIT | CONTROL_BIT
        header = BatchHeader(self.end, 78, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, -1, 1)
        aborted = self.transactions.marker_appended(header, EndMarker(commits, coordinator_epoch), NOW_MS)
        if aborted is not None:
            self.aborted.add(aborted)
        self.end += 1
        return True

    def stable_offset(self, high_watermark: int | None = None, log_start_offset: int = 0) -> int:
        return self.transactions.last_stable_offset(
            self.end if high_watermark is None else high_watermark, log_start_offset
        )


@pytest.fixture
def log() -> Log:
    return Log()


def test_first_batch_of_a_transaction_needs_a_guard_and_the_next_ones_none(log: Log) -> None:
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(0, 0))
    assert log.produce(0) is None
    assert log.transactions.guard(P, 0, 1) is None
    assert log.produce(1) is None


def test_repeated_batch_needs_no_guard(log: Log) -> None:
    log.produce(0)
    log.mark(0, commits=True, advances=False)
    assert log.transactions.check(data(9, 0)) == 0


@pytest.mark.parametrize("commits", [True, False])
def test_marker_destroys_the_guards_of_its_producer(log: Log, commits: bool) -> None:
    guard = log.transactions.guard(P, 0, 0)
    other = log.transactions.guard(P + 1, 0, 0)
    log.mark(0, commits=commits, advances=False)
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(log.end, 0), guard)
    assert log.transactions.check(data(log.end, 0, producer_id=P + 1), other) is None


def test_guard_of_a_former_leadership_is_refused(log: Log) -> None:
    guard = log.transactions.guard(P, 0, 0)
    log.transactions.forget_guards()
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(0, 0), guard)


def test_batches_that_wait_for_verification_keep_their_order(log: Log) -> None:
    guard = log.transactions.guard(P, 0, 5)
    assert log.transactions.guard(P, 0, 4) is guard
    with pytest.raises(OutOfOrderSequence):
        log.transactions.check(data(0, 5), guard)
    assert log.transactions.check(data(0, 4), guard) is None


@pytest.mark.parametrize("has_sequence", [True, False])
def test_batch_that_waited_follows_the_one_that_opened_the_transaction_but_not_into_the_next_one(
    log: Log, has_sequence: bool
) -> None:
    guard = log.transactions.guard(P, 0, 0)
    assert log.transactions.guard(P, 0, 1) is guard
    log.append(data(log.end, 0))
    assert log.transactions.check(data(log.end, 1), guard, has_sequence=has_sequence) is None
    log.mark(0, commits=True, advances=False)
    log.produce(1)
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(log.end, 2), guard, has_sequence=has_sequence)
    assert log.transactions.check(data(log.end, 2), has_sequence=has_sequence) is None


def test_refused_verification_does_not_hold_up_the_open_transaction(log: Log) -> None:
    log.produce(0)
    refused = log.transactions.guard(P, 3, 0)
    assert refused is not None
    log.transactions.verification_refused(refused)
    assert log.produce(1) is None
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(9, 0, 3), refused)


def test_batch_that_is_sent_again_keeps_the_guard_when_the_request_of_the_closed_connection_gives_up(log: Log) -> None:
    closed = log.transactions.guard(P, 0, 0)
    again = log.transactions.guard(P, 0, 0)
    assert closed is not None
    assert again is closed
    log.transactions.give_up(closed)
    assert log.transactions.check(data(0, 0), again) is None


def test_guard_is_spent_when_the_last_batch_that_waits_with_it_gives_up(log: Log) -> None:
    for _ in range(2):
        guard = log.transactions.guard(P, 0, 0)
    assert guard is not None
    log.transactions.give_up(guard)
    log.transactions.give_up(guard)
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(0, 0), guard)
    later = log.transactions.guard(P, 0, 1)
    assert log.transactions.check(data(0, 1), later) is None, "what gave up holds up no later batch"


def test_refused_verification_destroys_the_guard_of_all_batches_that_wait_with_it(log: Log) -> None:
    refused = log.transactions.guard(P, 0, 0)
    waiting = log.transactions.guard(P, 0, 1)
    assert refused is not None
    log.transactions.verification_refused(refused)
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(0, 0), waiting)


def test_batch_that_gives_up_a_spent_guard_leaves_that_of_the_next_transaction(log: Log) -> None:
    late = log.transactions.guard(P, 0, 0)
    assert late is not None
    log.produce(0)
    log.mark(0, commits=True, advances=False)
    following = log.transactions.guard(P, 0, 1)
    log.transactions.give_up(late)
    log.transactions.give_up(late)
    assert log.transactions.check(data(log.end, 1), following) is None


def test_verification_that_waits_for_a_higher_epoch_does_not_hold_up_the_open_transaction(log: Log) -> None:
    log.produce(0)
    log.transactions.guard(P, 3, 0)
    assert log.produce(1) is None


def test_unknown_producer_whose_epoch_has_one_transaction_starts_it_with_sequence_0(log: Log) -> None:
    later = log.transactions.guard(P, 2, 5, advances_epoch=True)
    with pytest.raises(OutOfOrderSequence):
        log.transactions.check(data(0, 5, 2), later)
    first = log.transactions.guard(P, 2, 0, advances_epoch=True)
    assert log.transactions.check(data(0, 0, 2), first) is None


def test_producer_that_a_transaction_of_its_epoch_left_unknown_may_start_with_any_sequence(log: Log) -> None:
    """Where the epoch stays the transactions before had the first sequences, and are forgotten for their age."""
    guard = log.transactions.guard(P, 2, 5)
    assert log.transactions.check(data(0, 5, 2), guard) is None


def test_known_producer_continues_its_sequences_when_its_ends_start_to_advance_the_epoch(log: Log) -> None:
    """A producer may change to the newer protocol between two transactions of one epoch."""
    log.produce(0)
    log.mark(0, commits=True, advances=False)
    guard = log.transactions.guard(P, 0, 1, advances_epoch=True)
    assert log.transactions.check(data(log.end, 1), guard) is None


def test_batch_of_an_older_epoch_is_refused(log: Log) -> None:
    log.produce(0, 4)
    with pytest.raises(InvalidProducerEpoch):
        log.transactions.guard(P, 3, 0)
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(9, 0, 3))


def test_verified_batch_of_a_higher_epoch_waits_for_the_marker(log: Log) -> None:
    log.produce(0)
    guard = log.transactions.guard(P, 1, 0)
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(1, 0, 1), guard)


def test_plain_batch_in_an_open_transaction_is_refused(log: Log) -> None:
    log.produce(0)
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(1, 1, is_transactional=False))
    log.mark(0, commits=True, advances=False)
    assert log.transactions.check(data(2, 1, is_transactional=False)) is None


def test_marker_that_advances_the_epoch_starts_the_sequences_again(log: Log) -> None:
    log.produce(0)
    log.produce(1)
    assert log.mark(1, commits=True)
    with pytest.raises(InvalidProducerEpoch):
        log.transactions.guard(P, 0, 2)
    assert log.produce(0, 1) is None


def test_marker_that_keeps_the_epoch_keeps_the_sequences(log: Log) -> None:
    log.produce(0)
    assert log.mark(0, commits=True, advances=False)
    assert log.produce(1) is None


def test_repeated_marker_is_not_written(log: Log) -> None:
    log.produce(0)
    assert log.mark(1, commits=True)
    assert not log.mark(1, commits=True)
    assert not log.mark(1, commits=True, coordinator_epoch=4)


def test_repeated_marker_does_not_close_the_next_transaction(log: Log) -> None:
    log.produce(0)
    log.mark(1, commits=True)
    log.produce(0, 1)
    with pytest.raises(InvalidProducerEpoch):
        log.mark(1, commits=True)


def test_marker_of_a_replaced_coordinator_is_refused(log: Log) -> None:
    log.produce(0)
    log.mark(0, commits=True, advances=False, coordinator_epoch=4)
    log.produce(1)
    with pytest.raises(CoordinatorReplaced):
        log.mark(0, commits=True, advances=False, coordinator_epoch=3)


def test_marker_of_a_lower_epoch_is_refused(log: Log) -> None:
    log.produce(0, 4)
    with pytest.raises(InvalidProducerEpoch):
        log.mark(3, commits=False)


def test_marker_of_an_unknown_producer_is_written_and_fences_it(log: Log) -> None:
    assert log.mark(2, commits=False)
    with pytest.raises(InvalidProducerEpoch):
        log.transactions.guard(P, 1, 0)


def test_stable_offset_is_the_first_offset_of_the_oldest_open_transaction(log: Log) -> None:
    log.produce(0)
    log.produce(0, producer_id=P + 1)
    assert log.stable_offset() == 0
    log.mark(1, commits=True)
    assert log.stable_offset() == 1
    log.mark(1, commits=False, producer_id=P + 1)
    assert log.stable_offset() == log.end


def test_stable_offset_waits_until_the_marker_is_replicated(log: Log) -> None:
    log.produce(0)
    log.mark(1, commits=True)
    assert log.stable_offset(high_watermark=1) == 0
    assert log.stable_offset(high_watermark=2) == 2


def test_deleted_records_hold_nothing_open(log: Log) -> None:
    for number in range(3):
        log.produce(number)
    assert log.stable_offset(log_start_offset=2) == 2
    assert log.mark(1, commits=False)
    assert log.stable_offset(log_start_offset=2) == 4


def test_aborts_with_data_are_in_the_index(log: Log) -> None:
    log.produce(0)
    log.produce(0, producer_id=P + 1)
    log.mark(1, commits=False)
    log.mark(1, commits=True, producer_id=P + 1)
    log.mark(2, commits=False)
    assert list(log.aborted) == [AbortedTransaction(0, 2, P, 1)]


def test_aborted_transactions_of_a_range_are_found_and_the_search_ends() -> None:
    ended = [AbortedTransaction(5, 9, 1, 2), AbortedTransaction(2, 12, 2, 13), AbortedTransaction(14, 20, 1, 21)]
    assert aborted_between(ended, 0, 5) == [ended[1]]
    assert aborted_between(ended, 6, 13) == [ended[1], ended[0]]
    assert aborted_between(ended, 13, 14) == []
    assert aborted_between(ended, 10, 30) == [ended[1], ended[2]]

    def of_first_segments() -> object:
        yield from ended[:2]
        raise AssertionError("later segments must not be read")

    assert aborted_between(of_first_segments(), 0, 13) == [ended[1], ended[0]]  # type: ignore[arg-type]


def test_snapshot_keeps_open_transactions_and_coordinators(log: Log) -> None:
    log.produce(0)
    log.mark(1, commits=True, coordinator_epoch=9)
    log.produce(0, 1)
    log.produce(0, producer_id=P + 1)
    states = decode_snapshot(encode_snapshot(log.states))
    restored = LogTransactions(states)
    assert restored.first_open_offset() == log.transactions.first_open_offset() == 2
    with pytest.raises(CoordinatorReplaced):
        restored.check_marker(P, 2, 8, advances_epoch=True)


def test_truncated_marker_opens_its_transaction_again(log: Log) -> None:
    log.produce(0)
    states = decode_snapshot(encode_snapshot(log.states))
    log.mark(1, commits=False)
    log.transactions.truncated(states, 1)
    assert log.transactions.open == {P: 0}
    assert log.stable_offset(high_watermark=1) == 0


def test_cut_keeps_what_waits_for_the_replication_of_a_marker_below_it(log: Log) -> None:
    log.produce(0)
    log.mark(1, commits=True)
    states = decode_snapshot(encode_snapshot(log.states))
    log.produce(0, 1)
    log.transactions.truncated(states, 2)
    assert log.stable_offset(high_watermark=1) == 0
    assert log.stable_offset(high_watermark=2) == 2


def test_replicated_markers_leave_nothing_to_wait_for(log: Log) -> None:
    log.produce(0)
    log.produce(0, producer_id=P + 1)
    log.mark(1, commits=True)
    log.transactions.replicated(log.end)
    assert list(log.transactions.unstable) == [1]
    log.mark(1, commits=True, producer_id=P + 1)
    log.transactions.replicated(log.end)
    assert not log.transactions.unstable


def test_offset_is_not_known_to_be_stable_before_all_recovered_markers_are_replicated(log: Log) -> None:
    log.produce(0)
    assert LogTransactions(log.states, 5).known_from == 5
    assert LogTransactions(ProducerStates(), 5).known_from == 0


def test_batches_without_sequence_open_a_transaction_and_repeat_sequence_0(log: Log) -> None:
    for _ in range(2):
        guard = log.transactions.guard(P, 0, 0)
        header = data(log.end, 0)
        assert log.transactions.check(header, guard, has_sequence=False) is None
        log.append(header)
    assert log.transactions.open == {P: 0}


def test_batches_without_sequence_need_a_guard_and_the_epoch(log: Log) -> None:
    with pytest.raises(WrongTransactionState):
        log.transactions.check(data(0, 0), has_sequence=False)
    log.mark(3, commits=True)
    with pytest.raises(InvalidProducerEpoch):
        log.transactions.check(data(1, 0, 2), has_sequence=False)


def test_replayed_batches_open_and_end_transactions_as_appended_ones_do(log: Log) -> None:
    follower = LogTransactions(ProducerStates())
    found = []
    for header, marker in (
        (data(0, 0), None),
        (data(1, 0, producer_id=P + 1), None),
        (BatchHeader(2, 78, 0, 2, 0, 0x30, 0, 0, 0, P, 1, -1, 1), EndMarker(False, 3)),
        (BatchHeader(3, 78, 0, 2, 0, 0x30, 0, 0, 0, P + 1, 1, -1, 1), EndMarker(True, 3)),
        (data(4, 0, 1), None),
    ):
        aborted = follower.replay(header, marker, NOW_MS)
        found += [] if aborted is None else [aborted]
    assert found == [AbortedTransaction(0, 2, P, 1)]
    assert follower.open == {P: 4}
    assert follower.last_stable_offset(3, 0) == 1


def test_control_batch_that_is_no_marker_ends_nothing(log: Log) -> None:
    log.produce(0)
    log.transactions.replay(BatchHeader(1, 78, 0, 2, 0, 0x30, 0, 0, 0, P, 0, -1, 1), None, NOW_MS)
    assert log.transactions.open == {P: 0}


def test_full_table_forgets_no_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 20)
    log = Log()
    log.produce(0)
    for producer_id in range(100, 140):
        log.states.update(producer_id, 0, 0, 0, 1, 0, NOW_MS + producer_id)
    assert len(log.states) <= 20
    assert log.states.entry(P) is not None
    assert log.transactions.first_open_offset() == 0
