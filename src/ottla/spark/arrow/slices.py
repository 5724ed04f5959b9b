"""Batches in groups that are decoded at once, with all their records uncompressed in one buffer.

Everything is checked first that needs no look at the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.client.fetching.fetch_requests import AbortedBatches
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.model.errors import WireError
from ottla.model.limits import MIB
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, decompress, decompress_into
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
from ottla.spark.arrow.record_fields import RECORD_BYTES_MIN, RecordArea
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


# Decoding is fastest on data that fits the processor's cache (measured: 4-8 MiB).
SLICE_BYTES: Final = 8 * MIB
# A slice is full before its buffer is, so that the next batch has room, too.
_ROOM_BYTES_MAX: Final = 2 * SLICE_BYTES
_GROWTH_GUESS: Final = 16


class Slice(NamedTuple):
    """`buffer` is valid until the next slice is requested."""

    buffer: memoryview
    headers: list[BatchHeader]
    areas: list[RecordArea]


class Slicer:
    """Cuts fetched batches into slices of about `SLICE_BYTES`.

    Uncompressed records stay where they are.  Where one batch is compressed, all are written one after another into a
    buffer of `memory`.
    """

    def __init__(self, scanner: BatchScanner, memory: ReusedMemory) -> None:
        self._scanner = scanner
        self._memory = memory

    def slices(self, data: memoryview, spans: list[BatchSpan]) -> Iterator[Slice]:
        """Raises `CorruptRecords` for a batch that cannot be decompressed or claims too many records."""
        if any(span.header.codec for span in spans):
            return self._decompressed(data, spans)
        return self._in_place(data, spans)

    def _in_place(self, data: memoryview, spans: list[BatchSpan]) -> Iterator[Slice]:
        first = 0
        for index, span in enumerate(spans):
            self._scanner.check_claim(span.header, span.end - span.records_position)
            origin = spans[first].position
            if span.end - origin >= SLICE_BYTES or index == len(spans) - 1:
                group = spans[first : index + 1]
                areas = [
                    RecordArea(each.records_position - origin, each.end - origin, each.header.records_count)
                    for each in group
                ]
                yield Slice(data[origin : span.end], [each.header for each in group], areas)
                first = index + 1

    def _decompressed(self, data: memoryview, spans: list[BatchSpan]) -> Iterator[Slice]:
        room = self._room(sum(span.header.size_bytes for span in spans))
        headers: list[BatchHeader] = []
        areas: list[RecordArea] = []
        end = 0
        for span in spans:
            records = data[span.records_position : span.end]
            written = self._write(span, records, room[end:])
            if written is None and headers:
                yield Slice(room[:end], headers, areas)
                headers, areas, end = [], [], 0
                written = self._write(span, records, room)
            if written is None:
                yield self._alone(span, records)
                continue
            headers.append(span.header)
            areas.append(RecordArea(end, end + written, span.header.records_count))
            end += written
            if end >= SLICE_BYTES:
                yield Slice(room[:end], headers, areas)
                headers, areas, end = [], [], 0
        if headers:
            yield Slice(room[:end], headers, areas)

    def _room(self, compressed_bytes: int) -> memoryview:
        size_bytes = min(_ROOM_BYTES_MAX, _GROWTH_GUESS * compressed_bytes)
        lent = self._memory.lend(size_bytes)
        return memoryview(bytearray(size_bytes)) if lent is None else lent

    def _write(self, span: BatchSpan, records: memoryview, target: memoryview) -> int | None:
        """The size of the records at the beginning of `target`; None when they do not fit."""
        codec = Codec(span.header.codec)
        if codec is Codec.NONE:
            written: int | None = len(records) if len(records) <= len(target) else None
            if written is not None:
                target[:written] = records
        else:
            try:
                written = decompress_into(codec, records, target)
            except WireError as error:
                raise self._cannot_decompress(span, error) from error
        if written is not None:
            self._scanner.check_claim(span.header, written)
        return written

    def _alone(self, span: BatchSpan, records: memoryview) -> Slice:
        """A batch that is larger than the room, in memory of its own."""
        try:
            whole = decompress(Codec(span.header.codec), records, DECOMPRESSED_BYTES_MAX)
        except WireError as error:
            raise self._cannot_decompress(span, error) from error
        self._scanner.check_claim(span.header, len(whole))
        return Slice(memoryview(whole), [span.header], [RecordArea(0, len(whole), span.header.records_count)])

    def _cannot_decompress(self, span: BatchSpan, error: WireError) -> CorruptRecords:
        return self._scanner.corrupt(span.header.base_offset, f"a batch cannot be decompressed: {error}")

    def corrupt_record(self, batch: Slice, index: int, problem: str) -> CorruptRecords:
        """The error for the record with this index in the slice: it names the batch that holds it."""
        for header in batch.headers:
            if index < header.records_count:
                return self._scanner.corrupt(header.base_offset, f"{problem} (record {index} of the batch)")
            index -= header.records_count
        raise AssertionError("a record index beyond the slice")
