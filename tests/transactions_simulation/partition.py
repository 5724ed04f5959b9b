"""A data partition: a log whose leaders change, the product's rules for transactions, and read_committed reads.

A leader appends at once; the high watermark follows.  The next leader has what is below the high watermark and a part
of the rest, rebuilds its producers from a snapshot and the log, and appends in the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_PRODUCER_ID, TopicPartition
from ottla.records.end_marker import EndMarker
from ottla.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.storage.errors import AppendRefused
from ottla.storage.producers.aborted_transactions import AbortedIndex, aborted_between
from ottla.storage.producers.log_transactions import LogTransactions, VerificationGuard
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.producer_state import NO_OFFSET, ProducerStates
from ottla.transactions.commands import AddPartitions, VerifyPartitions
from ottla.transactions.end_markers import EndMarkers
from tests.transactions_simulation.checks import Content, Value

if TYPE_CHECKING:
    from tests.transactions_simulation.simulation import Simulation

LEADERLESS_MS = 200
SNAPSHOT_SHARE = 0.1


class Entry(NamedTuple):
    """A batch of the log, which takes one offset: a value, committed offsets, or a marker."""

    header: BatchHeader
    content: Content | EndMarker


class Produce(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequence: int
    value: Value
    # Whether the leader adds the partition to the transaction, or only verifies it.
    adds_partition: bool


Answer = Callable[[ErrorCode], None]


class DataPartition:
    def __init__(self, simulation: Simulation, name: TopicPartition) -> None:
        self.name = name
        self.entries: list[Entry] = []
        self.high_watermark = 0
        self.leader_epoch = 0
        self.is_led = True
        self.states = ProducerStates()
        self.transactions = LogTransactions(self.states)
        self.aborted = AbortedIndex()
        self._snapshots: list[tuple[int, bytes]] = []
        self._waiting: list[tuple[int, Answer]] = []
        # What was counted from the log, and up to where.
        self._counted_end = 0
        self._first_offsets: dict[int, int] = {}
        self._counted_aborted: list[tuple[int, int, int]] = []
        self._simulation = simulation

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def now_ms(self) -> int:
        return int(self._simulation.timeline.now)

    def last_stable_offset(self) -> int:
        return self.transactions.last_stable_offset(self.high_watermark, 0)

    def produce(self, request: Produce, answer: Answer) -> None:
        """`answer` is called once, now or when the batch is replicated."""
        if not self.is_led:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            guard = self.transactions.guard(
                request.producer_id,
                request.producer_epoch,
                request.sequence,
                advances_epoch=request.adds_partition,
            )
            if guard is None:
                self._append(request, None, answer)
                return
        except AppendRefused as error:
            answer(error.error_code)
            return
        leader_epoch = self.leader_epoch
        command = (AddPartitions if request.adds_partition else VerifyPartitions)(
            request.transactional_id, request.producer_id, request.producer_epoch, frozenset({self.name})
        )

        def on_verified(error: ErrorCode | None) -> None:
            if self.leader_epoch != leader_epoch or not self.is_led:
                answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif error is ErrorCode.NONE:
                self._append_verified(request, guard, answer)
            else:
                self.transactions.verification_refused(guard)
                answer(ErrorCode.NOT_ENOUGH_REPLICAS if error is None else error)

        self._simulation.query_coordinator(command, on_verified)

    def _append_verified(self, request: Produce, guard: VerificationGuard, answer: Answer) -> None:
        try:
            self._append(request, guard, answer)
        except AppendRefused as error:
            answer(error.error_code)

    def _append(self, request: Produce, guard: VerificationGuard | None, answer: Answer) -> None:
        sequence = request.sequence
        header = self._header(request.producer_id, request.producer_epoch, TRANSACTIONAL_BIT, sequence)
        offset = self.transactions.check(header, guard)
        if offset is None:
            offset = self.end
            self._append_batch(header, request.value)
        self._answer_when_replicated(offset, answer)

    def _append_batch(self, header: BatchHeader, content: Content) -> None:
        """In a transaction, which has been checked."""
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        self.entries.append(Entry(header, content))
        self.states.update(producer_id, epoch, sequence, sequence, header.base_offset, 0, self.now_ms)
        self.transactions.batch_appended(header)
        self._simulation.trace("%s: %s at %d, epoch %d", self.name, content, header.base_offset, epoch)
        self._simulation.checks.on_data(self, header, content)
        self._replicate()

    def write_marker(self, markers: EndMarkers, answer: Answer) -> None:
        if not self.is_led:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        marker = EndMarker(markers.commits, markers.coordinator_epoch)
        try:
            self._append_marker(markers.producer_id, markers.producer_epoch, marker, markers.advances_epoch)
        except AppendRefused as error:
            answer(error.error_code)
            return
        self._answer_when_replicated(self.end - 1, answer)

    def _append_marker(self, producer_id: int, epoch: int, marker: EndMarker, advances_epoch: bool) -> bool:
        """False when it repeats one that is in the log.  Raises `AppendRefused`."""
        try:
            if not self.transactions.check_marker(
                producer_id, epoch, marker.coordinator_epoch, advances_epoch=advances_epoch
            ):
                return False
        except AppendRefused as error:
            self._simulation.trace("%s: a marker is refused: %s", self.name, error)
            raise
        header = self._header(producer_id, epoch, TRANSACTIONAL_BIT | CONTROL_BIT, -1)
        self.entries.append(Entry(header, marker))
        aborted = self.transactions.marker_appended(header, marker, self.now_ms)
        if aborted is not None:
            self.aborted.add(aborted)
        self._simulation.trace("%s: %s of %d, epoch %d, at %d", self.name, marker, producer_id, epoch, self.end - 1)
        self._simulation.checks.on_marker(self, producer_id)
        self._replicate()
        return True

    def _header(self, producer_id: int, epoch: int, attributes: int, sequence: int) -> BatchHeader:
        return BatchHeader(self.end, 100, self.leader_epoch, 2, 0, attributes, 0, 0, 0, producer_id, epoch, sequence, 1)

    def _answer_when_replicated(self, offset: int, answer: Answer) -> None:
        if offset < self.high_watermark:
            answer(ErrorCode.NONE)
        else:
            self._waiting.append((offset, answer))

    def _replicate(self) -> None:
        simulation = self._simulation
        if simulation.chance.random() < SNAPSHOT_SHARE:
            self._snapshots.append((self.end, encode_snapshot(self.states)))
        delay_ms = simulation.chance.random() * simulation.plan.replication_ms
        simulation.timeline.after(delay_ms, self._replicated, self.leader_epoch, self.end)

    def _replicated(self, leader_epoch: int, end: int) -> None:
        if leader_epoch != self.leader_epoch or not self.is_led:
            return
        self.high_watermark = max(self.high_watermark, end)
        released = [each for each in self._waiting if each[0] < self.high_watermark]
        self._waiting = [each for each in self._waiting if each[0] >= self.high_watermark]
        for _, answer in released:
            answer(ErrorCode.NONE)
        self._simulation.checks.on_high_watermark(self)

    def lose_leader(self) -> None:
        if not self.is_led:
            return
        chance = self._simulation.chance
        self.is_led = False
        waiting, self._waiting = self._waiting, []
        for _, answer in waiting:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._simulation.timeline.after(chance.random() * LEADERLESS_MS, self.elect)

    def elect(self) -> None:
        if self.is_led:
            return
        end = self._simulation.chance.randint(self.high_watermark, self.end)
        del self.entries[end:]
        self._counted_end, self._first_offsets, self._counted_aborted = 0, {}, []
        self._snapshots = [each for each in self._snapshots if each[0] <= end]
        self.leader_epoch += 1
        self.is_led = True
        self.states = self.replayed(*(self._snapshots[-1] if self._snapshots else (0, None)))
        self.transactions.truncated(self.states, end)
        self.aborted.truncate_to(end)
        self._simulation.trace("%s: led in epoch %d from %d", self.name, self.leader_epoch, end)
        self._simulation.checks.on_truncated(self)
        self._replicate()

    def replayed(self, start: int, snapshot: bytes | None) -> ProducerStates:
        states = ProducerStates() if snapshot is None else decode_snapshot(snapshot)
        for header, content in self.entries[start:]:
            if header.producer_id != NO_PRODUCER_ID:
                states.replay(header, content if isinstance(content, EndMarker) else None, self.now_ms)
        return states

    def committed(self, start: int, end: int) -> list[Content]:
        """What a read_committed consumer delivers of [start, end), as clients use the list of aborted transactions."""
        coming = [(each.first_offset, each.producer_id) for each in aborted_between(self.aborted, start, end)]
        skipped: set[int] = set()
        found: list[Content] = []
        for header, content in self.entries[start:end]:
            while coming and coming[0][0] <= header.base_offset:
                skipped.add(coming.pop(0)[1])
            if isinstance(content, EndMarker):
                if not content.commits:
                    skipped.discard(header.producer_id)
            elif header.producer_id not in skipped:
                found.append(content)
        return found

    def open_first_offset(self) -> int | None:
        """Where the oldest transaction without a marker starts, counted from the log alone."""
        self._count()
        return min(self._first_offsets.values(), default=None)

    def counted_aborted(self) -> list[tuple[int, int, int]]:
        """First offset, marker and producer of each aborted transaction, counted from the log alone."""
        self._count()
        return self._counted_aborted

    def _count(self) -> None:
        for header, content in self.entries[self._counted_end :]:
            if not isinstance(content, EndMarker):
                if header.producer_id != NO_PRODUCER_ID:
                    self._first_offsets.setdefault(header.producer_id, header.base_offset)
            elif header.producer_id in self._first_offsets:
                first_offset = self._first_offsets.pop(header.producer_id)
                if not content.commits:
                    self._counted_aborted.append((first_offset, header.base_offset, header.producer_id))
        self._counted_end = self.end


def content_of(states: ProducerStates) -> dict[int, tuple[int, int, int, int]]:
    """What must be equal for a live leader and a replay."""
    return {
        producer_id: (
            entry.epoch,
            entry.next_sequence,
            entry.coordinator_epoch if entry.coordinator_epoch >= 0 else NO_OFFSET,
            entry.current_txn_first_offset,
        )
        for producer_id, entry in states.entries()
    }
