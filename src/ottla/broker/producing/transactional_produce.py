"""What the batches of a transaction need beside their checks: that the coordinator has their partitions (KIP-890).

The first batch of a transaction in a partition is appended with a guard, which the partition makes before the
coordinator is queried; later ones need nothing.  From Produce v12 on the query adds what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.broker.partitions.partition import Partition
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.records.header import HEADER, TRANSACTIONAL_BIT
from ottla.storage.producers.log_transactions import VerificationGuard
from ottla.transactions.commands import AddPartitions, VerifyPartitions

_ADDS_FROM_VERSION: Final = 12
_ABORTABLE_FROM_VERSION: Final = 11
# Older clients do not retry a produce that fails with these: they get a code that they retry.
_COORDINATOR_AWAY: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class _Guarded(NamedTuple):
    partition: Partition
    guard: VerificationGuard


class TransactionalProduce:
    """The transactional batches of one request.  `refusal`: of all of them, since the client may not use the id."""

    __slots__ = ("_adds", "_guards", "_refusals", "_transactional_id", "_version", "refusal")

    def __init__(self, transactional_id: str, version: int, refusal: ErrorCode = ErrorCode.NONE) -> None:
        self._transactional_id = transactional_id
        self._version = version
        # Such a producer ends its transactions with the next epoch, too.
        self._adds = version >= _ADDS_FROM_VERSION
        self.refusal: Final = refusal
        # By producer id and epoch, of which a request has one as a rule.
        self._guards: dict[tuple[int, int], list[_Guarded]] = {}
        self._refusals: dict[Partition, ErrorCode] = {}

    def guard(self, partition: Partition, header: tuple[int, ...]) -> None:
        """Make the guard of one batch, if it is the first of its transaction here; `header` is its head."""
        if not header[5] & TRANSACTIONAL_BIT or self.refusal:
            return
        producer_id, epoch, first_sequence = header[9:12]
        try:
            guard = partition.guard(producer_id, epoch, first_sequence, advances_epoch=self._adds)
        except OttlaError as error:
            self._refusals[partition] = error.error_code
            return
        if guard is not None:
            self._guards.setdefault((producer_id, epoch), []).append(_Guarded(partition, guard))

    def queries(self) -> Iterator[AddPartitions | VerifyPartitions]:
        """What the coordinator must be queried about."""
        command = AddPartitions if self._adds else VerifyPartitions
        for (producer_id, epoch), guarded in self._guards.items():
            partitions = frozenset(each.partition.topic_partition for each in guarded)
            yield command(self._transactional_id, producer_id, epoch, partitions)

    def on_verified(self, query: AddPartitions | VerifyPartitions, error: ErrorCode, now_ms: int) -> None:
        """What the coordinator has answered to one of `queries`."""
        if error is ErrorCode.NONE:
            return
        refusal = self._answer_for(error)
        for partition, guard in self._guards.pop((query.producer_id, query.producer_epoch)):
            partition.verification_refused(guard)
            if refusal.is_retriable:
                # The batches after this one are refused, too, and come again.
                partition.on_refused(now_ms)
            self._refusals[partition] = refusal

    def renew(self, query: AddPartitions | VerifyPartitions) -> AddPartitions | None:
        """The query again, for the batches whose guard a marker has destroyed before the answer; None: there are none.

        As a rule it was the marker of the last transaction, for which the coordinator has waited before it added the
        partitions.  Where leaders add them a batch has the epoch of its transaction alone, so that another answer is
        about the same one; with an epoch that several transactions have the batch could be of the one that has ended.
        """
        if isinstance(query, VerifyPartitions):
            return None
        key = (query.producer_id, query.producer_epoch)
        guarded = self._guards.pop(key, [])
        renewed: list[Partition] = []
        for partition, guard in guarded:
            if partition.has_guard(guard):
                self._guards.setdefault(key, []).append(_Guarded(partition, guard))
            elif self._guard_again(partition, guard):
                renewed.append(partition)
        if not renewed:
            return None
        return query._replace(partitions=frozenset(each.topic_partition for each in renewed))

    def _guard_again(self, partition: Partition, lost: VerificationGuard) -> bool:
        try:
            guard = partition.guard(lost.producer_id, lost.epoch, lost.lowest_sequence, advances_epoch=self._adds)
        except OttlaError as error:
            self._refusals[partition] = error.error_code
            return False
        if guard is not None:
            self._guards.setdefault((lost.producer_id, lost.epoch), []).append(_Guarded(partition, guard))
        return guard is not None

    def _answer_for(self, error: ErrorCode) -> ErrorCode:
        """What the producer gets for the coordinator's error."""
        if error is ErrorCode.INVALID_TXN_STATE and self._version >= _ABORTABLE_FROM_VERSION:
            return ErrorCode.TRANSACTION_ABORTABLE
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error in _COORDINATOR_AWAY or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return error

    def refusal_of(self, partition: Partition) -> ErrorCode:
        """Why its batch may not be appended; NONE: it may."""
        return self.refusal or self._refusals.get(partition, ErrorCode.NONE)

    def guard_of(self, partition: Partition, header: tuple[int, ...]) -> VerificationGuard | None:
        """What the append of a batch needs."""
        for found, guard in self._guards.get((header[9], header[10]), ()):
            if found is partition:
                return guard
        return None

    def close(self) -> None:
        """All batches are appended or refused: a guard that is left would hold up the transaction's next ones."""
        guards, self._guards = self._guards, {}
        for guarded in guards.values():
            for partition, guard in guarded:
                partition.give_up_guard(guard)


def header_of(view: memoryview, start: int, stop: int) -> tuple[int, ...] | None:
    """The head of a batch, as far as it has one."""
    return HEADER.unpack_from(view, start) if stop - start >= HEADER.size else None
