"""The transactions of one log: which batches may be appended to them, what ends them, what read_committed may read.

`ProducerStates` has each producer's open transaction, snapshots included; here is their order, and what is in no
snapshot: verification guards, which only a leader has, and transactions whose markers are not replicated.

Apache Kafka's rules, but for two of its faults: a marker with the epoch of an open transaction does not close it where
its end advances the epoch, and a refused verification leaves no guard that would hold up valid batches.
"""

from __future__ import annotations

from collections import defaultdict, deque
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
    marker between the two destroys it: the answer was about the transaction that has ended.  Batches that waited with
    it may follow the one that spent it, in the transaction that this one opened and in no other.

    `advances_epoch`: the end of the producer's transactions advances its epoch, so that each one has sequences from 0
    on.
    """

    __slots__ = ("advances_epoch", "epoch", "lowest_sequence", "opened_at", "producer_id", "waiting_count")

    def __init__(self, producer_id: int, epoch: int, lowest_sequence: int, *, advances_epoch: bool) -> None:
        self.producer_id: Final = producer_id
        self.epoch: Final = epoch
        self.advances_epoch: Final = advances_epoch
        # Of the batches that wait for the answer.
        self.lowest_sequence = lowest_sequence
        # The batches that were given it and did not give up.
        self.waiting_count = 0
        # The first offset of the transaction whose first batch has spent it.
        self.opened_at = NO_OFFSET


class LogTransactions:
    """`states` are this log's producers.

    `open` has the first offset of each open transaction by its producer, `unstable` all that readers of committed
    records wait for: these, and those whose marker is not below the high watermark.  Both rise, and are the same
    objects for as long as the log is open.
    """

    __slots__ = ("_guards", "_states", "_unflushed", "_unreplicated", "known_from", "open", "unstable")

    def __init__(self, states: ProducerStates, loaded_end: int = 0) -> None:
        """These are the producers of the batches below `loaded_end`; those from there on are replayed."""
        self._states = states
        self.open: Final[dict[int, int]] = {}
        self.unstable: Final[dict[int, None]] = {}
        # Marker's offset and first offset of those that ended, in the order of their markers.
        self._unreplicated: deque[tuple[int, int]] = deque()
        self._unflushed: deque[tuple[int, int]] = deque()
        self._guards: defaultdict[int, dict[int, VerificationGuard]] = defaultdict(dict)
        # While the high watermark is below it the last stable offset is not known: there may be markers above the high
        # watermark of which a snapshot does not say which transactions they ended.
        self.known_from = loaded_end if any(entry.is_transactional for _, entry in states.entries()) else 0
        self._set_open()

    def _set_open(self) -> None:
        self.open.clear()
        self.open.update(_open_transactions(self._states))
        self.unstable.clear()
        first_offsets = [*self.open.values(), *(first_offset for _, first_offset in self._unreplicated)]
        self.unstable.update(dict.fromkeys(sorted(first_offsets)))

    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction starts."""
        return next(iter(self.open.values()), None)

    def is_open_since(self, since_ms: int) -> bool:
        """Whether a transaction is open without a batch after `since_ms`, by the broker's wall clock."""
        entries = map(self._states.entry, self.open)
        return any(entry is not None and entry.last_active_ms <= since_ms for entry in entries)

    def replicated(self, high_watermark: int) -> None:
        """Markers below the high watermark cannot be truncated: what they ended has its outcome for good."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][0] < high_watermark:
            del self.unstable[unreplicated.popleft()[1]]

    def flushed(self, flushed_end: int) -> None:
        """No crash takes back the markers below the flushed end."""
        unflushed = self._unflushed
        while unflushed and unflushed[0][0] < flushed_end:
            unflushed.popleft()

    def decided_end(self, removable_end: int, flushed_end: int) -> int:
        """Below it every transaction has an outcome that neither a truncation nor a crash takes back, exclusive."""
        self.flushed(flushed_end)
        return min([self.last_stable_offset(removable_end, 0), *(first for _, first in self._unflushed)])

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """What read_committed may read ends here, exclusive: below it every transaction has its outcome, for good.

        A marker that is not below the high watermark may be truncated, and then its transaction is open again.
        """
        self.replicated(high_watermark)
        stable_end = next(iter(self.unstable), high_watermark)
        # Deleted records hold no transaction open.
        return max(min(stable_end, high_watermark), log_start_offset)

    def guard(
        self, producer_id: int, epoch: int, first_sequence: int, *, advances_epoch: bool = False
    ) -> VerificationGuard | None:
        """What the append of a transactional batch needs, made before the coordinator is queried; None when its
        transaction is open here.  Raises `InvalidProducerEpoch`."""
        entry = self._states.entry(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch epoch {epoch}")
        if _is_open(entry, epoch):
            return None
        found = self._guards[producer_id].get(epoch)
        if found is None:
            found = VerificationGuard(producer_id, epoch, first_sequence, advances_epoch=advances_epoch)
            self._guards[producer_id][epoch] = found
        elif _is_above(found.lowest_sequence, first_sequence):
            found.lowest_sequence = first_sequence
        found.waiting_count += 1
        return found

    def has_guard(self, guard: VerificationGuard) -> bool:
        """Whether no marker, append or refusal has destroyed it."""
        return self._guards.get(guard.producer_id, {}).get(guard.epoch) is guard

    def verification_refused(self, guard: VerificationGuard) -> None:
        """The coordinator does not have the partition in the transaction, or did not answer."""
        self._spend(guard)

    def give_up(self, guard: VerificationGuard) -> None:
        """One of the batches that waited with it is not appended: its connection closed, or its append was refused.

        Only the last one spends it.  A client that has lost its connection sends the batch again while the request of
        the closed one still waits, and both have the same guard.
        """
        guard.waiting_count -= 1
        if not guard.waiting_count:
            self._spend(guard)

    def _spend(self, guard: VerificationGuard) -> None:
        of_producer = self._guards.get(guard.producer_id)
        if of_producer is not None and of_producer.get(guard.epoch) is guard:
            del of_producer[guard.epoch]
            if not of_producer:
                del self._guards[guard.producer_id]

    def check(
        self, header: BatchHeader, guard: VerificationGuard | None = None, *, has_sequence: bool = True
    ) -> int | None:
        """Whether a client's batch may be appended: None, or for a repeated batch the base offset that it has already.

        `has_sequence`: not the offsets that a coordinator writes for a producer, each with base sequence 0.
        Raises `WrongTransactionState`, `InvalidProducerEpoch`, `OutOfOrderSequence`.
        """
        producer_id, epoch, first_sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if not has_sequence:
            self._check_offsets(producer_id, epoch, guard)
            return None
        last_sequence = (first_sequence + header.last_offset_delta) & SEQUENCE_MASK
        entry = self._states.entry(producer_id)
        if entry is not None and entry.epoch == epoch:
            for batch in entry.batches:
                if batch[0] == first_sequence and batch[1] == last_sequence:
                    return batch[2]
        if header.is_transactional and not _is_open(entry, epoch, guard):
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

    def _check_offsets(self, producer_id: int, epoch: int, guard: VerificationGuard | None) -> None:
        entry = self._states.entry(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch epoch {epoch}")
        if _is_open(entry, epoch, guard):
            return
        self._check_guard(producer_id, epoch, 0, guard)
        if entry is not None and entry.current_txn_first_offset != NO_OFFSET:
            raise WrongTransactionState(
                f"producer {producer_id} has an open transaction of epoch {entry.epoch}, the batch epoch {epoch}"
            )

    def _check_guard(self, producer_id: int, epoch: int, first_sequence: int, guard: VerificationGuard | None) -> None:
        of_producer = self._guards.get(producer_id)
        waiting = None if of_producer is None else of_producer.get(epoch)
        if guard is None or waiting is not guard:
            raise WrongTransactionState(f"producer {producer_id} has no transaction of epoch {epoch} that is verified")
        if _is_above(first_sequence, guard.lowest_sequence):
            raise OutOfOrderSequence(
                f"producer {producer_id} sent sequence {first_sequence}, {guard.lowest_sequence} is not appended yet"
            )
        if guard.advances_epoch and first_sequence and self._states.entry(producer_id) is None:
            raise OutOfOrderSequence(
                f"producer {producer_id} is not known and begins epoch {epoch} with sequence {first_sequence}, "
                "it must begin with 0"
            )

    def batch_appended(self, header: BatchHeader) -> None:
        """After a batch is in the log and its producer updated, on leaders and followers."""
        if not header.is_transactional:
            return
        if self._states.open_transaction(header.producer_id, header.base_offset):
            self.open[header.producer_id] = header.base_offset
            self.unstable[header.base_offset] = None
            found = self._guards.get(header.producer_id, {}).get(header.producer_epoch)
            if found is not None:
                self._spend(found)
                found.opened_at = header.base_offset

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

    def marker_appended(self, header: BatchHeader, marker: EndMarker, now_ms: int) -> AbortedTransaction | None:
        """After a marker is in the log, on leaders and followers, where nothing is checked.

        Returns the transaction that it aborted, if that had data here.
        """
        producer_id, offset = header.producer_id, header.base_offset
        first_offset = self._states.end_transaction(
            producer_id, header.producer_epoch, marker.coordinator_epoch, now_ms
        )
        self._guards.pop(producer_id, None)
        if first_offset == NO_OFFSET:
            return None
        del self.open[producer_id]
        self._unreplicated.append((offset, first_offset))
        self._unflushed.append((offset, first_offset))
        if marker.commits:
            return None
        first_open_offset = self.first_open_offset()
        stable_end = offset + 1 if first_open_offset is None else first_open_offset
        return AbortedTransaction(first_offset, offset, producer_id, stable_end)

    def replay(self, header: BatchHeader, marker: EndMarker | None, now_ms: int) -> AbortedTransaction | None:
        """A batch of a producer that the leader checked, or that a restart finds; nothing is checked.

        `marker` is that of a control batch; without one it is of another kind, and says nothing of transactions.
        Returns the transaction that it aborted.
        """
        if header.is_control:
            return None if marker is None else self.marker_appended(header, marker, now_ms)
        last_sequence = (header.base_sequence + header.last_offset_delta) & SEQUENCE_MASK
        self._states.update(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            last_sequence,
            header.base_offset,
            header.last_offset_delta,
            now_ms,
        )
        self.batch_appended(header)
        return None

    def forget_guards(self) -> None:
        """This broker does not lead the partition any more: answers that it waits for are about another leader."""
        self._guards.clear()

    def truncated(self, states: ProducerStates, end_offset: int) -> None:
        """The log was cut to `end_offset`, with these producers: transactions whose markers were cut are open again."""
        self._states = states
        self._guards.clear()
        for ended in (self._unreplicated, self._unflushed):
            while ended and ended[-1][0] >= end_offset:
                ended.pop()
        self.known_from = min(self.known_from, end_offset)
        self._set_open()


def _open_transactions(states: ProducerStates) -> dict[int, int]:
    found = [
        (entry.current_txn_first_offset, producer_id)
        for producer_id, entry in states.entries()
        if entry.current_txn_first_offset != NO_OFFSET
    ]
    return {producer_id: first_offset for first_offset, producer_id in sorted(found)}


def _is_open(entry: ProducerEntry | None, epoch: int, guard: VerificationGuard | None = None) -> bool:
    """Whether the producer's transaction is open; with a guard, whether that is the one for which it was made.

    Where ends keep the epoch nothing else distinguishes a batch that waited for its answer from the next transaction's.
    """
    if entry is None or entry.epoch != epoch or entry.current_txn_first_offset == NO_OFFSET:
        return False
    return guard is None or guard.opened_at == entry.current_txn_first_offset


def _is_above(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) & SEQUENCE_MASK < _SEQUENCES_HALF
