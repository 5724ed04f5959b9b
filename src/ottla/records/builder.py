"""Builds record batches: for the client, the command line and tests.  The broker never builds one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, compress
from ottla.records.header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CONTROL_BIT,
    CRC,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    PRODUCER,
    PRODUCER_AT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from ottla.records.record import Headers, Record
from ottla.records.varint import append_varint, varint_size_bytes

NO_SEQUENCE: Final = -1
NO_PRODUCER_EPOCH: Final = -1


class BatchBuilder:
    """Collects records and makes one batch of them.  Offsets are dense unless a record's delta is given."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._base_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP
        self._last_offset_delta = -1
        self.records_count = 0

    @property
    def size_bytes(self) -> int:
        """The batch's size before compression."""
        return BATCH_OVERHEAD_BYTES + len(self._body)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        offset_delta: int | None = None,
    ) -> None:
        """Add a record.  `offset_delta` leaves a gap, as compaction does; by default it is the next one."""
        delta = self._last_offset_delta + 1 if offset_delta is None else offset_delta
        assert delta > self._last_offset_delta, "offset deltas must rise"
        if self.records_count == 0:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        _append_record(self._body, timestamp_ms - self._base_timestamp_ms, delta, key, value, headers)
        self._last_offset_delta = delta
        self.records_count += 1

    def build(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        log_append_time_ms: int | None = None,
    ) -> bytearray:
        """The batch in wire format; the builder can collect more afterwards."""
        assert self.records_count, "a batch holds at least one record"
        body = self._body if codec is Codec.NONE else compress(codec, self._body, level)
        attributes = int(codec)
        attributes |= TRANSACTIONAL_BIT if is_transactional else 0
        attributes |= CONTROL_BIT if is_control else 0
        attributes |= TIMESTAMP_TYPE_BIT if log_append_time_ms is not None else 0
        batch = bytearray(BATCH_OVERHEAD_BYTES + len(body))
        HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LOG_OVERHEAD_BYTES,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            self._last_offset_delta,
            self._base_timestamp_ms,
            self._max_timestamp_ms if log_append_time_ms is None else log_append_time_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            self.records_count,
        )
        batch[BATCH_OVERHEAD_BYTES:] = body
        CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
        return batch


def build_batch(
    records: Iterable[Record],
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    level: int | None = None,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """One batch of `records` at dense offsets from `base_offset` on; the records' own offsets are not used."""
    builder = BatchBuilder()
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    return builder.build(
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
        log_append_time_ms=log_append_time_ms,
    )


def record_size_bytes_max(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """The most bytes that a record adds to a batch: a producer checks it before it starts the next batch."""
    # Record length, attributes, timestamp delta, offset delta, two field lengths and the headers count at their widest.
    size = 5 + 1 + 10 + 5 + 5 + 5 + 5
    size += (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    for name, content in headers:
        # Four bytes a character is the most that UTF-8 takes.
        size += 10 + 4 * len(name) + (len(content) if content is not None else 0)
    return size


def _append_record(
    out: bytearray, timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    tail = bytearray()
    append_varint(tail, len(headers))
    for name, content in headers:
        _append_bytes(tail, name.encode())
        _append_bytes(tail, content)
    length = 1 + varint_size_bytes(timestamp_delta) + varint_size_bytes(offset_delta)
    length += _bytes_size(key) + _bytes_size(value) + len(tail)
    append_varint(out, length)
    out.append(0)
    append_varint(out, timestamp_delta)
    append_varint(out, offset_delta)
    _append_bytes(out, key)
    _append_bytes(out, value)
    out += tail


def _bytes_size(content: bytes | None) -> int:
    return 1 if content is None else varint_size_bytes(len(content)) + len(content)


def _append_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        append_varint(out, -1)
    else:
        append_varint(out, len(content))
        out += content


def stamp_producer(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write an idempotent producer's id, epoch and sequence into a built batch, and the checksum that covers them."""
    PRODUCER.pack_into(batch, PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
