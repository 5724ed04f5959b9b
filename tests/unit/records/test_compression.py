from __future__ import annotations

import gzip
import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import get_args

import click
import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.records.produce import command as produce
from ottla.client.producing.settings import Compression
from ottla.model.broker_settings import COMPRESSION_TYPES
from ottla.model.errors import ConfigError, WireError
from ottla.records import compression
from ottla.records.compression import CODEC_NAMES, Codec, compress, decompress, decompress_into
from ottla.records.errors import CorruptCompression, DecompressedTooLarge

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20
PEAK_RESET = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=200) | st.binary(min_size=1, max_size=20).map(lambda part: part * 5000))
def test_decompress_returns_the_data_that_was_compressed(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_compress_takes_any_buffer(codec: Codec) -> None:
    data = bytearray(b"page view " * 1000)
    packed = compress(codec, memoryview(data)[10:])
    assert decompress(codec, memoryview(packed), MIB) == bytes(data[10:])


@pytest.mark.parametrize("codec", list(Codec))
def test_decompress_stops_one_byte_over_the_limit(codec: Codec) -> None:
    packed = compress(codec, b"0123456789" * 10_000)
    assert len(decompress(codec, packed, 100_000)) == 100_000
    with pytest.raises(DecompressedTooLarge, match="99999 bytes"):
        decompress(codec, packed, 99_999)


def bomb_of_64_mib(codec: Codec) -> bytes:
    part = bytes(4 * MIB)
    packed = compress(codec, part)
    if codec is not Codec.SNAPPY:
        return packed * 16  # members and frames may follow each other
    return packed + packed[16:] * 15


@pytest.mark.skipif(not PEAK_RESET.exists(), reason="resets the process's peak memory by Linux's /proc")
@pytest.mark.parametrize("codec", PACKING)
def test_decompress_takes_little_memory_for_a_bomb(codec: Codec) -> None:
    bomb = bomb_of_64_mib(codec)
    assert len(decompress(codec, bomb, 64 * MIB)) == 64 * MIB, "it must be a bomb"
    PEAK_RESET.write_text("5")
    before = peak_memory_kib()
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, bomb, MIB)
    assert peak_memory_kib() - before < 8 * 1024


def peak_memory_kib() -> int:
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


def test_decompress_does_not_believe_a_size_in_the_frame() -> None:
    # zstd frame, single segment, 8-byte content size of 2^62, one raw block of 5 bytes that is the last.
    frame = bytes.fromhex("28b52ffd") + b"\xe0" + struct.pack("<Q", 1 << 62) + b"\x29\x00\x00hello"
    with pytest.raises(WireError):
        decompress(Codec.ZSTD, frame, MIB)
    # A raw snappy block that says it holds 4 GiB - 1.
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00a", MIB)


@pytest.mark.parametrize("codec", PACKING)
@given(data=st.binary(max_size=200), cut=st.integers(0, 300))
def test_decompress_refuses_damage_with_a_wire_error_only(codec: Codec, data: bytes, cut: int) -> None:
    whole = compress(codec, b"some records, some more records " * 8)
    for hostile in (data, whole[: cut % len(whole)], whole[: cut % len(whole)] + data):
        with suppress(WireError):
            assert len(decompress(codec, hostile, 4096)) <= 4096


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_decompress_refuses_a_cut_stream(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 40)
    with pytest.raises(CorruptCompression):
        decompress(codec, packed[:-9], MIB)


def test_decompress_reads_gzip_of_several_members() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"


def test_snappy_is_written_in_the_framing_of_java_and_read_with_and_without_it() -> None:
    data = b"x" * 100_000
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first_block = struct.unpack_from(">i", packed, 16)[0]
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first_block]) == 32768
    assert decompress(Codec.SNAPPY, packed, MIB) == data
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), MIB) == data


@pytest.mark.parametrize("length", [-1, 0, 6, 2**31 - 1])
def test_snappy_framing_refuses_a_block_length_that_cannot_be(length: int) -> None:
    head = compress(Codec.SNAPPY, b"")
    with pytest.raises(CorruptCompression, match="block"):
        decompress(Codec.SNAPPY, head + struct.pack(">i", length) + b"12345", MIB)


def test_lz4_is_written_as_a_frame_of_independent_blocks_and_read_with_linked_ones() -> None:
    data = b"metric " * 20_000
    flags = compress(Codec.LZ4, data)[4]
    assert flags & 0x20, "blocks must be independent for Kafka's Java reader"
    linked = bytes(cramjam.lz4.compress(data))
    assert not linked[4] & 0x20
    assert decompress(Codec.LZ4, linked, MIB) == data


@pytest.mark.parametrize("size_bytes", [0, 1, 65_535, 65_536, 65_537, 262_144, 262_145, 600_000])
@pytest.mark.parametrize("is_random", [False, True])
def test_lz4_frame_of_any_size_is_what_other_libraries_read(size_bytes: int, is_random: bool) -> None:
    data = random.Random(size_bytes).randbytes(size_bytes) if is_random else (b"metric " * size_bytes)[:size_bytes]
    packed = compress(Codec.LZ4, data)
    assert decompress(Codec.LZ4, packed, MIB) == data
    assert lz4.frame.decompress(packed) == data
    about = lz4.frame.get_frame_info(packed)
    assert not about["block_linked"]
    assert about["block_size"] == (65_536 if size_bytes <= 65_536 else 262_144)
    assert len(packed) <= size_bytes + 4 * 3 + 11, "what does not become smaller is stored as it is"


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.LZ4, 12), (Codec.ZSTD, 19), (Codec.ZSTD, -3)])
def test_compress_takes_a_level_that_the_codec_has(codec: Codec, level: int) -> None:
    data = b"abc" * 1000
    assert decompress(codec, compress(codec, data, level), MIB) == data


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 10), (Codec.SNAPPY, 1), (Codec.NONE, 1), (Codec.ZSTD, 23)])
def test_compress_refuses_a_level_that_the_codec_has_not(codec: Codec, level: int) -> None:
    with pytest.raises(ConfigError) as caught:
        compress(codec, b"abc", level)
    assert caught.value.hint


def test_codec_from_name_knows_kafkas_names_and_says_which() -> None:
    assert [Codec.from_name(name) for name in ("none", "gzip", "snappy", "lz4", "ZSTD")] == list(Codec)
    with pytest.raises(ConfigError, match="brotli"):
        Codec.from_name("brotli")


def test_every_list_of_codecs_names_all_of_them() -> None:
    compressing = set(CODEC_NAMES) - {"none"}
    assert compressing == set(COMPRESSION_TYPES) - {"producer", "uncompressed"}
    assert set(get_args(Compression)) == set(CODEC_NAMES)
    (choice,) = (parameter.type for parameter in produce.params if parameter.name == "codec")
    assert isinstance(choice, click.Choice)
    assert set(choice.choices) == set(CODEC_NAMES)


def test_batch_that_grows_as_the_one_before_it_is_decompressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bytes(cramjam.zstd.compress(bytes(1 << 16) + random.Random(1).randbytes(1 << 13)))
    calls = 0

    def zstd_into(source: memoryview, target: memoryview) -> int:
        nonlocal calls
        calls += 1
        return int(cramjam.zstd.decompress_into(source, target))

    monkeypatch.setattr(compression, "_STREAMED", {Codec.ZSTD: zstd_into})
    monkeypatch.setattr(compression, "_last_growths", {})
    first = decompress(Codec.ZSTD, packed, 1 << 24)
    calls_of_first = calls
    assert decompress(Codec.ZSTD, packed, 1 << 24) == first
    assert calls_of_first > 1
    assert calls == calls_of_first + 1


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("size_bytes", [0, 1, 70_000])
def test_data_is_decompressed_in_place_where_it_fits(codec: Codec, size_bytes: int) -> None:
    data = random.Random(2).randbytes(size_bytes)
    packed = memoryview(compress(codec, data))
    target = bytearray(b"#" * (size_bytes + 10))
    assert decompress_into(codec, packed, memoryview(target)[5 : 5 + size_bytes]) == size_bytes
    assert (bytes(target[:5]), bytes(target[5:-5]), bytes(target[-5:])) == (b"#####", data, b"#####")


@pytest.mark.parametrize("codec", PACKING)
def test_data_that_does_not_fit_is_reported_and_no_byte_after_the_buffer_is_touched(codec: Codec) -> None:
    packed = memoryview(compress(codec, bytes(70_000)))
    target = bytearray(b"#" * 69_999 + b"behind")
    assert decompress_into(codec, packed, memoryview(target)[:69_999]) is None
    assert bytes(target[69_999:]) == b"behind"


@pytest.mark.parametrize("codec", PACKING)
def test_broken_data_is_refused_in_place_too(codec: Codec) -> None:
    packed = bytearray(compress(codec, random.Random(3).randbytes(70_000)))
    for broken in (packed[:-9], b"\xff" * 40):
        with pytest.raises(CorruptCompression):
            decompress_into(codec, memoryview(broken), memoryview(bytearray(100_000)))
