"""What a client's record batch must satisfy before it is appended: the head and the checksum, nothing per record.

Compressed batches are not opened (docs/decisions/0001); the bounds of other records are looked at afterwards
(records/record_bounds.py).  Checks run from cheap to expensive, sizes first.
"""

from __future__ import annotations

from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.records.checksum import crc32c
from ottla.records.header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)

# length, attributes, timestamp delta, offset delta, key length, value length, headers count: a byte each.
RECORD_BYTES_MIN: Final = 7
_CODEC_MAX: Final = 4
_CODEC_ZSTD: Final = 4
# Codec, timestamp type and transactional: what a client may set.  The control bit and the delete horizon are the
# broker's own.
_CLIENT_ATTRIBUTES: Final = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT
_ZSTD_PRODUCE_VERSION_MIN: Final = 7

_OK: Final = int(ErrorCode.NONE)
_CORRUPT: Final = int(ErrorCode.CORRUPT_MESSAGE)
_INVALID: Final = int(ErrorCode.INVALID_RECORD)
_UNSUPPORTED_CODEC: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_TIMESTAMP: Final = int(ErrorCode.INVALID_TIMESTAMP)
_TXN_STATE: Final = int(ErrorCode.INVALID_TXN_STATE)


def batch_error(batch: memoryview, header: tuple[int, ...], produce_version: int) -> int:
    """The protocol's error code for what is wrong with a batch, 0 when it may be appended.

    `header` is `HEADER.unpack_from(batch)`; the batch has at least `BATCH_OVERHEAD_BYTES`.
    """
    size_bytes = len(batch)
    if header[3] != MAGIC or header[1] + LOG_OVERHEAD_BYTES != size_bytes:
        # A longer batch_length is a cut batch, a shorter one means that a second batch follows: one is allowed.
        return _CORRUPT if header[3] == MAGIC and header[1] + LOG_OVERHEAD_BYTES > size_bytes else _INVALID
    if crc32c(batch[ATTRIBUTES_AT:]) != header[4]:
        return _CORRUPT
    attributes = header[5]
    count = header[12]
    if count <= 0 or header[6] != count - 1 or header[0] != 0:
        # As in Apache Kafka a client counts its records from 0.
        return _INVALID
    records_bytes = size_bytes - BATCH_OVERHEAD_BYTES
    if not attributes & CODEC_MASK and count * RECORD_BYTES_MIN > records_bytes:
        return _INVALID
    # Small batches mostly have none: no compression, the producer's own time, no transaction.
    if attributes and (error := _attributes_error(attributes, records_bytes, produce_version)):
        return error
    producer_id = header[9]
    if producer_id == -1:
        return _OK
    # An idempotent batch has all three; with only some of them it would bypass the sequence checks.
    return _OK if producer_id >= 0 and header[10] >= 0 and header[11] >= 0 else _INVALID


def _attributes_error(attributes: int, records_bytes: int, produce_version: int) -> int:
    codec = attributes & CODEC_MASK
    if codec:
        if codec > _CODEC_MAX:
            return _UNSUPPORTED_CODEC
        if records_bytes == 0:
            return _INVALID
        if codec == _CODEC_ZSTD and produce_version < _ZSTD_PRODUCE_VERSION_MIN:
            return _UNSUPPORTED_CODEC
    if attributes & ~_CLIENT_ATTRIBUTES:
        # Control batches are written by brokers only: a client's marker could end another producer's transaction.
        return _INVALID
    if attributes & TIMESTAMP_TYPE_BIT:
        return _TIMESTAMP
    return _TXN_STATE if attributes & TRANSACTIONAL_BIT else _OK
