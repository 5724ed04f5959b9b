"""The guards of a request's transactional batches, with the rules of the partition's log and without one."""

from __future__ import annotations

from typing import cast

from ottla.broker.partitions.partition import Partition
from ottla.broker.producing.transactional_produce import TransactionalProduce
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.records.end_marker import EndMarker
from ottla.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.storage.producers.log_transactions import LogTransactions, VerificationGuard
from ottla.storage.producers.producer_state import ProducerStates
from ottla.transactions.commands import AddPartitions, VerifyPartitions

P = 7
IMPLICIT, ADDED = 12, 11


class Guards:
    """What the transactions of a request see of a partition."""

    def __init__(self) -> None:
        self.topic_partition = TopicPartition("t", 0)
        self._transactions = LogTransactions(ProducerStates())

    def guard(
        self, producer_id: int, epoch: int, first_sequence: int, *, advances_epoch: bool
    ) -> VerificationGuard | None:
        return self._transactions.guard(producer_id, epoch, first_sequence, advances_epoch=advances_epoch)

    def has_guard(self, guard: VerificationGuard) -> bool:
        return self._transactions.has_guard(guard)

    def give_up_guard(self, guard: VerificationGuard) -> None:
        self._transactions.give_up(guard)

    def mark(self, epoch: int) -> None:
        """The marker of the producer's last transaction."""
        attributes = TRANSACTIONAL_BIT | CONTROL_BIT
        header = BatchHeader(0, 78, 0, 2, 0, attributes, 0, 0, 0, P, epoch, -1, 1)
        self._transactions.marker_appended(header, EndMarker(commits=True, coordinator_epoch=0), 0)


def batch(epoch: int) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, TRANSACTIONAL_BIT, 0, 0, 0, P, epoch, 0, 1)


def guarded(version: int) -> tuple[TransactionalProduce, Guards, Partition]:
    it, guards = TransactionalProduce("id", version), Guards()
    partition = cast("Partition", guards)
    it.guard(partition, batch(1))
    return it, guards, partition


def test_guard_that_no_marker_has_destroyed_needs_one_query() -> None:
    it, guards, partition = guarded(IMPLICIT)
    (query,) = it.queries()
    it.on_verified(query, ErrorCode.NONE, 0)
    assert it.renew(query) is None
    guard = it.guard_of(partition, batch(1))
    assert guard is not None
    assert guards.has_guard(guard)


def test_request_that_is_sent_again_keeps_the_guard_of_the_one_whose_connection_closed() -> None:
    closed, guards, partition = guarded(ADDED)
    again = TransactionalProduce("id", ADDED)
    again.guard(partition, batch(1))
    closed.close()
    closed.close()
    guard = again.guard_of(partition, batch(1))
    assert guard is not None
    assert guards.has_guard(guard)
    again.close()
    assert not guards.has_guard(guard)


def test_guard_that_the_last_transactions_marker_has_destroyed_is_made_and_queried_again() -> None:
    """The coordinator waits for that marker before it adds the partition, so it comes before the answer."""
    it, guards, partition = guarded(IMPLICIT)
    (query,) = it.queries()
    guards.mark(1)
    it.on_verified(query, ErrorCode.NONE, 0)
    again = it.renew(query)
    assert isinstance(again, AddPartitions)
    assert again == query
    it.on_verified(again, ErrorCode.NONE, 0)
    assert it.renew(again) is None
    guard = it.guard_of(partition, batch(1))
    assert guard is not None
    assert guards.has_guard(guard)


def test_guard_knows_whether_the_producers_epoch_has_one_transaction_alone() -> None:
    for version, advances_epoch in ((ADDED, False), (IMPLICIT, True)):
        it, guards, partition = guarded(version)
        (query,) = it.queries()
        guards.mark(1)
        it.renew(query)
        guard = it.guard_of(partition, batch(1))
        assert guard is not None
        assert guard.advances_epoch is advances_epoch


def test_batch_whose_epoch_other_transactions_have_is_not_queried_again() -> None:
    it, guards, partition = guarded(ADDED)
    (query,) = it.queries()
    assert isinstance(query, VerifyPartitions)
    guards.mark(1)
    it.on_verified(query, ErrorCode.NONE, 0)
    assert it.renew(query) is None
    guard = it.guard_of(partition, batch(1))
    assert guard is not None
    assert not guards.has_guard(guard), "the append is refused"


def test_batch_of_a_producer_that_was_replaced_meanwhile_is_refused() -> None:
    it, guards, partition = guarded(IMPLICIT)
    (query,) = it.queries()
    guards.mark(2)
    it.on_verified(query, ErrorCode.NONE, 0)
    assert it.renew(query) is None
    assert it.refusal_of(partition) is ErrorCode.INVALID_PRODUCER_EPOCH
