"""Batches inside fetched bytes: checks their headers, decompresses their records into one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.client.aborted_batches import AbortedBatches
from ottla.model.errors import WireError
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, decompress
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
from ottla.records.record import DECOMPRESSED_BYTES_MAX, check_batch, first_batch_size_bytes
from ottla.spark.arrow.record_chain import RecordArea
from ottla.spark.arrow.record_fields import RECORD_BYTES_MIN
from ottla.spark.errors import CorruptRecords

# Decoding is fastest on data that fits the processor's cache (measured: 4-8 MiB).
SLICE_BYTES: Final = 8 * 1024 * 1024
OFFSET_LIMIT: Final = 2**63 - 1
# Microseconds must fit 64 bits.
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000


class BatchSpan(NamedTuple):
    header: BatchHeader
    position: int

    @property
    def end(self) -> int:
        return self.position + self.header.size_bytes


class Slice(NamedTuple):
    """Some batches with all their records uncompressed in `buffer`."""

    buffer: memoryview
    headers: list[BatchHeader]
    areas: list[RecordArea]


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
                    raise self._corrupt(header.base_offset, "bytes follow the header of a batch without records")
                continue
            if crc32c(data[span.position + ATTRIBUTES_AT : position]) != header.crc:
                raise self._corrupt(header.base_offset, "the batch's checksum is wrong")
            spans.append(span)
        return spans

    def _head(self, data: memoryview, position: int, next_offset: int) -> BatchHeader:
        """The header at `position`, after every check that needs neither the records nor their checksum."""
        left = len(data) - position
        if left < BATCH_OVERHEAD_BYTES:
            raise self._corrupt(next_offset, f"{left} bytes follow the last whole batch")
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
            return self._corrupt(next_offset, str(error))
        return self._corrupt(header.base_offset, f"a batch's offsets do not follow {next_offset - 1}")

    def slices(self, data: memoryview, spans: list[BatchSpan]) -> Iterator[Slice]:
        """The batches in groups of about `SLICE_BYTES`; uncompressed records are not copied."""
        group: list[BatchSpan] = []
        parts: list[bytes | memoryview] = []
        size_bytes = 0
        for span in spans:
            part = self._records_of(data, span)
            group.append(span)
            parts.append(part)
            size_bytes += len(part)
            if size_bytes >= SLICE_BYTES:
                yield self._slice(data, group, parts)
                group, parts, size_bytes = [], [], 0
        if group:
            yield self._slice(data, group, parts)

    def _records_of(self, data: memoryview, span: BatchSpan) -> bytes | memoryview:
        records = data[span.position + BATCH_OVERHEAD_BYTES : span.end]
        header = span.header
        part: bytes | memoryview = records
        if header.codec:
            try:
                part = decompress(Codec(header.codec), records, DECOMPRESSED_BYTES_MAX)
            except WireError as error:
                raise self._corrupt(header.base_offset, f"a batch cannot be decompressed: {error}") from error
        if header.records_count * RECORD_BYTES_MIN > len(part):
            raise self._corrupt(
                header.base_offset, f"a batch claims {header.records_count} records in {len(part)} bytes"
            )
        return part

    def _slice(self, data: memoryview, group: list[BatchSpan], parts: list[bytes | memoryview]) -> Slice:
        headers = [span.header for span in group]
        if any(header.codec for header in headers):
            buffer = memoryview(b"".join(parts))
            positions = [0]
            for part in parts:
                positions.append(positions[-1] + len(part))
        else:
            origin = group[0].position
            buffer = data[origin : group[-1].end]
            positions = [span.position - origin + BATCH_OVERHEAD_BYTES for span in group]
        areas = [
            RecordArea(position, position + len(part), header.records_count)
            for position, part, header in zip(positions, parts, headers, strict=False)
        ]
        return Slice(buffer, headers, areas)

    def corrupt_record(self, batch: Slice, index: int, problem: str) -> CorruptRecords:
        """The error for the record with this index in the slice: it names the batch that holds it."""
        for header in batch.headers:
            if index < header.records_count:
                return self._corrupt(header.base_offset, f"{problem} (record {index} of the batch)")
            index -= header.records_count
        raise AssertionError("a record index beyond the slice")

    def _corrupt(self, offset: int, problem: str) -> CorruptRecords:
        return CorruptRecords(self._topic, self._partition, offset, problem)
