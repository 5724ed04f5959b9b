"""What is refused of a client's batch, and by which code."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from ottla.broker.producing.batch_appender import batch_error
from ottla.model.error_code import ErrorCode
from ottla.records.builder import BatchBuilder
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.header import ATTRIBUTES_AT, CRC, CRC_AT, HEADER


def good_batch(**options: object) -> bytearray:
    builder = BatchBuilder()
    for n in range(3):
        builder.append(1_000 + n, b"key", b"value %d" % n)
    return builder.build(**options)  # type: ignore[arg-type]  # passed on as they are


def error_of(batch: bytearray, version: int = 7) -> ErrorCode:
    return ErrorCode(batch_error(memoryview(batch), HEADER.unpack_from(batch), version))


def with_right_crc(batch: bytearray) -> bytearray:
    CRC.pack_into(batch, CRC_AT, crc32c(bytes(batch[ATTRIBUTES_AT:])))
    return batch


def put(form: str, position: int, value: int) -> Callable[[bytearray], None]:
    return lambda batch: struct.pack_into(form, batch, position, value)


@pytest.mark.parametrize("codec", list(Codec))
def test_whole_batch_is_taken_with_every_codec(codec: Codec) -> None:
    assert error_of(good_batch(codec=codec)) is ErrorCode.NONE


def test_idempotent_batch_is_taken() -> None:
    batch = good_batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert error_of(batch) is ErrorCode.NONE


@pytest.mark.parametrize("position", [17, 21, 30, 61, -1])
def test_batch_with_a_flipped_bit_is_corrupt(position: int) -> None:
    batch = good_batch()
    batch[position] ^= 0x04
    assert error_of(batch) is ErrorCode.CORRUPT_MESSAGE


def test_cut_batch_is_corrupt() -> None:
    assert error_of(good_batch()[:-1]) is ErrorCode.CORRUPT_MESSAGE


def test_two_batches_for_one_partition_are_refused() -> None:
    assert error_of(good_batch() + good_batch()) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_another_message_format_is_refused(magic: int) -> None:
    batch = good_batch()
    struct.pack_into(">b", batch, 16, magic)
    assert error_of(batch) is ErrorCode.INVALID_RECORD


LYING_HEADS = {
    "count above its delta": put(">i", 57, 4),
    "count below its delta": put(">i", 57, 2),
    "count of nothing": put(">i", 57, 0),
    "negative count": put(">i", 57, -1),
    "delta above its count": put(">i", 23, 3),
    "control batch": put(">h", 21, 0x20),
    "delete horizon": put(">h", 21, 0x40),
    "unknown attribute": put(">h", 21, 0x100),
    "producer without epoch": put(">q", 43, 5),
}


@pytest.mark.parametrize("lie", LYING_HEADS.values(), ids=LYING_HEADS.keys())
def test_batch_with_an_inconsistent_head_is_refused_although_its_crc_is_right(lie: Callable[[bytearray], None]) -> None:
    batch = good_batch()
    lie(batch)
    assert error_of(with_right_crc(batch)) is ErrorCode.INVALID_RECORD


def test_batch_that_claims_more_records_than_fit_is_refused() -> None:
    batch = good_batch()
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    struct.pack_into(">i", batch, 23, 2**31 - 2)
    assert error_of(with_right_crc(batch)) is ErrorCode.INVALID_RECORD


def test_unknown_codec_is_refused() -> None:
    batch = good_batch()
    struct.pack_into(">h", batch, 21, 5)
    assert error_of(with_right_crc(batch)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_needs_produce_version_7() -> None:
    batch = good_batch(codec=Codec.ZSTD)
    assert error_of(batch, version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert error_of(batch, version=7) is ErrorCode.NONE


def test_broker_time_is_not_taken_from_a_client() -> None:
    assert error_of(good_batch(log_append_time_ms=5)) is ErrorCode.INVALID_TIMESTAMP


def test_batch_of_a_transaction_needs_a_producer() -> None:
    assert error_of(good_batch(is_transactional=True)) is ErrorCode.INVALID_RECORD
    batch = good_batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert error_of(batch) is ErrorCode.NONE
