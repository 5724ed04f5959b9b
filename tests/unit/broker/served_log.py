"""A log as handlers see it, in memory: appends, a stable end that the test moves, reads as file runs."""

from __future__ import annotations

from collections.abc import Callable
from uuid import NAMESPACE_OID, uuid5

from ottla.broker.partition import Partition
from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import File, FileRun
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.errors import StorageError
from ottla.storage.log_config import LogConfig


class ServedLog:
    """What a `Partition` uses of a log; one batch is one read."""

    def __init__(self, name: str, index: int, *, config: LogConfig | None = None) -> None:
        self.topic_partition = TopicPartition(name, index)
        self.topic_id = uuid5(NAMESPACE_OID, name)
        self.config = config or LogConfig()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.stable_end = 0
        self.leader_epoch = -1
        self.epochs = self
        self.active_base_offset = 0
        self._on_stable: Callable[[], None] | None = None
        self.failure: StorageError | None = None
        self.batches: list[tuple[int, bytes]] = []
        # Never read: runs carry their length, and tests look at that.
        self._file: File = PosixDisk().open("/dev/null", read_only=True)

    def watch(self, *, on_stable: Callable[[], None], on_truncated: Callable[[], None] | None = None) -> None:
        self._on_stable = on_stable

    def append(self, batch: memoryview, header: tuple[int, ...], now_ms: int) -> int:
        if self.failure is not None:
            raise self.failure
        base_offset = self.log_end_offset
        self.batches.append((base_offset, bytes(batch)))
        self.log_end_offset += header[6] + 1
        return base_offset

    def become_stable(self, end: int | None = None) -> None:
        self.stable_end = self.log_end_offset if end is None else end
        assert self._on_stable is not None
        self._on_stable()

    def read(
        self, start_offset: int, limit_offset: int, size_bytes_max: int, *, whole_first_batch: bool
    ) -> FileRun | None:
        ends = [base for base, _ in self.batches[1:]] + [self.log_end_offset]
        sizes = [
            len(batch)
            for (_, batch), end in zip(self.batches, ends, strict=True)
            if end > start_offset and end <= limit_offset
        ]
        if not sizes:
            return None
        length = min(sum(sizes), size_bytes_max)
        if length < sizes[0]:
            if not whole_first_batch:
                return None
            length = sizes[0]
        return FileRun(self._file, 0, length)

    @property
    def latest_epoch(self) -> int:
        return self.leader_epoch

    def start_epoch(self, epoch: int) -> None:
        self.leader_epoch = epoch

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        if epoch > self.leader_epoch:
            return (-1, -1)
        return (epoch if epoch == self.leader_epoch else 0, self.log_end_offset)


def led(log: ServedLog, leader_epoch: int) -> Partition:
    """The partition of a log, led by this broker."""
    partition = Partition(log)  # type: ignore[arg-type]  # what a partition uses of a log
    partition.become_leader(leader_epoch)
    return partition
