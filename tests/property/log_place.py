"""One log directory on a memory disk that can be closed, killed and hit by power losses; and its inspection."""

from __future__ import annotations

from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.records.end_marker import EndMarker
from ottla.records.header import HEADER
from ottla.runtime.offload import run_inline
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk

from .log_model import START_MS, Producers, Stored, Transactions, batch_of, split_log
from .log_model import BatchShape as BatchShape

DATA = "/data"
SMALL_SEGMENTS = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    segment_index_bytes=10_000,
    retention_ms=-1,
    segment_ms=10**12,
    file_delete_delay_ms=1_000,
)


def partition(number: int) -> TopicPartition:
    return TopicPartition("clicks", number)


def topic_id(number: int) -> UUID:
    return UUID(int=2**90 + number)


class LogPlace:
    """The directory `/data` of a disk, opened on demand."""

    def __init__(self, disk: MemoryDisk, config: LogConfig = SMALL_SEGMENTS) -> None:
        self.disk = disk
        self.config = config
        self.clock = FakeClock(START_MS)
        self.directory = self._open()

    def _open(self) -> LogDirectory:
        return LogDirectory.open(
            self.disk, DATA, clock=self.clock, config_of=lambda _: self.config, node_id=1, cluster_id="c"
        )

    def create(self, count: int) -> list[Log]:
        logs = run_inline(self.directory.create([(partition(number), topic_id(number)) for number in range(count)]))
        for log in logs:
            log.start_epoch(0)
        return logs

    def log(self, number: int = 0) -> Log:
        return self.directory.logs[partition(number)]

    def flush(self) -> None:
        """Run every plan that is due."""
        while (plan := self.directory.scheduler.plan(self.clock.monotonic_ms())) is not None:
            error: OSError | None = None
            try:
                plan.execute(self.disk)
            except OSError as failure:
                error = failure
            self.directory.scheduler.complete(plan, error, self.clock.monotonic_ms())

    def reopen_clean(self) -> None:
        self.directory.close()
        self.directory = self._open()

    def reopen_on(self, disk: MemoryDisk) -> None:
        """Continue with the files that a kill or a power loss left."""
        self.directory.abandon()
        self.disk = disk
        self.directory = self._open()


def append(log: Log, shape: BatchShape, now_ms: int = START_MS) -> tuple[int, Stored | None]:
    """(base offset, the batch as it was stored; None when it was a duplicate)."""
    batch = batch_of(shape)
    end_offset = log.log_end_offset
    guard = None
    if shape.is_transactional:
        guard = log.transactions.guard(shape.producer_id, shape.producer_epoch, shape.base_sequence)
    base_offset = log.append(batch, HEADER.unpack_from(batch), now_ms, guard)
    return base_offset, Stored.of(bytes(batch)) if log.log_end_offset > end_offset else None


def append_marker(log: Log, marker: EndMarker, producer_id: int, epoch: int, now_ms: int = START_MS) -> Stored:
    """A marker as it was stored, which keeps the epoch or advances it."""
    entry = log.producers.entry(producer_id)
    advances_epoch = entry is None or epoch > entry.epoch
    assert log.append_marker(marker, producer_id, epoch, now_ms, advances_epoch=advances_epoch)
    (stored,) = read_log(log, log.log_end_offset - 1, log.log_end_offset)
    return stored


def transactions_in(log: Log) -> Transactions:
    """The log's own view of its transactions, in the model's form."""
    coordinator_epochs = {
        producer_id: entry.coordinator_epoch
        for producer_id, entry in log.producers.entries()
        if entry.coordinator_epoch >= 0
    }
    aborted = [
        (each.first_offset, each.last_offset, each.producer_id, each.last_stable_offset)
        for segment in log.segments
        for each in segment.aborted()
    ]
    return Transactions(dict(log.transactions.open), aborted, coordinator_epochs)


def read_log(log: Log, start_offset: int, limit_offset: int, size_bytes_max: int = 400) -> list[Stored]:
    """All batches from the one that holds `start_offset` on, read as a consumer reads them."""
    found: list[Stored] = []
    next_offset = start_offset
    while next_offset < limit_offset:
        run = log.read(next_offset, limit_offset, size_bytes_max, whole_first_batch=True)
        assert run is not None, f"nothing at {next_offset} below {limit_offset}"
        data = run.file.read_at(run.position, run.length_bytes)
        assert len(data) == run.length_bytes
        batches = split_log(_without_cut_batch(data))
        assert batches, "the first batch is whole"
        assert batches[0].base_offset <= next_offset < batches[0].next_offset
        found += batches
        next_offset = batches[-1].next_offset
    return found


def _without_cut_batch(data: bytes) -> bytes:
    """Drop a last batch that the size limit truncated."""
    position = 0
    while position + 12 <= len(data):
        end: int = position + 12 + HEADER.unpack_from(data.ljust(position + 61, b"\0"), position)[1]
        if end > len(data):
            break
        position = end
    return data[:position]


def producers_in(log: Log) -> Producers:
    """The log's own view of its producers, in the model's form."""
    return {producer_id: (entry.epoch, list(entry.batches)) for producer_id, entry in log.producers.entries()}
