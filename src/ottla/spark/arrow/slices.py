"""Batches in groups that are decoded at once, with all their records uncompressed in one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.client.wire.reused_memory import ReusedMemory
from ottla.model.errors import WireError
from ottla.model.limits import MIB
from ottla.records.compression import Codec, decompress, decompress_into
from ottla.records.header import BatchHeader
from ottla.records.record import DECOMPRESSED_BYTES_MAX
from ottla.spark.arrow.batch_spans import BatchScanner, BatchSpan
from ottla.spark.arrow.record_chain import RecordArea
from ottla.spark.errors import CorruptRecords

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
