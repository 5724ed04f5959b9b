"""`record.validation=all` accepts no compressed batch that another client's decoder cannot read."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from typing import Final

import lz4.frame
import pytest
import snappy  # type: ignore[import-untyped]  # it has no annotations
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch

from ottla.broker.partitions.topic_configs import opening_of
from ottla.broker.producing.batch_appender import batch_error
from ottla.broker.producing.batch_opening import BatchRefused, NoRoom, OpeningTerms, open_batch
from ottla.records.builder import build_batch
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, CRC, CRC_AT, HEADER, LOG_OVERHEAD_BYTES
from ottla.records.record import Record
from ottla.records.varint import read_varint
from ottla.storage.log_config import LogConfig

NOW_MS: Final = 1_700_000_000_000
ROOM: Final = memoryview(bytearray(1 << 20))
CODECS: Final = [codec for codec in Codec if codec]
NOISE: Final = random.Random(7).randbytes(3_000)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(NOW_MS - 1_000, NOW_MS),
        st.one_of(st.none(), st.binary(max_size=20)),
        st.one_of(st.none(), st.binary(max_size=300), st.sampled_from([b"word " * 60, NOISE])),
        st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=5))), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=12,
)
XERIAL_HEAD: Final = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def xerial(data: bytes) -> bytes:
    block = bytes(snappy.compress(data))
    return XERIAL_HEAD + struct.pack(">i", len(block)) + block


# As other clients' libraries write them.
PACKERS: Final[dict[Codec, list[Callable[[bytes], bytes]]]] = {
    Codec.GZIP: [gzip.compress],
    Codec.SNAPPY: [xerial, snappy.compress],
    Codec.LZ4: [
        lambda data: lz4.frame.compress(data, block_linked=False),
        lambda data: lz4.frame.compress(data, block_linked=False, content_checksum=True, block_checksum=True),
        lambda data: lz4.frame.compress(data, block_linked=False, store_size=False, compression_level=9),
    ],
    Codec.ZSTD: [
        zstandard.ZstdCompressor().compress,
        zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress,
        zstandard.ZstdCompressor(level=19).compress,
    ],
}


def with_body(batch: bytearray, codec: Codec, body: bytes, **fields: int) -> bytearray:
    """The batch's header with another body, and the checksum of that."""
    head = list(HEADER.unpack_from(batch))
    head[1] = BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES + len(body)
    head[5] = int(codec)
    if "records_count" in fields:
        head[12] = fields["records_count"]
        head[6] = head[12] - 1
    made = bytearray(BATCH_OVERHEAD_BYTES) + body
    HEADER.pack_into(made, 0, *head)
    CRC.pack_into(made, CRC_AT, crc32c(memoryview(made)[ATTRIBUTES_AT:]))
    return made


def is_taken(batch: bytearray) -> bool:
    header = HEADER.unpack_from(batch)
    if batch_error(memoryview(batch), header, 9):
        return False
    opening = opening_of(LogConfig(record_validation="all"))
    assert opening is not None
    try:
        made = open_batch(memoryview(batch), header, OpeningTerms(opening, 1 << 20, NOW_MS, "orders-0"), ROOM)
    except (BatchRefused, NoRoom):
        return False
    assert made is None
    return True


def as_kafka_python_reads(batch: bytearray) -> list[tuple[int, bytes | None, bytes | None]]:
    try:
        return [(record.offset, record.key, record.value) for record in DefaultRecordBatch(bytes(batch))]
    except CorruptRecordError as error:
        # The name of a header that is not UTF-8: Java's clients and librdkafka read it, and no check reads it.
        if "UnicodeDecodeError" not in str(error):
            raise
        return []


def attributes_of(records: bytes) -> list[int]:
    """The attributes of each record, one byte without a meaning yet: kafka-python reads it as a varint, and fails where
    its highest bit is set."""
    found, position = [], 0
    while position < len(records):
        length, position = read_varint(records, position)
        found.append(records[position])
        position += length
    return found


def body_as_others_read(codec: Codec, body: bytes) -> bytes:
    """Decompress the whole body strictly, by the libraries of other clients.  Raises their errors."""
    if codec is Codec.GZIP:
        return bytes(gzip.decompress(body))
    if codec is Codec.LZ4:
        return bytes(lz4.frame.decompress(body))
    if codec is Codec.ZSTD:
        return bytes(zstandard.ZstdDecompressor().decompressobj().decompress(body))
    if not body.startswith(XERIAL_HEAD[:8]):
        return bytes(snappy.decompress(body))
    at, out = len(XERIAL_HEAD), b""
    while at < len(body):
        (length,) = struct.unpack_from(">i", body, at)
        assert 0 < length <= len(body) - at - 4
        out += snappy.decompress(body[at + 4 : at + 4 + length])
        at += 4 + length
    return out


def expected(records: list[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(number, record.key, record.value) for number, record in enumerate(records)]


@pytest.mark.parametrize(
    ("codec", "number"), [(codec, number) for codec in CODECS for number in range(len(PACKERS[codec]))]
)
@given(records=RECORDS)
def test_batches_compressed_by_other_libraries_are_accepted(codec: Codec, number: int, records: list[Record]) -> None:
    plain = build_batch(records)
    batch = with_body(plain, codec, PACKERS[codec][number](bytes(plain[BATCH_OVERHEAD_BYTES:])))
    assert is_taken(batch)
    assert as_kafka_python_reads(batch) == expected(records)


@pytest.mark.parametrize("codec", CODECS)
@given(records=RECORDS, data=st.data())
def test_damaged_body_is_refused_or_read_alike(codec: Codec, records: list[Record], data: st.DataObject) -> None:
    plain = build_batch(records)
    packer = data.draw(st.sampled_from(PACKERS[codec]))
    body = bytearray(packer(bytes(plain[BATCH_OVERHEAD_BYTES:])))
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(["byte", "cut", "more", "twice"]))
        if kind == "byte" and body:
            body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del body[data.draw(st.integers(0, len(body))) :]
        elif kind == "more":
            body += data.draw(st.binary(min_size=1, max_size=9))
        elif kind == "twice":
            body += bytes(body)
    batch = with_body(plain, codec, bytes(body))
    if is_taken(batch):
        found = body_as_others_read(codec, bytes(body))
        # Perhaps a different batch, since the checksum was computed after the damage; but all read it alike.
        if any(attributes & 0x80 for attributes in attributes_of(found)):
            return
        uncompressed = with_body(plain, Codec.NONE, found)
        assert as_kafka_python_reads(batch) == as_kafka_python_reads(uncompressed)
        assert len(as_kafka_python_reads(batch)) in (len(records), 0)


@pytest.mark.parametrize("codec", CODECS)
@given(records=RECORDS, data=st.data())
def test_wrong_contents_of_a_sound_frame_are_refused(codec: Codec, records: list[Record], data: st.DataObject) -> None:
    plain = build_batch(records)
    area = bytes(plain[BATCH_OVERHEAD_BYTES:])
    pack = data.draw(st.sampled_from(PACKERS[codec]))
    wrong = {
        "a byte more": (area + b"\x00", len(records)),
        "a byte less": (area[:-1], len(records)),
        "a record more in the head": (area, len(records) + 1),
        "a record less in the head": (area, len(records) - 1),
        "compressed twice": (pack(area), len(records)),
        "nothing": (b"", len(records)),
    }
    body, count = wrong[data.draw(st.sampled_from(sorted(wrong)))]
    assert not is_taken(with_body(plain, codec, pack(body), records_count=count))


@pytest.mark.parametrize("codec", CODECS)
def test_frame_after_the_first_is_refused(codec: Codec) -> None:
    """Some clients read the first one only: for them the batch would be truncated."""
    plain = build_batch([Record(0, NOW_MS, b"k", b"v" * 100), Record(0, NOW_MS, b"k", b"v")])
    area = bytes(plain[BATCH_OVERHEAD_BYTES:])
    for pack in PACKERS[codec]:
        assert not is_taken(with_body(plain, codec, pack(area[:50]) + pack(area[50:])))
        assert not is_taken(with_body(plain, codec, pack(area) + pack(b"")))


def test_lz4_blocks_that_java_cannot_read_are_refused() -> None:
    plain = build_batch([Record(0, NOW_MS, b"k", b"v" * 100_000)])
    linked = lz4.frame.compress(bytes(plain[BATCH_OVERHEAD_BYTES:]), block_linked=True)
    assert not is_taken(with_body(plain, Codec.LZ4, linked))


def test_framing_of_snappy_of_an_unknown_version_is_refused() -> None:
    plain = build_batch([Record(0, NOW_MS, b"k", b"v" * 100)])
    body = bytearray(xerial(bytes(plain[BATCH_OVERHEAD_BYTES:])))
    assert is_taken(with_body(plain, Codec.SNAPPY, bytes(body)))
    body[11] = 0
    assert not is_taken(with_body(plain, Codec.SNAPPY, bytes(body)))
