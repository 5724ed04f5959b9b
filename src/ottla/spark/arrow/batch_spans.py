"""Batches inside fetched bytes: checks everything that needs no look at their records."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.client.fetching.aborted_batches import AbortedBatches
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.errors import CorruptBatch
from ottla.records.header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
)
from ottla.records.record import check_batch, first_batch_size_bytes
from ottla.spark.arrow.record_fields import RECORD_BYTES_MIN
from ottla.spark.errors import CorruptRecords

OFFSET_LIMIT: Final = 2**63 - 1
# Microseconds must fit 64 bits.
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000


class BatchSpan(NamedTuple):
    header: BatchHeader
    position: int

    @property
    def records_position(self) -> int:
        return self.position + BATCH_OVERHEAD_BYTES

    @property
    def end(self) -> int:
        return self.position + self.header.size_bytes


class BatchScanner:
    """Reads the batches of one partition, which its errors name."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition

    def spans(
        self, data: memoryview, first_offset: int, offset_limit: int, aborted: AbortedBatches | None = None
    ) -> list[BatchSpan]:
        """Every data batch with an offset in `[first_offset, offset_limit)`; control and empty batches are skipped.

        `aborted` leaves out batches of aborted transactions.
        Raises `CorruptRecords` unless the bytes are whole, sound batches in offset order.
        """
        spans = []
        position = next_offset = 0
        while position < len(data):
            header = self._head(data, position, next_offset)
            span = BatchSpan(header, position)
            position = span.end
            next_offset = header.next_offset
            if header.base_offset >= offset_limit:
                break
            if aborted is not None and aborted.is_aborted(header, data[span.position : position]):
                continue
            if next_offset <= first_offset or header.is_control:
                continue
            if header.records_count == 0:
                # Compaction may leave only the header of a batch.
                if header.size_bytes != BATCH_OVERHEAD_BYTES:
                    raise self.corrupt(header.base_offset, "bytes follow the header of a batch without records")
                continue
            if crc32c(data[span.position + ATTRIBUTES_AT : position]) != header.crc:
                raise self.corrupt(header.base_offset, "the batch's checksum is wrong")
            spans.append(span)
        return spans

    def _head(self, data: memoryview, position: int, next_offset: int) -> BatchHeader:
        """The header at `position`, after every check that needs neither the records nor their checksum."""
        left = len(data) - position
        if left < BATCH_OVERHEAD_BYTES:
            raise self.corrupt(next_offset, f"{left} bytes follow the last whole batch")
        header = BatchHeader._make(HEADER.unpack_from(data, position))
        # The same rules as `check_batch`, at a third of its cost: batches may hold only a few records.
        is_sound = (
            header.magic == MAGIC
            and BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES <= header.batch_length <= left - LOG_OVERHEAD_BYTES
            and next_offset <= header.base_offset < OFFSET_LIMIT - header.last_offset_delta
            and 0 <= header.records_count <= header.last_offset_delta + 1
            and header.attributes & CODEC_MASK <= Codec.ZSTD
        )
        if not is_sound:
            raise self._unsound(data, position, next_offset)
        return header

    def _unsound(self, data: memoryview, position: int, next_offset: int) -> CorruptRecords:
        """The exact fault of a header."""
        left = len(data) - position
        try:
            size = first_batch_size_bytes(data[position:])
            if size > left:
                raise CorruptBatch(f"a batch of {size} bytes, {left} are left")
            header = check_batch(data[position : position + size], check_crc=False)
        except CorruptBatch as error:
            return self.corrupt(next_offset, str(error))
        return self.corrupt(header.base_offset, f"a batch's offsets do not follow {next_offset - 1}")

    def check_claim(self, header: BatchHeader, size_bytes: int) -> None:
        """Raises `CorruptRecords` when so many bytes cannot hold the records that the header claims."""
        if header.records_count * RECORD_BYTES_MIN > size_bytes:
            raise self.corrupt(
                header.base_offset, f"a batch claims {header.records_count} records in {size_bytes} bytes"
            )

    def corrupt(self, offset: int, problem: str) -> CorruptRecords:
        return CorruptRecords(self._topic, self._partition, offset, problem)
