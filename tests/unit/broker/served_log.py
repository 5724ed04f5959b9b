"""A partition over a real log on a disk in memory; nothing in it is stable before the test flushes."""

from __future__ import annotations

from collections.abc import Callable
from uuid import NAMESPACE_OID, UUID, uuid5

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.records.header import HEADER
from ottla.records.record import split_batches
from ottla.runtime.offload import run_inline
from ottla.storage.directory.log_directory import LogDirectory, LogDirectoryObserver
from ottla.storage.errors import DirectoryOffline
from ottla.storage.log.flush import FlushPlan
from ottla.storage.log_config import LogConfig
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.broker.roles import HERE, lead

MANY_BYTES = 1 << 30


def one_record(value: bytes = b"v" * 100) -> bytearray:
    """A batch with one record."""
    builder = BatchBuilder()
    builder.append(1, None, value)
    return builder.build()


def topic_id_of(name: str) -> UUID:
    """The id of a topic that was given none."""
    return uuid5(NAMESPACE_OID, name)


class ServedLog:
    """One log in a directory of its own, so that a test flushes it, fills its disk and lets it fail alone.

    The partition is led in `leader_epoch`; None: not led.
    """

    def __init__(
        self,
        name: str,
        index: int = 0,
        leader_epoch: int | None = 0,
        *,
        config: LogConfig | None = None,
        topic_id: UUID | None = None,
        on_offline: Callable[[DirectoryOffline], None] = lambda _: None,
    ) -> None:
        self.disk = MemoryDisk()
        self.clock = FakeClock()
        self.topic_id = topic_id_of(name) if topic_id is None else topic_id
        self._config = config or LogConfig()
        self._on_offline = on_offline
        self.directory = self._opened()
        (self.log,) = run_inline(self.directory.create([(TopicPartition(name, index), self.topic_id)]))
        self.partition = Partition(self.log, HERE)
        if leader_epoch is not None:
            lead(self.partition, leader_epoch)

    def _opened(self) -> LogDirectory:
        return LogDirectory.open(
            self.disk,
            "/data",
            clock=self.clock,
            config_of=lambda _: self._config,
            observer=LogDirectoryObserver(on_offline=self._on_offline),
        )

    def reopen(self) -> None:
        """The next start of the broker opens the directory, which was closed or abandoned."""
        self.directory = self._opened()
        (self.log,) = self.directory.logs.values()

    def append(self, batch: bytearray | None = None, acks: int = ACKS_ALL) -> tuple[int, int, int]:
        """Append a batch, of one record unless given, as `Partition.append` does."""
        batch = one_record() if batch is None else batch
        return self.partition.append(memoryview(batch), HEADER.unpack_from(batch), acks, self.clock.now_ms())

    def add(self, *, is_stable: bool = True) -> int:
        """Append a batch of one record; returns its size."""
        batch = one_record()
        self.append(batch)
        if is_stable:
            self.become_stable()
        return len(batch)

    def begin_flush(self) -> FlushPlan:
        """Begin to flush what was appended so far; `end_flush` makes it stable."""
        plan = self.directory.scheduler.plan(self.clock.monotonic_ms())
        assert plan is not None, "no flush is due"
        return plan

    def end_flush(self, plan: FlushPlan) -> None:
        plan.execute(self.disk)
        self.directory.scheduler.complete(plan, None, self.clock.monotonic_ms())

    def become_stable(self) -> None:
        """Flush what was appended since the last flush, if anything was."""
        plan = self.directory.scheduler.plan(self.clock.monotonic_ms())
        if plan is not None:
            self.end_flush(plan)

    def roll(self) -> None:
        """Later batches go to another segment."""
        self.log.roll(self.clock.now_ms())

    @property
    def batches(self) -> list[bytes]:
        """What the log holds, batch by batch; of one segment."""
        run = self.log.read(self.log.log_start_offset, self.log.log_end_offset, MANY_BYTES, whole_first_batch=True)
        if run is None:
            return []
        return [bytes(batch) for batch in split_batches(memoryview(run.file.read_at(run.position, run.length_bytes)))]
