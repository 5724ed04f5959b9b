"""Builds record batches: for the client, the command line and tests.  The broker never builds one."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import add
from typing import Final, TypedDict, Unpack

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_PRODUCER_ID
from ottla.records.checksum import batch_crc
from ottla.records.compression import Codec, compress
from ottla.records.header import (
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
from ottla.records.message_set import RecordColumns, record_pieces
from ottla.records.record import Headers, Record

NO_SEQUENCE: Final = -1
NO_PRODUCER_EPOCH: Final = -1
# Record length, attributes, timestamp delta, offset delta, two field lengths and the headers count at their widest.
RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5

_ROOM_FOR_HEADER: Final = bytes(BATCH_OVERHEAD_BYTES)
_BYTES: Final = frozenset({bytes})
# So many messages of a set are looked at together: more would be looked at in vain where a batch becomes full.
_LOOK_RECORDS: Final = 256


class BatchFields(TypedDict, total=False):
    """Properties of a batch besides its records; `encode_batch` has the defaults."""

    level: int | None
    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    log_append_time_ms: int | None


class BatchBuilder:
    """Collects records and makes one batch of them.  Offsets are dense unless a record's delta is given.

    Records are kept by column and encoded together: nothing of Python runs for a single one of a set.
    """

    __slots__ = ("_headers", "_keys", "_offset_deltas", "_timestamps_ms", "_values", "size_bytes")

    def __init__(self) -> None:
        # At most: the batch's size before compression.
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self._timestamps_ms: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers] = []
        # None while they are dense.
        self._offset_deltas: list[int] | None = None

    @property
    def records_count(self) -> int:
        return len(self._values)

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
        size_bytes = RECORD_OVERHEAD_BYTES_MAX
        if value is not None:
            if type(value) is not bytes:
                value = _as_bytes(value)
            size_bytes += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = _as_bytes(key)
            size_bytes += len(key)
        if headers:
            size_bytes += _headers_size_bytes_max(headers)
        if offset_delta is not None or self._offset_deltas is not None:
            self._add_offset_delta(self._next_offset_delta if offset_delta is None else offset_delta)
        self._timestamps_ms.append(timestamp_ms)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)
        self.size_bytes += size_bytes

    def extend(
        self,
        timestamp_ms: int,
        values: Sequence[bytes | None],
        *,
        key: bytes | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers = (),
        start: int = 0,
        size_bytes_max: int | None = None,
    ) -> int:
        """Add a set of messages: as many of `values[start:]` as keep the batch within `size_bytes_max`; their count.

        They have one key, or `keys` has one for each value.
        """
        assert keys is None or (key is None and len(keys) == len(values)), "one key for all, or one for each"
        if key is not None:
            key = _as_bytes(key)
        alike_bytes = RECORD_OVERHEAD_BYTES_MAX + _headers_size_bytes_max(headers) + (0 if key is None else len(key))
        room_bytes = (sys.maxsize if size_bytes_max is None else size_bytes_max) - self.size_bytes
        # All values are checked first: one that is not `bytes` is refused and leaves the batch unchanged.
        added: list[bytes | None] = []
        added_keys: list[bytes | None] = []
        used_bytes, is_full = 0, False
        for at in range(start, len(values), _LOOK_RECORDS):
            part = _all_bytes(values[at : at + _LOOK_RECORDS])
            part_keys = [key] * len(part) if keys is None else _all_bytes(keys[at : at + _LOOK_RECORDS])
            size_bytes = len(part) * alike_bytes + _total_bytes(part) + (0 if keys is None else _total_bytes(part_keys))
            if used_bytes + size_bytes > room_bytes:
                count, size_bytes = _fitting(
                    part, None if keys is None else part_keys, alike_bytes, room_bytes - used_bytes
                )
                part, part_keys, is_full = part[:count], part_keys[:count], True
            added += part
            added_keys += part_keys
            used_bytes += size_bytes
            if is_full:
                break
        self._add(timestamp_ms, added_keys, added, headers)
        self.size_bytes += used_bytes
        return len(added)

    def build(self, codec: Codec = Codec.NONE, **fields: Unpack[BatchFields]) -> bytearray:
        """The batch in wire format; the builder can collect more afterwards."""
        columns = RecordColumns(self._timestamps_ms, self._keys, self._values, self._headers, self._offset_deltas)
        return encode_batch(columns, codec, **fields)

    def _add(self, timestamp_ms: int, keys: list[bytes | None], values: list[bytes | None], headers: Headers) -> None:
        count = len(values)
        if self._offset_deltas is not None:
            self._offset_deltas += range(self._next_offset_delta, self._next_offset_delta + count)
        self._timestamps_ms += [timestamp_ms] * count
        self._keys += keys
        self._values += values
        self._headers += [headers] * count

    @property
    def _next_offset_delta(self) -> int:
        return self._offset_deltas[-1] + 1 if self._offset_deltas else self.records_count

    def _add_offset_delta(self, offset_delta: int) -> None:
        assert offset_delta >= self._next_offset_delta, "offset deltas must rise"
        if self._offset_deltas is None:
            self._offset_deltas = list(range(self.records_count))
        self._offset_deltas.append(offset_delta)


def encode_batch(
    columns: RecordColumns,
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
    has_checksum: bool = True,
) -> bytearray:
    """These records in wire format.  `has_checksum` is False for a batch that `stamp_producer` completes."""
    count = len(columns.values)
    assert count, "a batch holds at least one record"
    pieces = record_pieces(columns)
    if codec is not Codec.NONE:
        pieces = [compress(codec, b"".join(pieces), level)]
    attributes = int(codec)
    attributes |= TRANSACTIONAL_BIT if is_transactional else 0
    attributes |= CONTROL_BIT if is_control else 0
    attributes |= TIMESTAMP_TYPE_BIT if log_append_time_ms is not None else 0
    batch = bytearray().join([_ROOM_FOR_HEADER, *pieces])
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        columns.offset_deltas[-1] if columns.offset_deltas else count - 1,
        columns.timestamps_ms[0],
        max(columns.timestamps_ms) if log_append_time_ms is None else log_append_time_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    if has_checksum:
        CRC.pack_into(batch, CRC_AT, batch_crc(batch))
    return batch


def build_batch(records: Iterable[Record], codec: Codec = Codec.NONE, **fields: Unpack[BatchFields]) -> bytearray:
    """One batch of `records` at dense offsets from `base_offset` on; the records' own offsets are not used."""
    builder = BatchBuilder()
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    return builder.build(codec, **fields)


def record_size_bytes_max(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """The most bytes that a record adds to a batch: a producer checks it before it starts the next batch."""
    size_bytes = RECORD_OVERHEAD_BYTES_MAX
    if key is not None:
        size_bytes += len(key)
    if value is not None:
        size_bytes += len(value)
    return size_bytes + _headers_size_bytes_max(headers)


def _headers_size_bytes_max(headers: Headers) -> int:
    size_bytes = 0
    for name, content in headers:
        # Two lengths; four bytes a character is the most that UTF-8 takes.
        size_bytes += 10 + 4 * len(name) + (0 if content is None else len(content))
    return size_bytes


def _total_bytes(contents: Sequence[bytes | None]) -> int:
    try:
        return sum(map(len, contents))  # type: ignore[arg-type]  # a null raises, and is rare
    except TypeError:
        return sum(_sizes(contents))


def _sizes(contents: Iterable[bytes | None]) -> Iterator[int]:
    return (0 if content is None else len(content) for content in contents)


def _fitting(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, alike_bytes: int, room_bytes: int
) -> tuple[int, int]:
    """How many of the first records fit, and their bytes."""
    sizes = _sizes(values) if keys is None else map(add, _sizes(values), _sizes(keys))
    ends = list(accumulate(size + alike_bytes for size in sizes))
    count = bisect_right(ends, room_bytes)
    return count, ends[count - 1] if count else 0


def _all_bytes(contents: Sequence[bytes | None]) -> Sequence[bytes | None]:
    """The contents themselves when all are `bytes`, which is looked at without a step of Python for each."""
    if set(map(type, contents)) <= _BYTES:
        return contents
    return [None if content is None else _as_bytes(content) for content in contents]


def _as_bytes(content: object) -> bytes:
    """What stays as it is until the batch is built: a buffer that can change is copied."""
    if isinstance(content, bytes):
        return content
    if isinstance(content, bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"keys and values are bytes or None, this one is {type(content).__name__}: serialize it first")


def stamp_producer(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write an idempotent producer's id, epoch and sequence into a built batch, and the checksum that covers them."""
    PRODUCER.pack_into(batch, PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    CRC.pack_into(batch, CRC_AT, batch_crc(batch))
