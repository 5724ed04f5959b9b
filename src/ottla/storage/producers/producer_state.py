"""What one log remembers of its idempotent producers: enough to drop a repeated batch and to refuse a gap (KIP-98).

For each producer id: its epoch, and of that epoch the last five batches, because a producer has at most five requests
in flight.  A batch is stored at most once as long as its producer is remembered: through retries, restarts (snapshots,
and the log itself after them) and leader changes.

Sequences are int32 without a sign: 0 follows 2147483647.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.records.end_marker import EndMarker
from ottla.records.header import BatchHeader
from ottla.storage.errors import BeginningMissing, InvalidProducerEpoch, OutOfOrderSequence

# The most requests that a producer with idempotence keeps in flight on a connection.
WINDOW_BATCHES: Final = 5
SEQUENCE_MASK: Final = 0x7FFFFFFF
EXPIRATION_MS: Final = 24 * 3600 * 1000
# About 500 bytes each.  Beyond it the longest silent ones are forgotten early, a tenth at a time.
PRODUCERS_MAX: Final = 50_000
NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1


class ProducerBatch(NamedTuple):
    """One remembered batch; first and last are inclusive."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset_delta: int


class ProducerEntry:
    """One producer.  `batches` are plain tuples of `ProducerBatch`'s fields, oldest first: this is on the hot path."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_active_ms",
        "next_sequence",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[tuple[int, int, int, int]] = []
        # Where no batch of this epoch is known the next sequence is 0: a new epoch starts there.
        self.next_sequence = 0
        self.last_active_ms = -1
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.current_txn_first_offset = NO_OFFSET

    @property
    def is_transactional(self) -> bool:
        """Whether it had a transaction, as far as that is remembered; one without a batch is known by a marker only."""
        return self.coordinator_epoch >= 0 or self.current_txn_first_offset >= 0 or not self.batches

    def window(self) -> list[ProducerBatch]:
        """The remembered batches of the current epoch, oldest first."""
        return [ProducerBatch._make(batch) for batch in self.batches]

    def start_epoch(self, epoch: int) -> None:
        """Forget the former epoch's batches when it is another one."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []
            self.next_sequence = 0

    def add(self, batch: tuple[int, int, int, int]) -> None:
        batches = self.batches
        if len(batches) == WINDOW_BATCHES:
            del batches[0]
        batches.append(batch)
        self.next_sequence = (batch[1] + 1) & SEQUENCE_MASK

    def set_window(self, epoch: int, batches: list[tuple[int, int, int, int]]) -> None:
        """Remember these batches instead, of which there is at least one."""
        self.epoch = epoch
        self.batches = batches
        self.next_sequence = (batches[-1][1] + 1) & SEQUENCE_MASK


class ProducerStates:
    """All producers of one log.  `check` before an append, `update` after it."""

    __slots__ = ("_entries", "_expects_beginnings", "expiration_ms")

    def __init__(self, expiration_ms: int = EXPIRATION_MS) -> None:
        self.expiration_ms = expiration_ms
        self._expects_beginnings = False
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> Iterator[tuple[int, ProducerEntry]]:
        """(producer id, entry) of each producer."""
        return iter(self._entries.items())

    def expect_beginnings(self, expected: bool) -> None:
        """Whether a producer that is not known must start with sequence 0."""
        self._expects_beginnings = expected

    def check(self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int) -> int | None:
        """Whether a client's batch may be appended: None, or for a repeated batch the base offset that it has already.

        Raises `OutOfOrderSequence` and `InvalidProducerEpoch`.  A producer that is not known may start anywhere: it
        may have been forgotten for its age, or its records deleted.  Unless starts are expected: then it raises
        `BeginningMissing`.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            if first_sequence and self._expects_beginnings:
                raise BeginningMissing(
                    f"producer {producer_id} is not known and sent sequences {first_sequence} to {last_sequence}, "
                    "it must begin with 0"
                )
            return None
        if epoch == entry.epoch:
            if first_sequence == entry.next_sequence:
                return None
            for batch in entry.batches:
                if batch[0] == first_sequence and batch[1] == last_sequence:
                    return batch[2]
            raise OutOfOrderSequence(
                f"producer {producer_id} sent sequences {first_sequence} to {last_sequence}, "
                f"{entry.next_sequence} is the next one"
            )
        if epoch < entry.epoch:
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch epoch {epoch}")
        if first_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {producer_id} begins epoch {epoch} with sequence {first_sequence}, it must begin with 0"
            )
        return None

    def update(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset_delta: int,
        now_ms: int,
    ) -> None:
        """Remember an appended batch.

        `now_ms` is the broker's time and not the batch's, which its client chooses: a producer that loads last
        year's records must not be forgotten at once.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._add(producer_id, ProducerEntry(epoch))
        elif epoch != entry.epoch:
            entry.start_epoch(epoch)
        batches = entry.batches
        if len(batches) == WINDOW_BATCHES:
            del batches[0]
        batches.append((first_sequence, last_sequence, base_offset, last_offset_delta))
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        entry.last_active_ms = now_ms

    def open_transaction(self, producer_id: int, first_offset: int) -> bool:
        """A transactional batch was remembered that starts at `first_offset`; whether it opens a transaction."""
        entry = self._entries[producer_id]
        if entry.current_txn_first_offset != NO_OFFSET:
            return False
        entry.current_txn_first_offset = first_offset
        return True

    def end_transaction(self, producer_id: int, epoch: int, coordinator_epoch: int, now_ms: int) -> int:
        """A marker was appended: it keeps the window, or starts a new epoch.  Returns the first offset of the
        transaction that it ends, `NO_OFFSET` when none was open."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._add(producer_id, ProducerEntry(epoch))
        entry.start_epoch(epoch)
        entry.last_active_ms = now_ms
        entry.coordinator_epoch = max(entry.coordinator_epoch, coordinator_epoch)
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, NO_OFFSET
        return first_offset

    def replay(self, header: BatchHeader, marker: EndMarker | None, now_ms: int) -> None:
        """Remember a batch that is in the log already, in offset order; nothing is checked.

        `now_ms` counts as its producer's last activity: when it truly was is not written in the batch.
        `marker` is that of a control batch; a control batch of another kind changes nothing.
        """
        if header.producer_id < 0:
            return
        if header.is_control:
            if marker is not None:
                self.end_transaction(header.producer_id, header.producer_epoch, marker.coordinator_epoch, now_ms)
            return
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._add(header.producer_id, ProducerEntry(header.producer_epoch))
        entry.start_epoch(header.producer_epoch)
        entry.last_active_ms = now_ms
        last_sequence = (header.base_sequence + header.last_offset_delta) & SEQUENCE_MASK
        entry.add((header.base_sequence, last_sequence, header.base_offset, header.last_offset_delta))
        if header.is_transactional and entry.current_txn_first_offset == NO_OFFSET:
            entry.current_txn_first_offset = header.base_offset

    def truncate_to(self, end_offset: int) -> list[int] | None:
        """Forget the batches from `end_offset` on: the log ends there.  None: with transactions only a replay can.

        Returns the producers of which batches that were forgotten before must be remembered again; they are as they
        were until `set_window`.  Sequence 0 is not required any more.
        """
        self._expects_beginnings = False
        affected = [
            (producer_id, entry)
            for producer_id, entry in self._entries.items()
            if entry.is_transactional or entry.batches[-1][2] >= end_offset
        ]
        if any(entry.is_transactional for _, entry in affected):
            return None
        incomplete = []
        for producer_id, entry in affected:
            batches = entry.batches
            # Fewer than a window, from the epoch's first sequence on: no batch of this epoch was forgotten.
            if len(batches) == WINDOW_BATCHES or batches[0][0] != 0:
                incomplete.append(producer_id)
                continue
            kept = [batch for batch in batches if batch[2] < end_offset]
            if kept:
                entry.set_window(entry.epoch, kept)
            elif entry.epoch == 0:
                del self._entries[producer_id]
            else:
                incomplete.append(producer_id)
        return incomplete

    def set_window(self, producer_id: int, epoch: int, batches: list[tuple[int, int, int, int]]) -> None:
        """Replace the remembered batches of a producer; without batches it is forgotten."""
        if batches:
            self._entries[producer_id].set_window(epoch, batches)
        else:
            del self._entries[producer_id]

    def restore(self, producer_id: int, entry: ProducerEntry) -> None:
        """Add an entry from a snapshot."""
        self._add(producer_id, entry)

    def _add(self, producer_id: int, entry: ProducerEntry) -> ProducerEntry:
        if len(self._entries) >= PRODUCERS_MAX:
            self._forget_longest_silent(PRODUCERS_MAX // 10)
        self._entries[producer_id] = entry
        return entry

    def _forget_longest_silent(self, count: int) -> None:
        # One with an open transaction is kept: its end must still find where it started.
        closed = (item for item in self._entries.items() if item[1].current_txn_first_offset == NO_OFFSET)
        silent = heapq.nsmallest(count, closed, key=lambda item: item[1].last_active_ms)
        for producer_id, _ in silent:
            del self._entries[producer_id]

    def expire(self, now_ms: int) -> int:
        """Forget the producers that were silent for `expiration_ms`; returns how many.

        One with an open transaction is kept: its end must still find where it started.
        """
        limit_ms = now_ms - self.expiration_ms
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.last_active_ms <= limit_ms and entry.current_txn_first_offset == NO_OFFSET
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)
