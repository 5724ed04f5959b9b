"""A partition of `__consumer_offsets` as its shard writes it: one batch for each decision, one wait for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.partition import Partition
from ottla.groups.group_log import GroupRecord
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.records.builder import BatchBuilder
from ottla.records.header import HEADER


class PartitionLog:
    """A `GroupLog` over a partition.  `on_stable` is called with the stable end whenever it moved past an append."""

    __slots__ = ("_last_end", "_on_failed", "_on_stable", "_waits", "partition")

    def __init__(
        self, partition: Partition, on_stable: Callable[[int], None], on_failed: Callable[[int], None]
    ) -> None:
        self.partition = partition
        self._on_stable = on_stable
        self._on_failed = on_failed
        self._last_end = 0
        self._waits = False

    @property
    def stable_end(self) -> int:
        return self.partition.high_watermark

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> int:
        """See `GroupLog.append`."""
        builder = BatchBuilder()
        for key, value in records:
            builder.append(now_ms, key, value)
        batch = builder.build()
        log = self.partition.log
        if len(batch) > log.config.max_message_bytes:
            problem = f"a group's records take {len(batch)} bytes, {log.config.max_message_bytes} are allowed"
            raise RequestError(ErrorCode.MESSAGE_TOO_LARGE, problem)
        base_offset = log.append(memoryview(batch), HEADER.unpack_from(batch), now_ms)
        self._last_end = end = base_offset + len(records)
        if not self._waits:
            self._wait()
        return end

    def _wait(self) -> None:
        """Be told when the last append is stable.  One place in the queue stands for all appends of a flush."""
        if self._last_end > self.partition.high_watermark:
            self._waits = True
            self.partition.park_produce(self._last_end, self, 0)

    # WaitingProduce.

    def on_stable(self, slot: int) -> None:
        self._waits = False
        self._on_stable(self.partition.high_watermark)
        if not self._waits:
            self._wait()

    def on_failed(self, slot: int, error_code: int) -> None:
        self._waits = False
        self._on_failed(error_code)

    def is_late(self, now_ms: int) -> bool:
        return False

    def on_late(self) -> None:
        """Never: replies wait for the flush however long it takes, since nothing else tells what became of it."""
