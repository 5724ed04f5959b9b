"""The codecs of a record batch.  Nothing else imports a codec library.

Decompression allocates memory for the actual output, never for the claimed size, and stops at the caller's limit:
a megabyte of zstd can hold 32 GB.  All formats are those that Kafka's own clients write and read:

gzip    one or more members (RFC 1952)
snappy  written in the framing of Java's snappy library ("xerial"), 32 KiB blocks; read with and without it
lz4     a frame with independent blocks of up to 256 KiB (Kafka's Java reader refuses linked ones); all frames are read
zstd    one or more frames
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final

import cramjam
from typing_extensions import Buffer

from ottla.model.errors import ConfigError
from ottla.records.errors import CorruptCompression, DecompressedTooLarge

_GZIP_WINDOW_BITS: Final = 31  # 15 bits of window, plus 16 for the gzip header
_GZIP_LEVEL_DEFAULT: Final = 6
_LZ4_LEVEL_FAST: Final = 1
_ZSTD_LEVEL_DEFAULT: Final = 3
_FIRST_GUESS_BYTES_MIN: Final = 1 << 14
_GROWTH: Final = 4
# What the last batch of a codec needed is expected of the next one, within these bounds.
_GUESSED_GROWTH_MAX: Final = 32

# Magic, flags (version 1, independent blocks, no checksums: a batch has its own), the greatest block, header checksum.
_LZ4_SMALL_HEAD: Final = bytes.fromhex("04224d18 60 40 82")
_LZ4_HEAD: Final = bytes.fromhex("04224d18 60 50 fb")
_LZ4_SMALL_BLOCK_BYTES: Final = 1 << 16
# From 128 KiB on liblz4 keeps 4-byte positions: 15 % faster, and better compressed, than blocks of 64 KiB.
_LZ4_BLOCK_BYTES: Final = 1 << 18
# What a block takes more than its bytes and a 255th of them: its length, and 16 of liblz4's.
_LZ4_BLOCK_EXTRA_BYTES: Final = 20
_LZ4_RAW: Final = 1 << 31
_LZ4_LENGTH: Final = struct.Struct("<I")

_XERIAL_HEAD: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC_BYTES: Final = 8
_XERIAL_BLOCK_BYTES: Final = 1 << 15
_BLOCK_LENGTH: Final = struct.Struct(">i")


class Codec(IntEnum):
    """The codec numbers of a batch's attributes (bits 0-2)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """The codec that Kafka's settings call `name` (`compression.type`)."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise ConfigError(
                f"unknown compression type {name!r}", hint="use one of none, gzip, snappy, lz4, zstd"
            ) from None


_last_growths: Final[dict[Codec, int]] = {}
_STREAMED: Final[Mapping[Codec, Callable[[memoryview, memoryview], int]]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
# The levels that each codec's library accepts; snappy has none.
_LEVELS: Final = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 12), Codec.ZSTD: (-7, 22)}


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of a batch."""
    check_level(codec, level)
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        packer = zlib.compressobj(_GZIP_LEVEL_DEFAULT if level is None else level, wbits=_GZIP_WINDOW_BITS)
        return packer.compress(data) + packer.flush()
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        if level is None or level == _LZ4_LEVEL_FAST:
            return _compress_lz4_fast(memoryview(data).cast("B"))
        lz4 = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        lz4.compress(bytes(data))
        return bytes(lz4.finish())
    return bytes(cramjam.zstd.compress(memoryview(data), level=_ZSTD_LEVEL_DEFAULT if level is None else level))


def decompress(codec: Codec, data: Buffer, size_bytes_max: int) -> bytes:
    """The records of a batch.

    Raises CorruptCompression when the data is not the codec's, DecompressedTooLarge when the output would exceed
    `size_bytes_max`.
    """
    if codec is Codec.NONE:
        plain = bytes(data)
        if len(plain) > size_bytes_max:
            raise DecompressedTooLarge("uncompressed", size_bytes_max)
        return plain
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data).cast("B"), size_bytes_max)
    return _decompress_streamed(codec, memoryview(data).cast("B"), size_bytes_max)


def decompress_into(codec: Codec, data: memoryview, target: memoryview) -> int | None:
    """The records of a batch, at the beginning of `target`: the count of their bytes, or None when they do not fit.

    What is behind them in `target` may be overwritten, too.  Raises CorruptCompression.
    """
    if codec is Codec.SNAPPY:
        return _decompress_snappy_into(data, target)
    into = _STREAMED[codec]
    try:
        return int(into(data, target))
    except cramjam.DecompressionError as error:
        if str(error) == "failed to write whole buffer":
            return None
        raise CorruptCompression(f"{codec.name.lower()}: {error}") from None


def check_level(codec: Codec, level: int | None) -> None:
    """Raise ConfigError when the codec has no such level."""
    if level is None:
        return
    low, high = _LEVELS.get(codec, (0, -1))
    if low > high:
        raise ConfigError(f"{codec.name.lower()} has no compression levels", hint="leave the level out")
    if not low <= level <= high:
        raise ConfigError(f"{codec.name.lower()} has no compression level {level}", hint=f"use {low} to {high}")


def _decompress_streamed(codec: Codec, data: memoryview, size_bytes_max: int) -> bytes:
    """Decompress into a buffer that grows up to the limit; the library stops when it is full."""
    # As the last one grew: a guess that is too low costs a second decompression.
    growth = _last_growths.get(codec, _GROWTH)
    capacity = min(size_bytes_max, max(_FIRST_GUESS_BYTES_MIN, growth * len(data)))
    while True:
        buffer = memoryview(bytearray(capacity))
        written = decompress_into(codec, data, buffer)
        if written is not None:
            _last_growths[codec] = min(_GUESSED_GROWTH_MAX, max(_GROWTH, written // max(1, len(data)) + 2))
            return bytes(buffer[:written])
        if capacity == size_bytes_max:
            raise DecompressedTooLarge(codec.name.lower(), size_bytes_max)
        capacity = min(size_bytes_max, capacity * _GROWTH)


def _compress_lz4_fast(data: memoryview) -> bytes:
    """A frame, block by block: cramjam's own frames have blocks of 64 KiB, each with a checksum."""
    blocks_count = -(-len(data) // _LZ4_BLOCK_BYTES)
    frame = bytearray(len(_LZ4_HEAD) + len(data) + len(data) // 255 + _LZ4_BLOCK_EXTRA_BYTES * (blocks_count + 1))
    target = memoryview(frame)
    frame[: len(_LZ4_HEAD)] = _LZ4_SMALL_HEAD if len(data) <= _LZ4_SMALL_BLOCK_BYTES else _LZ4_HEAD
    at = len(_LZ4_HEAD)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        content = at + _LZ4_LENGTH.size
        length = size = int(cramjam.lz4.compress_block_into(block, target[content:], store_size=False))
        if size >= len(block):  # then it is stored as it is
            size = len(block)
            target[content : content + size] = block
            length = size | _LZ4_RAW
        _LZ4_LENGTH.pack_into(frame, at, length)
        at = content + size
    _LZ4_LENGTH.pack_into(frame, at, 0)
    return bytes(target[: at + _LZ4_LENGTH.size])


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data).cast("B")
    out = bytearray(_XERIAL_HEAD)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK_BYTES])))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, size_bytes_max: int) -> bytes:
    parts: list[bytes] = []
    room = size_bytes_max
    for block, size_bytes in _snappy_blocks(data):
        if size_bytes > room:
            raise DecompressedTooLarge("snappy", size_bytes_max)
        try:
            parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        except cramjam.DecompressionError as error:
            raise CorruptCompression(f"{error}") from None
        room -= size_bytes
    return b"".join(parts)


def _decompress_snappy_into(data: memoryview, target: memoryview) -> int | None:
    written = 0
    for block, size_bytes in _snappy_blocks(data):
        if size_bytes > len(target) - written:
            return None
        try:
            cramjam.snappy.decompress_raw_into(block, target[written : written + size_bytes])
        except cramjam.DecompressionError as error:
            raise CorruptCompression(f"{error}") from None
        written += size_bytes
    return written


def _snappy_blocks(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Each block with its size before compression, which it begins with: no memory is allocated for it before."""
    if data[:_XERIAL_MAGIC_BYTES] != _XERIAL_HEAD[:_XERIAL_MAGIC_BYTES]:
        yield data, _snappy_size(data)
        return
    if len(data) < len(_XERIAL_HEAD):
        raise CorruptCompression("snappy: the stream head is cut off")
    position = len(_XERIAL_HEAD)
    while position < len(data):
        if len(data) - position < _BLOCK_LENGTH.size:
            raise CorruptCompression("snappy: a block length is cut off")
        length: int = _BLOCK_LENGTH.unpack_from(data, position)[0]
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise CorruptCompression(f"snappy: a block of {length} bytes, {len(data) - position} are left")
        block = data[position : position + length]
        yield block, _snappy_size(block)
        position += length


def _snappy_size(block: memoryview) -> int:
    try:
        return int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CorruptCompression(f"{error}") from None
