"""The log of a coordinator: decisions appended to a partition with acks=all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.groups.commands import TransactionalProducer, WriteMarker
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.records.builder import encode_batch
from ottla.records.header import HEADER
from ottla.records.message_set import RecordColumns
from ottla.storage.producers.log_transactions import VerificationGuard


class CoordinatorLog:
    """The `GroupLog` of groups and the `TransactionLog` of transactions: stable here means below the high watermark.

    A batch for each decision, and one parked slot for all of them.
    `on_stable` is called with the high watermark whenever it has passed an append.
    """

    __slots__ = ("_last_end", "_on_failed", "_on_stable", "_partition", "_waits")

    def __init__(
        self, partition: Partition, on_stable: Callable[[int], None], on_failed: Callable[[int], None]
    ) -> None:
        self._partition = partition
        self._on_stable = on_stable
        self._on_failed = on_failed
        self._last_end = 0
        self._waits = False

    @property
    def stable_end(self) -> int:
        return self._partition.high_watermark

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        now_ms: int,
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Append keys and values, None for a tombstone; see `GroupLog.append`.

        A batch in a transaction has base sequence 0 each time, as Apache Kafka's: no repetition of it is recognized.
        """
        count = len(records)
        columns = RecordColumns(
            [now_ms] * count, [key for key, _ in records], [value for _, value in records], [()] * count
        )
        guard: VerificationGuard | None = None
        if producer is None:
            batch = encode_batch(columns)
        else:
            producer_id, producer_epoch, given = producer
            assert given is None or isinstance(given, VerificationGuard)
            guard = given
            batch = encode_batch(
                columns, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0, is_transactional=True
            )
        partition = self._partition
        if len(batch) > partition.max_message_bytes:
            problem = f"a decision's records take {len(batch)} bytes, {partition.max_message_bytes} are allowed"
            raise RequestError(ErrorCode.MESSAGE_TOO_LARGE, problem)
        base_offset, _, _ = partition.append(
            memoryview(batch), HEADER.unpack_from(batch), ACKS_ALL, now_ms, guard, has_sequence=producer is None
        )
        end = base_offset + count
        self.wait_for(end)
        return end

    def append_marker(self, command: WriteMarker, now_ms: int) -> int | None:
        """See `GroupLog.append_marker`."""
        partition = self._partition
        producer_id, producer_epoch, marker, advances_epoch = command
        before_end = partition.log_end_offset
        partition.append_marker(marker, producer_id, producer_epoch, now_ms, advances_epoch=advances_epoch)
        end = partition.log_end_offset
        if end == before_end:
            return None
        self.wait_for(end)
        return end

    def wait_for(self, end_offset: int) -> None:
        """Call `on_stable` when the high watermark has passed `end_offset`, which is not below any append."""
        self._last_end = end_offset
        if not self._waits:
            self._wait()

    def resume(self) -> None:
        """The partition is led again, in the same epoch: appends that it gave up waiting for may become stable."""
        if not self._waits:
            self._wait()

    def _wait(self) -> None:
        """Wait until the last append is below the high watermark: one slot in the queue for all appends of a flush."""
        if self._last_end > self._partition.high_watermark:
            self._waits = True
            self._partition.waiting.park_produce(self._last_end, ACKS_ALL, self, 0)

    # ParkedProduce.

    def release(self, slot: int) -> None:
        self._waits = False
        self._on_stable(self._partition.high_watermark)
        if not self._waits:
            self._wait()

    def fail(self, slot: int, error_code: int) -> None:
        self._waits = False
        self._on_failed(error_code)

    def is_expired(self, now_ms: int) -> bool:
        return False

    def expire(self) -> None:
        """Never called: replies wait for the flush however long it takes; only the flush decides their outcome."""
