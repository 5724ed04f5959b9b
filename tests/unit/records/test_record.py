from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.records.builder import BatchBuilder, build_batch, record_size_bytes_max
from ottla.records.checksum import crc32c, has_valid_crc
from ottla.records.compression import Codec
from ottla.records.errors import CorruptBatch, CorruptCompression, DecompressedTooLarge
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, CRC, CRC_AT, HEADER, read_header
from ottla.records.record import Record, decode_batch, split_batches
from tests.property.property_settings import examples_max

BYTES_OR_NULL = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(-1, (1 << 62)),
        key=BYTES_OR_NULL,
        value=BYTES_OR_NULL,
        headers=st.lists(st.tuples(st.text(max_size=8), BYTES_OR_NULL), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
ONE = Record(0, 1000, b"key", b"value", (("h", b"x"),))


def resealed(batch: bytearray) -> memoryview:
    """The batch with a right checksum: a hostile sender computes one too."""
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return memoryview(batch)


def plain_batch(
    body: bytes, *, count: int = 1, last_offset_delta: int | None = None, attributes: int = 0
) -> memoryview:
    batch = bytearray(BATCH_OVERHEAD_BYTES) + body
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    HEADER.pack_into(batch, 0, 0, len(batch) - 12, -1, 2, 0, attributes, delta, 0, 0, -1, -1, -1, count)
    return resealed(batch)


@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 1 << 40))
def test_decode_batch_gives_back_the_records_that_build_batch_took(
    records: list[Record], codec: Codec, base_offset: int
) -> None:
    batch = build_batch(records, codec, producer_id=7, producer_epoch=3, base_sequence=12, base_offset=base_offset)
    expected = [record._replace(offset=base_offset + delta) for delta, record in enumerate(records)]
    assert decode_batch(memoryview(batch)) == expected
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert has_valid_crc(memoryview(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 12)
    assert (header.records_count, header.last_offset) == (len(records), base_offset + len(records) - 1)
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)


@given(RECORDS)
def test_builder_stays_below_the_size_that_it_foretells(records: list[Record]) -> None:
    builder = BatchBuilder()
    size = builder.size_bytes
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        size += record_size_bytes_max(record.key, record.value, record.headers)
    assert len(builder.build()) <= builder.size_bytes <= size


def test_builder_leaves_gaps_as_compaction_does() -> None:
    builder = BatchBuilder()
    builder.append(5, b"a", None, offset_delta=3)
    builder.append(4, b"b", None, offset_delta=9)
    records = decode_batch(memoryview(builder.build(base_offset=100)))
    assert [record.offset for record in records] == [103, 109]
    assert [record.timestamp_ms for record in records] == [5, 4]


def test_decode_batch_gives_every_record_the_append_time_of_its_batch() -> None:
    batch = build_batch([ONE, ONE._replace(timestamp_ms=2000)], log_append_time_ms=5000)
    assert [record.timestamp_ms for record in decode_batch(memoryview(batch))] == [5000, 5000]


def test_decode_batch_reads_header_names_that_are_not_utf8() -> None:
    body = bytes([20, 0, 0, 0, 1, 1, 2, 4, 0xFF, 0x41, 1])
    (record,) = decode_batch(plain_batch(body))
    assert record.headers == (("�A", None),)


def test_split_batches_drops_a_cut_last_batch() -> None:
    one, two = build_batch([ONE]), build_batch([ONE, ONE], base_offset=1)
    data = memoryview(bytes(one + two))
    for cut in range(len(data) + 1):
        batches = [bytes(batch) for batch in split_batches(data[:cut])]
        assert batches == [one, two][: (cut >= len(one)) + (cut >= len(one) + len(two))]


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_split_batches_refuses_a_length_that_no_batch_has(length: int) -> None:
    with pytest.raises(CorruptBatch, match="length"):
        list(split_batches(memoryview(struct.pack(">qi", 0, length) + bytes(100))))


def test_split_batches_refuses_the_old_formats() -> None:
    batch = build_batch([ONE])
    batch[16] = 1
    with pytest.raises(CorruptBatch, match="format 1"):
        list(split_batches(memoryview(batch)))


def test_decode_batch_refuses_a_wrong_checksum_unless_the_check_is_off() -> None:
    batch = build_batch([ONE])
    batch[CRC_AT] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        decode_batch(memoryview(batch))
    assert decode_batch(memoryview(batch), check_crc=False) == [ONE]


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (plain_batch(b"", count=2**31 - 1), "records cannot be in"),
        (plain_batch(b"", count=-1), "-1 records"),
        (plain_batch(b"\x0c\x00\x00\x00\x01\x01\x00", count=1, last_offset_delta=-1), "1 records with last"),
        (plain_batch(b"\x0c\x00\x00\x00\x01\x01\x00" * 2, count=1), "follow the last record"),
        (plain_batch(b"\x0a\x00\x00\x00\x01\x01\x00"), "a record of 5 bytes"),
        (plain_batch(b"\x0b\x00\x00\x00\x01\x01\x00"), "a record of -6 bytes"),
        (plain_batch(b"\x0e\x00\x00\x00\x01\x01\x00"), "a record of 7 bytes"),
        (plain_batch(b"\x0e\x00\x00\x00\x01\x01\x00\x00"), "does not end"),
        (plain_batch(b"\x0c\x00\x00\x02\x01\x01\x00"), "offset delta 1"),
        (plain_batch(b"\x0c\x00\x00\x01\x01\x01\x00"), "offset delta -1"),
        (plain_batch(b"\x0c\x00\x00\x00\x03\x01\x00"), "a field of -2 bytes"),
        (plain_batch(b"\x0c\x00\x00\x00\x0a\x01\x00"), "a field of 5 bytes"),
        (plain_batch(b"\x0c\x00\x00\x00\x01\x01\x02"), "1 headers cannot be"),
        (plain_batch(b"\x0c\x00\x00\x00\x01\x01\x01"), "-1 headers cannot be"),
        (plain_batch(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01"), "a header has no key"),
        (plain_batch(b"\x0c\x00\x80\x80\x80\x80\x80"), "cut off"),
        (plain_batch(b"1234567", attributes=5), "codec 5"),
    ],
)
def test_decode_batch_refuses_what_cannot_be(batch: memoryview, what: str) -> None:
    with pytest.raises(CorruptBatch, match=what):
        decode_batch(batch)


def test_decode_batch_refuses_sizes_that_do_not_agree() -> None:
    batch = build_batch([ONE])
    for wrong in (memoryview(batch)[:-1], memoryview(batch + b"x"), memoryview(batch)[:60]):
        with pytest.raises(CorruptBatch):
            decode_batch(wrong)


def test_decode_batch_refuses_compression_that_is_none_and_bombs() -> None:
    with pytest.raises(CorruptCompression):
        decode_batch(plain_batch(b"\x0c\x00\x00\x00\x01\x01\x00", attributes=Codec.ZSTD))
    bomb = build_batch([ONE._replace(value=bytes(1 << 20))], Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        decode_batch(memoryview(bomb), size_bytes_max=1 << 16)


@given(st.binary(max_size=300), st.integers(0, 5), st.integers(-2, 40), st.integers(-2, 40))
def test_decode_batch_meets_any_bytes_with_a_wire_error_only(
    body: bytes, codec: int, count: int, last_offset_delta: int
) -> None:
    batch = plain_batch(body, count=count, last_offset_delta=last_offset_delta, attributes=codec)
    with suppress(WireError):
        decode_batch(batch, size_bytes_max=1 << 16)


@settings(max_examples=examples_max(300))
@given(RECORDS, st.sampled_from(list(Codec)), st.data())
def test_decode_batch_meets_any_damage_with_a_wire_error_only(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build_batch(records, codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    view = resealed(batch)
    with suppress(WireError):
        for part in split_batches(view):
            decode_batch(part, size_bytes_max=1 << 16)


def test_mutated_batches_are_sometimes_still_readable() -> None:
    """Guards the two tests above: they would prove little if every mutation died at the first check."""
    batch = build_batch([ONE])
    batch[-1] ^= 1
    assert decode_batch(resealed(batch))[0].headers == (("h", b"y"),)
