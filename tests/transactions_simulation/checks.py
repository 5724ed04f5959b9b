"""What must hold after each step and at the end of a run: T1 to T13 of docs/transactions.md, but T12."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.groups.group_log import GroupRecord
from ottla.groups.offset_records import decode_offset_value, parse_offset_key
from ottla.model.identifiers import TopicPartition
from ottla.records.end_marker import EndMarker
from ottla.records.header import BatchHeader
from ottla.storage.producers.aborted_transactions import AbortedTransaction, aborted_between
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.shard import TransactionShard
from ottla.transactions.transaction import EPOCH_MAX, Transaction, TransactionState
from ottla.transactions.transaction_records import decode_transaction, decode_transaction_key
from tests.seeds.search import Violation

if TYPE_CHECKING:
    from tests.transactions_simulation.coordinator import CoordinatorPartition, Serving
    from tests.transactions_simulation.offsets_partition import OffsetsPartition
    from tests.transactions_simulation.partition import DataPartition
    from tests.transactions_simulation.simulation import Simulation


# The partition of the first transactional id's input.
FIRST_INPUT: Final = 1


def input_of(transactional_id: str) -> int:
    """The partition of its input."""
    return FIRST_INPUT + int(transactional_id.removeprefix("tx"))


class Value(NamedTuple):
    """A record: the number of its transaction, and its own in that."""

    transaction: int
    number: int


class CommittedRecords(NamedTuple):
    """A batch of committed offsets.  Its number makes it differ from a repetition."""

    transaction: int
    number: int
    records: tuple[GroupRecord, ...]

    def __str__(self) -> str:
        return f"offsets {self.offsets()} of transaction {self.transaction}"

    def offsets(self) -> dict[int, int]:
        """By partition of the topic."""
        return {
            parse_offset_key(key).partition: decode_offset_value(value).offset
            for key, value in self.records
            if value is not None
        }


Content = Value | CommittedRecords


@dataclass(eq=False)
class Attempted:
    """A transaction as its producer sees it."""

    number: int
    transactional_id: str
    # The input that it consumes: it commits the next offset.
    input: int | None = None
    # Records that were acknowledged, by partition.
    acknowledged: list[tuple[TopicPartition, Value]] = field(default_factory=list)
    # Whether its producer requested to commit it, and the answer: True committed, False aborted.
    requested_commit: bool = False
    answered: bool | None = None
    # Its end was refused for good, although no other producer had taken the id over.
    is_refused: bool = False


class Checks:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.attempted: list[Attempted] = []
        self.calls_count = 0
        # What consumers have read, by partition.
        self._read: defaultdict[TopicPartition, list[Content]] = defaultdict(list)
        self._stable_offsets: defaultdict[TopicPartition, int] = defaultdict(int)
        # The newest transaction of each producer id, and those with a marker after their end was answered.
        self._newest: dict[int, Attempted] = {}
        self._closed: set[tuple[TopicPartition, int]] = set()
        self._decided: dict[tuple[str, int, int], bool] = {}
        self._stable_records = 0
        self._last: dict[str, Transaction] = {}

    def begin(self, transactional_id: str, producer_id: int) -> Attempted:
        found = Attempted(len(self.attempted), transactional_id)
        self.attempted.append(found)
        self._newest[producer_id] = found
        return found

    def on_data(self, partition: DataPartition, header: BatchHeader, value: Content) -> None:
        if (partition.name, value.transaction) in self._closed:
            raise Violation(f"T5: {value} is in {partition.name} after the marker of its transaction")
        for before, content in reversed(partition.entries[:-1]):
            if before.producer_id != header.producer_id:
                continue
            if isinstance(content, EndMarker):
                if self._is_in(partition, value.transaction, header.producer_id):
                    raise Violation(f"T5: {value} is in {partition.name} after the marker of its transaction")
            elif content.transaction != value.transaction:
                raise Violation(f"T5: {value} is in the open transaction {content.transaction} of {partition.name}")
            return

    def _is_in(self, partition: DataPartition, transaction: int, producer_id: int) -> bool:
        return any(
            not isinstance(content, EndMarker)
            and content.transaction == transaction
            and header.producer_id == producer_id
            for header, content in partition.entries[:-1]
        )

    def on_marker(self, partition: DataPartition, producer_id: int) -> None:
        """Consumers read before it is replicated, too."""
        newest = self._newest.get(producer_id)
        if newest is not None and newest.answered is not None:
            self._closed.add((partition.name, newest.number))
        self.on_high_watermark(partition)

    def on_high_watermark(self, partition: DataPartition) -> None:
        stable_offset = self.check_stable_offset(partition)
        read = self._read[partition.name]
        start = self._stable_offsets[partition.name]
        if stable_offset < start:
            raise Violation(f"T6: the last stable offset of {partition.name} falls from {start} to {stable_offset}")
        found = partition.committed(start, stable_offset)
        for value in found:
            attempted = self.attempted[value.transaction]
            if not attempted.requested_commit or attempted.answered is False:
                raise Violation(f"T2: {value} of {partition.name} is shown, its transaction was not committed")
        read += found
        self._stable_offsets[partition.name] = stable_offset
        self._check_aborted(partition, stable_offset)

    def on_truncated(self, partition: DataPartition) -> None:
        self._closed = {each for each in self._closed if each[0] != partition.name}
        self.check_stable_offset(partition)

    def check_stable_offset(self, partition: DataPartition) -> int:
        stable_offset = partition.last_stable_offset()
        first_offset = partition.open_first_offset()
        if first_offset is not None and stable_offset > first_offset:
            raise Violation(f"T6: {stable_offset} of {partition.name} is above the open transaction at {first_offset}")
        if stable_offset > partition.high_watermark:
            raise Violation(f"T6: {stable_offset} of {partition.name} is above the high watermark")
        return stable_offset

    def _check_aborted(self, partition: DataPartition, end: int) -> None:
        """The list for any range below the last stable offset has each aborted transaction with a record in it."""
        chance = self._simulation.chance
        if not end or chance.random() > 0.2:
            return
        expected = partition.counted_aborted()
        start = chance.randrange(end)
        upper = chance.randint(start + 1, end)
        wanted = [(each[0], each[2]) for each in expected if each[1] >= start and each[0] < upper]
        found = [(each.first_offset, each.producer_id) for each in self.aborted_list(partition, start, upper)]
        if sorted(wanted) != found:
            raise Violation(f"T11: aborted in [{start}, {upper}) of {partition.name}: {found}, not {sorted(wanted)}")

    def aborted_list(self, partition: DataPartition, start: int, end: int) -> list[AbortedTransaction]:
        return aborted_between(partition.aborted.ended_from(start), start, end)

    def on_offsets(self, partition: OffsetsPartition) -> None:
        """Clients see what the log defines: now, and when the marker of a transaction is acknowledged."""
        shown, counted = partition.shown(), partition.counted_offsets()
        if shown != counted:
            raise Violation(f"T8: the group has the offsets {shown}, its log {counted}")

    def on_records_stable(self, coordinator: CoordinatorPartition) -> None:
        """A decision that is stable is followed by its completion."""
        records = coordinator.serving.records[self._stable_records : coordinator.high_watermark]
        self._stable_records = coordinator.high_watermark
        for key, value in records:
            name = decode_transaction_key(key)
            assert name is not None
            assert value is not None
            after, before = decode_transaction(value), self._last.get(name)
            self._last[name] = after
            if before is None:
                continue
            if before.state.is_prepared and (not after.state.is_complete or after.commits != before.commits):
                raise Violation(f"T4: {name} was {before.state.title} and is {after.state.title}")
            if after.state.is_complete and before.state is TransactionState.ONGOING:
                raise Violation(f"T4: {name} was {before.state.title} and is {after.state.title}")
            is_next_epoch = (
                after.producer_id == before.producer_id and after.producer_epoch - before.producer_epoch in (0, 1)
            )
            is_next_id = after.producer_id != before.producer_id and after.producer_epoch == 0
            if not (is_next_epoch or is_next_id):
                raise Violation(f"T9: {name} goes from epoch {before.producer_epoch} to {after.producer_epoch}")
            if not after.state.is_prepared and after.producer_epoch > EPOCH_MAX and before.producer_epoch <= EPOCH_MAX:
                raise Violation(f"T9: {name} has the epoch {after.producer_epoch}")
            was_fenced = before.state is TransactionState.ONGOING and after.producer_epoch == before.producer_epoch
            if was_fenced and after.client_version == 2 and after.state.is_prepared:
                raise Violation(f"T9: {name} ended with the epoch {after.producer_epoch} of its records")

    def on_decision(self, markers: EndMarkers, serving: Serving) -> None:
        """Markers are requested for what a next coordinator finds, and with one outcome."""
        key = (markers.transactional_id, markers.producer_id, markers.producer_epoch)
        if markers.advances_epoch and self._decided.setdefault(key, markers.commits) != markers.commits:
            raise Violation(f"T4: {markers.transactional_id} has two outcomes")

    def at_end(self) -> None:
        simulation = self._simulation
        shown: set[tuple[TopicPartition, Content]] = set()
        for partition in simulation.partitions.values():
            stable_offset = partition.last_stable_offset()
            if stable_offset != partition.high_watermark or partition.high_watermark != partition.end:
                raise Violation(f"T7: {partition.name} is stable to {stable_offset} of {partition.end}")
            read = partition.committed(0, partition.end)
            if read != self._read[partition.name]:
                raise Violation(f"T3: {partition.name} has {read}, consumers have read {self._read[partition.name]}")
            if len(set(read)) != len(read):
                raise Violation(f"T1: {partition.name} has a record twice: {read}")
            shown |= {(partition.name, value) for value in read}
            self._check_replay(partition)
        shown_transactions = {value.transaction for _, value in shown}
        for attempted in self.attempted:
            is_shown = [each in shown for each in attempted.acknowledged]
            if attempted.answered and not all(is_shown):
                raise Violation(f"T3: transaction {attempted.number} was committed and is not shown")
            if attempted.is_refused and attempted.number in shown_transactions:
                raise Violation(f"T4: transaction {attempted.number} is shown, and its end was refused")
            if attempted.number in shown_transactions and not all(is_shown):
                raise Violation(f"T1: transaction {attempted.number} is shown in part")
        if simulation.offsets is not None:
            self._check_inputs(simulation.offsets, shown_transactions)
        self._check_shard()

    def _check_inputs(self, offsets: OffsetsPartition, shown: set[int]) -> None:
        """Each input was consumed by one transaction that is shown, up to the offset that is committed."""
        self.on_offsets(offsets)
        committed = offsets.shown()
        by_input: defaultdict[int, list[int]] = defaultdict(list)
        for attempted in self.attempted:
            if attempted.number in shown and attempted.input is not None:
                by_input[input_of(attempted.transactional_id)].append(attempted.input)
        for partition, consumed in by_input.items():
            if sorted(consumed) != list(range(committed.get(partition, 0))):
                raise Violation(f"T8: of {partition} {sorted(consumed)} is shown, {committed} committed")
        replayed = offsets.replayed_shard()
        if offsets.shown(replayed) != committed:
            raise Violation(f"T10: the group has the offsets {committed}, its replay {offsets.shown(replayed)}")
        if offsets.has_pending():
            raise Violation("T7: the group has pending offsets at the end")

    def _check_replay(self, partition: DataPartition) -> None:
        from tests.transactions_simulation.partition import content_of

        live, replayed = content_of(partition.states), content_of(partition.replayed(0, None))
        if live != replayed:
            raise Violation(f"T10: {partition.name} has {live}, its replay {replayed}")

    def _check_shard(self) -> None:
        serving = self._simulation.coordinator.serving
        replayed = TransactionShard(serving, self._simulation.settings, serving, serving.epoch)
        for key, value in serving.records:
            replayed.replay(key, value)
        live = dict(serving.shard.transactions())
        if live != dict(replayed.transactions()):
            raise Violation(f"T10: the coordinator has {live}, its replay {dict(replayed.transactions())}")
        for name, transaction in live.items():
            if transaction.state is TransactionState.ONGOING or transaction.state.is_prepared:
                raise Violation(f"T7: {name} is {transaction.state.title} at the end")
