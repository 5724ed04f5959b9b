"""A shard with a log in memory, a clock turned by hand, and lists of what it requested."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Moment
from ottla.transactions.commands import (
    NO_CONNECTION,
    AddPartitions,
    Command,
    EndTransaction,
    InitProducer,
    ProducerReply,
    VerifyPartitions,
)
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.shard import TransactionShard
from ottla.transactions.transaction import Transaction
from ottla.transactions.transaction_records import TransactionRecord, transaction_record

START_MS = 1_700_000_000_000
TX = "tx"
DEFAULT_SETTINGS = TransactionSettings()
A, B = TopicPartition("a", 0), TopicPartition("b", 1)


class MemoryLog:
    def __init__(self) -> None:
        self.records: list[TransactionRecord] = []
        self.stable_end = 0
        self.refusal: ErrorCode | None = None

    def append(self, records: Sequence[TransactionRecord], now_ms: int) -> int:
        if self.refusal is not None:
            raise RequestError(self.refusal, "refused")
        self.records += records
        return len(self.records)


class Coordinator:
    """Appends are stable at once unless `is_slow`."""

    def __init__(
        self,
        log: MemoryLog | None = None,
        epoch: int = 5,
        passed_ms: int = 0,
        settings: TransactionSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.log = MemoryLog() if log is None else log
        self.is_slow = False
        self.passed_ms = passed_ms
        self.requested_ids: list[str] = []
        self.markers: list[EndMarkers] = []
        self.next_producer_id = 4000
        self.shard = TransactionShard(self.log, settings, self, epoch)
        for record in self.log.records:
            self.shard.replay(*record)
        self.shard.loaded(self.moment, len(self.log.records))

    @property
    def moment(self) -> Moment:
        return Moment(START_MS + self.passed_ms, 1_000 + self.passed_ms)

    # What the shard requests.

    def request_producer_id(self, transactional_id: str) -> None:
        self.requested_ids.append(transactional_id)

    def write_markers(self, markers: EndMarkers) -> None:
        self.markers.append(markers)

    # What tests do.

    def flush(self) -> None:
        self.log.stable_end = len(self.log.records)
        self.shard.on_stable(self.log.stable_end)

    def _settle(self) -> None:
        if not self.is_slow:
            self.flush()

    def submit(self, command: Command) -> list[object]:
        replies: list[object] = []
        self.shard.submit(command, replies.append, self.moment)
        self._settle()
        return replies

    def give_ids(self) -> None:
        while self.requested_ids:
            transactional_id = self.requested_ids.pop(0)
            self.shard.on_producer_id(transactional_id, self.next_producer_id, self.moment)
            self.next_producer_id += 1000
        self._settle()

    def init(self, producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = 60_000) -> ProducerReply:
        """An init that needs no markers to be written."""
        replies = self.submit(InitProducer(TX, timeout_ms, producer_id, epoch))
        self.give_ids()
        (reply,) = replies
        assert isinstance(reply, ProducerReply)
        return reply

    def add(
        self, producer: tuple[int, int], *partitions: TopicPartition, connection: int = NO_CONNECTION
    ) -> list[object]:
        return self.submit(AddPartitions(TX, *producer, frozenset(partitions or (A,)), connection=connection))

    def verify(self, producer: tuple[int, int], *partitions: TopicPartition) -> list[object]:
        return self.submit(VerifyPartitions(TX, *producer, frozenset(partitions or (A,))))

    def end(
        self,
        producer: tuple[int, int],
        *,
        commits: bool,
        advances_epoch: bool = True,
        knows_fenced: bool = True,
        connection: int = NO_CONNECTION,
    ) -> list[object]:
        return self.submit(EndTransaction(TX, *producer, commits, advances_epoch, knows_fenced, connection))

    def write_all_markers(self) -> None:
        markers, self.markers = self.markers, []
        for each in markers:
            for partition in each.partitions:
                producer = (each.producer_id, each.producer_epoch)
                self.shard.on_marker_written(each.transactional_id, producer, partition, self.moment)
        self._settle()

    def pass_ms(self, passed_ms: int) -> None:
        self.passed_ms += passed_ms
        self.shard.on_time(self.moment)
        self._settle()

    def state(self) -> Transaction:
        return dict(self.shard.transactions())[TX]


def coordinator_with(transaction: Transaction, epoch: int = 6) -> Coordinator:
    """A coordinator that finds this in its log."""
    log = MemoryLog()
    log.records.append(transaction_record(TX, transaction))
    log.stable_end = 1
    return Coordinator(log, epoch)
