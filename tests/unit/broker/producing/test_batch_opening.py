"""Batches that a topic's settings force open: what comes out, and what is refused with which error."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ottla.broker.partitions.topic_configs import opening_of
from ottla.broker.producing.batch_appender import batch_error
from ottla.broker.producing.batch_opening import BatchRefused, NoRoom, OpeningTerms, malformed, open_batch
from ottla.model.error_code import ErrorCode
from ottla.records.builder import build_batch, stamp_producer
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, CRC, CRC_AT, HEADER, read_header
from ottla.records.record import Record, decode_batch
from ottla.records.record_walk import FAULTS_NAMED_MAX
from ottla.storage.log_config import LogConfig

NOW_MS = 1_000_000
PLAIN = LogConfig()
CODEC_NAMES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
RECORDS = [
    Record(0, NOW_MS - 5, b"a", b"value " * 50, (("h", b"1"),)),
    Record(0, NOW_MS, b"", None),
    Record(0, NOW_MS - 9, b"b", b""),
]


def opened(
    config: LogConfig, batch: bytearray, *, room_bytes: int = 1 << 20, size_bytes_max: int = 1 << 20
) -> memoryview:
    """The batch that would be appended."""
    opening = opening_of(config)
    assert opening is not None
    view = memoryview(batch)
    header = HEADER.unpack_from(batch)
    assert batch_error(view, header, 9) == 0
    terms = OpeningTerms(opening, size_bytes_max, NOW_MS, "orders-0")
    made = open_batch(view, header, terms, memoryview(bytearray(room_bytes)))
    return view if made is None else made


def refusal(config: LogConfig, batch: bytearray) -> BatchRefused:
    with pytest.raises(BatchRefused) as refused:
        opened(config, batch)
    return refused.value


def test_topics_of_the_default_settings_and_with_bounds_ahead_open_nothing() -> None:
    assert opening_of(PLAIN) is None
    assert opening_of(replace(PLAIN, message_timestamp_after_max_ms=0)) is None
    stamped = replace(PLAIN, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=5)
    assert opening_of(stamped) is None


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(CODEC_NAMES))
def test_batch_of_another_codec_is_compressed_anew_with_the_same_records(source: Codec, target: str) -> None:
    batch = build_batch(RECORDS, source)
    stamp_producer(batch, 77, 3, 12)
    before = bytes(batch)
    made = opened(replace(PLAIN, compression_type=target), batch)
    header = read_header(made)
    assert header.codec == CODEC_NAMES[target]
    assert batch_error(made, HEADER.unpack_from(made), 9) == 0
    assert decode_batch(made) == decode_batch(memoryview(before))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert header.max_timestamp_ms == NOW_MS
    assert bytes(batch) == before
    assert (made.obj is batch) == (source == CODEC_NAMES[target])


WORDS = b" ".join(b"%d" % (number * number % 977) for number in range(8_000))


@pytest.mark.parametrize(
    ("weak", "strong"),
    [
        (replace(PLAIN, compression_type="gzip", compression_gzip_level=1), 9),
        (replace(PLAIN, compression_type="zstd", compression_zstd_level=-100_000), 19),
        (replace(PLAIN, compression_type="lz4", compression_lz4_level=1), 17),
    ],
)
def test_levels_are_used(weak: LogConfig, strong: int) -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", WORDS)])
    level = f"compression_{weak.compression_type}_level"
    assert len(opened(replace(weak, **{level: strong}), batch)) < len(opened(weak, batch))  # type: ignore[arg-type]  # an int


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topic_names_the_records_without_keys(codec: Codec, policy: str) -> None:
    records = [Record(0, NOW_MS, key, b"v") for key in (b"k", None, b"", None)]
    refused = refusal(replace(PLAIN, cleanup_policy=policy), build_batch(records, codec))
    assert refused.error_code is ErrorCode.INVALID_RECORD
    assert [number for number, _ in refused.errors.rows] == [1, 3]
    assert "2 records are refused" in refused.errors.message


def test_record_that_is_too_old_is_named_though_the_first_is_not() -> None:
    config = replace(PLAIN, message_timestamp_before_max_ms=8)
    refused = refusal(config, build_batch(RECORDS))
    assert refused.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in refused.errors.rows] == [2]
    assert opened(replace(config, message_timestamp_before_max_ms=9), build_batch(RECORDS))
    assert opened(config, build_batch([Record(0, -1, b"k", b"v")]))


def test_head_that_lies_about_its_latest_time_is_found_out_when_the_batch_is_opened() -> None:
    batch = build_batch([Record(0, NOW_MS + 50, b"k", b"v")])
    fields = list(HEADER.unpack_from(batch))
    fields[8] = NOW_MS
    HEADER.pack_into(batch, 0, *fields)
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    config = replace(PLAIN, message_timestamp_after_max_ms=49, compression_type="zstd")
    assert refusal(config, batch).error_code is ErrorCode.INVALID_TIMESTAMP


def test_time_comes_before_keys_when_both_are_wrong() -> None:
    config = replace(PLAIN, cleanup_policy="compact", message_timestamp_before_max_ms=8)
    refused = refusal(config, build_batch([Record(0, NOW_MS, None, b"v"), Record(0, 5, b"k", b"v")]))
    assert refused.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in refused.errors.rows] == [0, 1]


def test_only_so_many_records_are_named() -> None:
    refused = refusal(replace(PLAIN, cleanup_policy="compact"), build_batch([Record(0, NOW_MS, None, b"")] * 1_500))
    assert "1500 records are refused" in refused.errors.message
    assert len(refused.errors.rows) == FAULTS_NAMED_MAX
    assert len(refused.errors.message) < 1_000


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_records_that_cannot_be_read_are_an_invalid_record(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec)
    batch[BATCH_OVERHEAD_BYTES:] = b"\xff" * (len(batch) - BATCH_OVERHEAD_BYTES)
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    assert refusal(replace(PLAIN, compression_type="uncompressed"), batch).error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_batch_that_holds_more_than_the_room_is_decompressed_no_further(codec: Codec) -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", bytes(1 << 20))], codec)
    for config in (replace(PLAIN, compression_type="uncompressed"), replace(PLAIN, record_validation="all")):
        with pytest.raises(NoRoom):
            opened(config, batch, room_bytes=100_000)


@pytest.mark.parametrize("target", list(CODEC_NAMES))
def test_batch_that_would_be_stored_larger_than_allowed_is_refused(target: str) -> None:
    source = Codec.LZ4 if target == "zstd" else Codec.ZSTD
    value = random.Random(1).randbytes(100_000)
    batch = build_batch([Record(0, NOW_MS, b"k", value * 4)], source)
    config = replace(PLAIN, compression_type=target)
    with pytest.raises(BatchRefused, match="with the topic's own compression") as refused:
        opened(config, batch, size_bytes_max=90_000)
    assert refused.value.error_code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("count", [-1, 0])
def test_batch_without_records_has_no_faulty_record_to_name(count: int) -> None:
    assert [number for number, _ in malformed(0, count).rows] == [0]
