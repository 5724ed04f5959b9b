"""Single records: decodes a batch.  The broker reads only its own groups' records (`key_values`).

A record (KIP-98): length varint, attributes int8, timestamp delta varlong, offset delta varint, key and value (length
varint, -1 is null), headers (count varint, then key and value each).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from ottla.records.checksum import has_valid_crc
from ottla.records.compression import Codec, decompress
from ottla.records.errors import CorruptBatch
from ottla.records.header import (
    BATCH_OVERHEAD_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
)
from ottla.records.varint import read_varint, read_varlong

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

DECOMPRESSED_BYTES_MAX: Final = 128 << 20
# Length, attributes, two deltas, key length, value length, headers count: a byte each.
RECORD_BYTES_MIN: Final = 7
INT64_MIN: Final = -(1 << 63)
INT64_LIMIT: Final = 1 << 63
_HEADER_BYTES_MIN: Final = 2


class Record(NamedTuple):
    """One record.  A null key or value is None, an empty one is b""."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def split_batches(data: memoryview) -> Iterator[memoryview]:
    """The whole batches at the start of `data`; a truncated last one is dropped, as brokers cut responses at a
    size.

    Raises CorruptBatch for an impossible length.  Checksums are not verified.
    """
    position = 0
    while len(data) - position >= LOG_OVERHEAD_BYTES:
        size = first_batch_size_bytes(data[position:])
        if size > len(data) - position:
            return
        yield data[position : position + size]
        position += size


def first_batch_size_bytes(data: memoryview) -> int:
    """The size of the first batch in `data`, whole or cut off; at least 12 bytes of it must be present."""
    length = int.from_bytes(data[LENGTH_AT:LOG_OVERHEAD_BYTES], "big", signed=True)
    if length < BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES:
        raise CorruptBatch(f"a batch length of {length} bytes is less than a batch's head")
    if len(data) > MAGIC_AT and data[MAGIC_AT] != MAGIC:
        raise CorruptBatch(f"a batch of format {data[MAGIC_AT]}; only format {MAGIC} is read")
    return LOG_OVERHEAD_BYTES + length


def check_batch(batch: memoryview, *, check_crc: bool = True) -> BatchHeader:
    """The header of one whole batch, after every check that needs no decompression."""
    if len(batch) < BATCH_OVERHEAD_BYTES:
        raise CorruptBatch(f"a batch of {len(batch)} bytes is cut off")
    header = read_header(batch)
    if header.magic != MAGIC:
        raise CorruptBatch(f"a batch of format {header.magic}; only format {MAGIC} is read")
    if header.size_bytes != len(batch):
        raise CorruptBatch(f"a batch claims {header.size_bytes} bytes and has {len(batch)}")
    if header.base_offset < 0 or header.base_offset + header.last_offset_delta >= INT64_LIMIT:
        raise CorruptBatch(f"the batch's offsets {header.base_offset} + {header.last_offset_delta} cannot be")
    # Compaction removes records and keeps the deltas, so there may be fewer records than deltas, never more.
    if not 0 <= header.records_count <= header.last_offset_delta + 1:
        raise CorruptBatch(f"{header.records_count} records with last offset delta {header.last_offset_delta}")
    if header.codec > Codec.ZSTD:
        raise CorruptBatch(f"unknown compression codec {header.codec}")
    if check_crc and not has_valid_crc(batch):
        raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
    return header


def open_batch(batch: memoryview, *, check_crc: bool, size_bytes_max: int) -> tuple[BatchHeader, bytes]:
    """The header of one whole batch and its uncompressed records, which may be as many as the header says."""
    header = check_batch(batch, check_crc=check_crc)
    data = decompress(Codec(header.codec), batch[BATCH_OVERHEAD_BYTES:], size_bytes_max)
    if header.records_count * RECORD_BYTES_MIN > len(data):
        raise CorruptBatch(f"{header.records_count} records cannot be in {len(data)} bytes")
    return header, data


def decode_batch(
    batch: memoryview, *, check_crc: bool = True, size_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The records of one whole batch, control records too (see `BatchHeader.is_control`).

    Any input results in a list or a WireError; memory is bounded by `size_bytes_max` and the records' own size.
    `record_run.read_runs` gives the same, several times as fast.
    """
    header, data = open_batch(batch, check_crc=check_crc, size_bytes_max=size_bytes_max)
    records: list[Record] = []
    position = 0
    for _ in range(header.records_count):
        record, position = read_record(data, position, header)
        records.append(record)
    check_end(data, position)
    return records


def check_end(data: bytes, position: int) -> None:
    """Raises CorruptBatch unless the last record ends where the batch does."""
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last record")


def read_record(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    """The record at `position` and the position after it."""
    offset, timestamp_ms, position, end = read_record_head(data, position, header)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    headers, position = read_headers(data, position, end)
    if position != end:
        raise CorruptBatch(f"the record at offset {offset} does not end where its length says")
    return Record(offset, timestamp_ms, key, value, headers), end


def read_record_head(data: bytes, position: int, header: BatchHeader) -> tuple[int, int, int, int]:
    """(offset, timestamp in ms, position of the key, position after the record) of the record at `position`."""
    length, start = read_varint(data, position)
    end = start + length
    if length < RECORD_BYTES_MIN - 1 or end > len(data):
        raise CorruptBatch(f"a record of {length} bytes, {len(data) - start} are left")
    timestamp_delta, position = read_varlong(data, start + 1)
    offset_delta, position = read_varint(data, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise CorruptBatch(f"offset delta {offset_delta} is outside 0 to {header.last_offset_delta}")
    timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms + timestamp_delta
    if not INT64_MIN <= timestamp_ms < INT64_LIMIT:
        raise CorruptBatch(f"timestamp {timestamp_ms} does not fit its type")
    return header.base_offset + offset_delta, timestamp_ms, position, end


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptBatch(f"a field of {length} bytes, {end - position} are left in the record")
    return data[position : position + length], position + length


def read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    """The headers of a record that ends at `end`, from their count on, and the position after them."""
    count, position = read_varint(data, position)
    if count == 0:
        return (), position
    if not 0 <= count <= (end - position) // _HEADER_BYTES_MIN:
        raise CorruptBatch(f"{count} headers cannot be in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        if key is None:
            raise CorruptBatch("a header has no key")
        value, position = _read_bytes(data, position, end)
        # Java clients write UTF-8, C clients write any bytes: a reader must accept both.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


# Keys and values alone, lazily: how the broker reads records that it wrote itself.
#
# Three times as fast as `record.decode_batch`, since nothing else is decoded; a generator, so that a reader may pause.


def key_values(batch: memoryview) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of each record of one whole batch, nothing of a control batch.

    Raises `CorruptBatch` where the bytes are invalid, which may be after some records.
    """
    header = check_batch(batch)
    if header.is_control:
        return
    data = decompress(Codec(header.codec), batch[BATCH_OVERHEAD_BYTES:], DECOMPRESSED_BYTES_MAX)
    size_bytes = len(data)
    position = 0
    for _ in range(header.records_count):
        length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > size_bytes:
            raise CorruptBatch(f"a record of {length} bytes, {size_bytes - position} are left")
        _, position = read_varlong(data, position + 1)
        _, position = read_varint(data, position)
        key, position = _bytes_at(data, position, end)
        value, _ = _bytes_at(data, position, end)
        yield key, value
        position = end
    if position != size_bytes:
        raise CorruptBatch(f"{size_bytes - position} bytes follow the last record")


def _bytes_at(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    after = position + length
    if after > end:
        raise CorruptBatch(f"a field of {length} bytes, {end - position} are left in the record")
    return data[position:after], after
