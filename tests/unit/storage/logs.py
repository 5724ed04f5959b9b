"""A log directory in a temporary place, batches for it, and a clock that the test turns."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.records.header import HEADER
from ottla.records.record import Record, decode_batch, split_batches
from ottla.runtime.disk import Disk, FileRun
from ottla.runtime.offload import INLINE, run_inline
from ottla.storage.directory.log_directory import LogDirectory, LogDirectoryObserver
from ottla.storage.errors import DirectoryOffline
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.indexes import TimestampOffset
from tests.unit.storage.quick_disk import QuickDisk

CLICKS = TopicPartition("clicks", 0)
NOW_MS = 1_700_000_000_000


class HandClock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.ms = 0
        # By how much the wall clock is off.
        self.off_ms = 0

    def now_ms(self) -> int:
        return NOW_MS + self.ms + self.off_ms

    def monotonic_ms(self) -> int:
        return self.ms

    def boottime_ms(self) -> int:
        return self.ms


def topic_id(number: int) -> UUID:
    return UUID(int=number + 1)


def batch_of(
    count: int = 1,
    *,
    timestamp_ms: int = NOW_MS,
    value: bytes = b"v" * 100,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> memoryview:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(timestamp_ms + number, b"%d" % number, value)
    return memoryview(
        builder.build(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    )


def at_time(log: Log, timestamp_ms: int, limit_offset: int | None = None) -> TimestampOffset | None:
    """The first record at or after a time, below the stable end unless a limit is given."""
    limit_offset = log.stable_end if limit_offset is None else limit_offset
    return run_inline(log.offset_for_timestamp(timestamp_ms, limit_offset, INLINE))


def at_greatest_time(log: Log, limit_offset: int | None = None) -> TimestampOffset | None:
    """The first record with the greatest timestamp, below the stable end unless a limit is given."""
    limit_offset = log.stable_end if limit_offset is None else limit_offset
    return run_inline(log.offset_of_max_timestamp(limit_offset, INLINE))


def truncate_log(log: Log, offset: int) -> None:
    run_inline(log.truncate_to(offset, INLINE))


def reset_log(log: Log, offset: int) -> None:
    run_inline(log.reset_to(offset, INLINE))


def append(log: Log, batch: memoryview, now_ms: int = NOW_MS) -> int:
    return log.append(batch, HEADER.unpack_from(batch), now_ms)


def append_many(log: Log, batches: int, count: int = 1, *, value: bytes = b"v" * 100) -> None:
    for _ in range(batches):
        append(log, batch_of(count, value=value))


class Place:
    """One log directory that can be opened, closed and crashed again and again."""

    def __init__(self, path: Path | str, disk: Disk | None = None, config: LogConfig | None = None) -> None:
        self.disk = QuickDisk() if disk is None else disk
        self.path = str(path)
        self.clock = HandClock()
        self.config = LogConfig() if config is None else config
        self.directory: LogDirectory | None = None
        # What the directory reported, at any of its starts.
        self.failures: list[DirectoryOffline] = []
        self.damaged_logs: list[Log] = []

    def open(self) -> LogDirectory:
        self.directory = LogDirectory.open(
            self.disk,
            self.path,
            clock=self.clock,
            config_of=lambda _: self.config,
            node_id=1,
            cluster_id="c",
            observer=LogDirectoryObserver(on_offline=self.failures.append, on_log_damaged=self.damaged_logs.append),
        )
        return self.directory

    @property
    def open_directory(self) -> LogDirectory:
        assert self.directory is not None
        return self.directory

    def log(self) -> Log:
        """The log of `CLICKS`, made on first use."""
        directory = self.open() if self.directory is None else self.directory
        if CLICKS not in directory.logs:
            run_inline(directory.create([(CLICKS, topic_id(0))]))
            directory.logs[CLICKS].start_epoch(0)
        return directory.logs[CLICKS]

    def flush(self) -> int:
        """Run everything that is due; how many plans that were."""
        assert self.directory is not None
        count = 0
        while (plan := self.directory.scheduler.plan(self.clock.monotonic_ms())) is not None:
            error: OSError | None = None
            try:
                plan.execute(self.disk)
            except OSError as failure:
                error = failure
            self.directory.scheduler.complete(plan, error, self.clock.monotonic_ms())
            count += 1
        return count

    def close(self) -> None:
        assert self.directory is not None
        self.directory.close()
        self.directory = None

    def crash(self) -> None:
        """The process is gone: nothing is flushed or marked, the kernel closes its files and drops its locks."""
        assert self.directory is not None
        self.directory.abandon()
        self.directory = None

    def reopen_log(self) -> Log:
        """The log after a close or a crash."""
        return self.open().logs[CLICKS]


def bytes_of(run: FileRun | None) -> bytes:
    return b"" if run is None else run.file.read_at(run.position, run.length_bytes)


def records_in(run: FileRun | None) -> list[Record]:
    return [record for batch in split_batches(memoryview(bytes_of(run))) for record in decode_batch(batch)]


def read_all(log: Log, limit_offset: int | None = None) -> list[int]:
    """The offsets of all records from the log's start, read as a consumer reads them."""
    limit_offset = log.log_end_offset if limit_offset is None else limit_offset
    offsets: list[int] = []
    next_offset = log.log_start_offset
    while next_offset < limit_offset:
        records = records_in(log.read(next_offset, limit_offset, 10_000, whole_first_batch=True))
        if not records:
            break
        offsets += [record.offset for record in records if record.offset >= next_offset]
        next_offset = records[-1].offset + 1
    return offsets
