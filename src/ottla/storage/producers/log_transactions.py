"""The transactions of one log: which batches may be appended to them, what ends them, what read_committed may read.

`ProducerStates` has each producer's open transaction, snapshots included; here is their order, and what is in no
snapshot: verification guards, which only a leader has, and transactions whose markers are not replicated.

Apache Kafka's rules, but for two of its faults: a marker with the epoch of an open transaction does not close it where
its end advances the epoch, and a refused verification leaves no guard that would hold up valid batches.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

from ottla.records.end_marker import EndMarker
from ottla.records.header import BatchHeader
from ottla.storage.errors import (
    CoordinatorReplaced,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    WrongTransactionState,
)
from ottla.storage.producers.aborted_transactions import AbortedTransaction
from ottla.storage.producers.producer_state import NO_OFFSET, SEQUENCE_MASK, ProducerEntry, ProducerStates

# Sequences wrap around: one less than half of them ahead is above.
_SEQUENCES_HALF: Final = 1 << 30


class VerificationGuard:
    """Proof that the coordinator was queried after the last marker (KIP-890).

    The leader makes it before it queries whether the partition is in the transaction, and the append spends it.  A
    marker between the two destroys it: the answer was about the transaction that has ended.
    """

    __slots__ = ("epoch", "lowest_sequence", "producer_id")

    def __init__(self, producer_id: int, epoch: int, lowest_sequence: int) -> None:
        self.producer_id: Final = producer_id
        self.epoch: Final = epoch
        # Of the batches that wait for the answer.
        self.lowest_sequence = lowest_sequence


class LogTransactions:
    """`states` are this log's producers; `aborted` those of its index, in the order of their markers."""

    __slots__ = ("_aborted", "_guards", "_open", "_states", "_unreplicated")

    def __init__(self, states: ProducerStates, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._states = states
        self._aborted = list(aborted)
        # First offsets by producer id, rising.
        self._open = _open_transactions(states)
        # Marker's offset and first offset of those that ended, in the order of their markers.
        self._unreplicated: deque[tuple[int, int]] = deque()
        self._guards: defaultdict[int, dict[int, VerificationGuard]] = defaultdict(dict)

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """In the order of their markers."""
        return self._aborted

    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction starts."""
        return next(iter(self._open.values()), None)

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """What read_committed may read ends here, exclusive: below it every transaction has its outcome, for good.

        A marker that is not below the high watermark may be truncated, and then its transaction is open again.
        """
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][0] < high_watermark:
            unreplicated.popleft()
        stable_end = min((first_offset for _, first_offset in unreplicated), default=high_watermark)
        first_open_offset = self.first_open_offset()
        if first_open_offset is not None:
            stable_end = min(stable_end, first_open_offset)
        # Deleted records hold no transaction open.
        return max(min(stable_end, high_watermark), log_start_offset)

    # -- batches of clients --------------------------------------------------------------------------------------------

    def guard(self, producer_id: int, epoch: int, first_sequence: int) -> VerificationGuard | None:
        """What the append of a transactional batch needs, made before the coordinator is queried; None when its
        transaction is open here.  Raises `InvalidProducerEpoch`."""
        entry = self._states.entry(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch epoch {epoch}")
        if _is_open(entry, epoch):
            return None
        found = self._guards[producer_id].get(epoch)
        if found is None:
            found = self._guards[producer_id][epoch] = VerificationGuard(producer_id, epoch, first_sequence)
        elif _is_above(found.lowest_sequence, first_sequence):
            found.lowest_sequence = first_sequence
        return found

    def verification_refused(self, guard: VerificationGuard) -> None:
        """The coordinator does not have the partition in the transaction, or did not answer."""
        self._spend(guard)

    def _spend(self, guard: VerificationGuard) -> None:
        of_producer = self._guards.get(guard.producer_id)
        if of_producer is not None and of_producer.get(guard.epoch) is guard:
            del of_producer[guard.epoch]
            if not of_producer:
                del self._guards[guard.producer_id]

    def check(self, header: BatchHeader, guard: VerificationGuard | None = None) -> int | None:
        """Whether a client's batch may be appended: None, or for a repeated batch the base offset that it has already.

        Raises `WrongTransactionState`, `InvalidProducerEpoch`, `OutOfOrderSequence`.
        """
        producer_id, epoch, first_sequence = header.producer_id, header.producer_epoch, header.base_sequence
        last_sequence = (first_sequence + header.last_offset_delta) & SEQUENCE_MASK
        entry = self._states.entry(producer_id)
        if entry is not None and entry.epoch == epoch:
            for batch in entry.batches:
                if batch[0] == first_sequence and batch[1] == last_sequence:
                    return batch[2]
        if header.is_transactional and not _is_open(entry, epoch):
            self._check_guard(producer_id, epoch, first_sequence, guard)
        base_offset = self._states.check(producer_id, epoch, first_sequence, last_sequence)
        if entry is not None and entry.current_txn_first_offset != NO_OFFSET:
            if not header.is_transactional:
                raise WrongTransactionState(f"producer {producer_id} has an open transaction, the batch is in none")
            if epoch != entry.epoch:
                raise WrongTransactionState(
                    f"producer {producer_id} has an open transaction of epoch {entry.epoch}, the batch epoch {epoch}"
                )
        return base_offset

    def _check_guard(self, producer_id: int, epoch: int, first_sequence: int, guard: VerificationGuard | None) -> None:
        of_producer = self._guards.get(producer_id)
        waiting = None if of_producer is None else of_producer.get(epoch)
        if guard is None or waiting is not guard:
            raise WrongTransactionState(f"producer {producer_id} has no transaction of epoch {epoch} that is verified")
        if _is_above(first_sequence, guard.lowest_sequence):
            raise OutOfOrderSequence(
                f"producer {producer_id} sent sequence {first_sequence}, {guard.lowest_sequence} is not appended yet"
            )

    def batch_appended(self, header: BatchHeader) -> None:
        """After a batch is in the log and its producer updated, on leaders and followers."""
        if not header.is_transactional:
            return
        if self._states.open_transaction(header.producer_id, header.base_offset):
            self._open[header.producer_id] = header.base_offset
            found = self._guards.get(header.producer_id, {}).get(header.producer_epoch)
            if found is not None:
                self._spend(found)

    # -- markers -------------------------------------------------------------------------------------------------------

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, advances_epoch: bool) -> bool:
        """Whether a coordinator's marker must be appended; not if it repeats one that is in the log.

        Raises `CoordinatorReplaced`, and `InvalidProducerEpoch` for the marker of an earlier transaction.
        """
        entry = self._states.entry(producer_id)
        if entry is None:
            return True
        if coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorReplaced(
                f"producer {producer_id} has a coordinator of epoch {entry.coordinator_epoch}, not {coordinator_epoch}"
            )
        is_open = entry.current_txn_first_offset != NO_OFFSET
        is_repeated = advances_epoch and epoch == entry.epoch
        if epoch < entry.epoch or (is_repeated and is_open):
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the marker epoch {epoch}")
        return not is_repeated

    def marker_appended(self, header: BatchHeader, marker: EndMarker, now_ms: int) -> None:
        """After a marker is in the log, on leaders and followers, where nothing is checked."""
        producer_id, offset = header.producer_id, header.base_offset
        first_offset = self._states.end_transaction(
            producer_id, header.producer_epoch, marker.coordinator_epoch, now_ms
        )
        self._guards.pop(producer_id, None)
        if first_offset == NO_OFFSET:
            return
        del self._open[producer_id]
        self._unreplicated.append((offset, first_offset))
        if not marker.commits:
            first_open_offset = self.first_open_offset()
            stable_end = offset + 1 if first_open_offset is None else first_open_offset
            self._aborted.append(AbortedTransaction(first_offset, offset, producer_id, stable_end))

    # -- roles ---------------------------------------------------------------------------------------------------------

    def forget_guards(self) -> None:
        """This broker does not lead the partition any more: answers that it waits for are about another leader."""
        self._guards.clear()

    def truncated(self, states: ProducerStates, end_offset: int) -> None:
        """The log was cut to `end_offset`, with these producers: transactions whose markers were cut are open again."""
        self._states = states
        self._open = _open_transactions(states)
        self._guards.clear()
        while self._unreplicated and self._unreplicated[-1][0] >= end_offset:
            self._unreplicated.pop()
        while self._aborted and self._aborted[-1].last_offset >= end_offset:
            self._aborted.pop()


def _open_transactions(states: ProducerStates) -> dict[int, int]:
    found = [
        (entry.current_txn_first_offset, producer_id)
        for producer_id, entry in states.entries()
        if entry.current_txn_first_offset != NO_OFFSET
    ]
    return {producer_id: first_offset for first_offset, producer_id in sorted(found)}


def _is_open(entry: ProducerEntry | None, epoch: int) -> bool:
    return entry is not None and entry.epoch == epoch and entry.current_txn_first_offset != NO_OFFSET


def _is_above(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) & SEQUENCE_MASK < _SEQUENCES_HALF
