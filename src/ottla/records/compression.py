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
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import cramjam

from ottla.model.errors import ConfigError
from ottla.records.errors import CompressedTooLarge, CorruptCompression, DecompressedTooLarge

if TYPE_CHECKING:
    from typing_extensions import Buffer

_GZIP_WINDOW_BITS: Final = 31  # 15 bits of window, plus 16 for the gzip header
_GZIP_LEVEL_DEFAULT: Final = 6
_LZ4_LEVEL_FAST: Final = 1
_ZSTD_LEVEL_DEFAULT: Final = 3
# How cramjam says that the output does not fit.
_NO_ROOM: Final = "failed to write whole buffer"
# The most that zlib gets or gives in one call: it copies its output under the interpreter's lock.
_GZIP_PIECE_BYTES: Final = 1 << 18
_GZIP_INPUT_BYTES: Final = 1 << 15
# Above this level zstd takes memory of many times the data: 0.7 GB for 60 MB at level 22, 0.1 GB at level 19.
_ZSTD_LARGE_BYTES: Final = 8 << 20
_ZSTD_LEVEL_OF_LARGE_MAX: Final = 19
# Of a frame of nothing, and more.
_ZSTD_EXTRA_BYTES: Final = 1 << 10
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
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
                f"unknown compression type {name!r}", hint=f"use one of {', '.join(CODEC_NAMES)}"
            ) from None


CODEC_NAMES: Final = tuple(codec.name.lower() for codec in Codec)

_last_growths: Final[dict[Codec, int]] = {}
_STREAMED: Final[Mapping[Codec, Callable[[memoryview, memoryview], int]]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
# The levels that each codec's library accepts; snappy has none.
_LEVELS: Final = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 12), Codec.ZSTD: (-7, 22)}


def compress(codec: Codec, data: Buffer, level: int | None = None, size_bytes_max: int | None = None) -> bytes:
    """Compress the records of a batch.

    Raises CompressedTooLarge, as soon as it is known, when the output would exceed `size_bytes_max`.
    """
    check_level(codec, level)
    view = memoryview(data).cast("B")
    room_bytes = sys.maxsize if size_bytes_max is None else size_bytes_max
    if codec is Codec.ZSTD:
        return _compress_zstd(view, _ZSTD_LEVEL_DEFAULT if level is None else level, room_bytes)
    if codec is Codec.NONE:
        pieces: Iterator[Buffer] = iter((view,))
    elif codec is Codec.GZIP:
        pieces = _gzip_pieces(view, _GZIP_LEVEL_DEFAULT if level is None else level)
    elif codec is Codec.SNAPPY:
        pieces = _xerial_pieces(view)
    elif level is None or level == _LZ4_LEVEL_FAST:
        pieces = _lz4_fast_pieces(view)
    else:
        pieces = _lz4_pieces(view, level)
    kept: list[Buffer] = []
    size_bytes = 0
    for piece in pieces:
        size_bytes += len(memoryview(piece))
        if size_bytes > room_bytes:
            raise CompressedTooLarge(codec.name.lower(), room_bytes)
        kept.append(piece)
    return b"".join(kept)


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
    """The records of a batch, at the start of `target`: the count of their bytes, or None when they do not fit.

    What follows them in `target` may be overwritten, too.  Raises CorruptCompression.
    """
    if codec is Codec.SNAPPY:
        return _decompress_snappy_into(data, target)
    into = _STREAMED[codec]
    try:
        return int(into(data, target))
    except cramjam.DecompressionError as error:
        if str(error) == _NO_ROOM:
            return None
        raise CorruptCompression(f"{codec.name.lower()}: {error}") from None


def decompress_one_frame_into(codec: Codec, data: memoryview, target: memoryview) -> int | None:
    """As `decompress_into`, of data that every client reads: one frame, and nothing after it.

    Some clients read the first frame only, and Java's reads no LZ4 blocks that depend on each other.
    """
    if codec is Codec.GZIP:
        return _gunzip_into(data, target)
    size = decompress_into(codec, data, target)
    if size is None:
        return None
    if codec is Codec.SNAPPY:
        _check_xerial_version(data)
    elif (end := _lz4_frame_end(data) if codec is Codec.LZ4 else _zstd_frame_end(data)) != len(data):
        raise CorruptCompression(f"{codec.name.lower()}: {len(data) - end} bytes follow the frame")
    return size


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


def _gzip_pieces(data: memoryview, level: int) -> Iterator[bytes]:
    packer = zlib.compressobj(level, wbits=_GZIP_WINDOW_BITS)
    for start in range(0, len(data), _GZIP_PIECE_BYTES):
        yield packer.compress(data[start : start + _GZIP_PIECE_BYTES])
    yield packer.flush()


def _compress_zstd(data: memoryview, level: int, room_bytes: int) -> bytes:
    if len(data) > _ZSTD_LARGE_BYTES:
        level = min(level, _ZSTD_LEVEL_OF_LARGE_MAX)
    bound_bytes = len(data) + (len(data) >> 7) + _ZSTD_EXTRA_BYTES
    target = bytearray(min(room_bytes, bound_bytes))
    try:
        size = int(cramjam.zstd.compress_into(data, target, level=level))
    except cramjam.CompressionError as error:
        if str(error) == _NO_ROOM:
            raise CompressedTooLarge("zstd", room_bytes) from None
        raise
    return bytes(memoryview(target)[:size])


def _lz4_fast_pieces(data: memoryview) -> Iterator[Buffer]:
    """A frame, block by block: cramjam's own frames have blocks of 64 KiB, each with a checksum."""
    yield _LZ4_SMALL_HEAD if len(data) <= _LZ4_SMALL_BLOCK_BYTES else _LZ4_HEAD
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        made = bytearray(_LZ4_LENGTH.size + len(block) + len(block) // 255 + _LZ4_BLOCK_EXTRA_BYTES)
        target = memoryview(made)[_LZ4_LENGTH.size :]
        length = size = int(cramjam.lz4.compress_block_into(block, target, store_size=False))
        if size >= len(block):  # then it is stored as it is
            size = len(block)
            target[:size] = block
            length = size | _LZ4_RAW
        _LZ4_LENGTH.pack_into(made, 0, length)
        yield memoryview(made)[: _LZ4_LENGTH.size + size]
    yield _LZ4_LENGTH.pack(0)


def _lz4_pieces(data: memoryview, level: int) -> Iterator[Buffer]:
    """A frame of the library's stronger compressor.  It keeps the interpreter's lock, so it gets a block at a time."""
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    for start in range(0, len(data), _LZ4_SMALL_BLOCK_BYTES):
        packer.compress(bytes(data[start : start + _LZ4_SMALL_BLOCK_BYTES]))
        yield bytes(packer.flush())
    yield bytes(packer.finish())


def _xerial_pieces(data: memoryview) -> Iterator[bytes]:
    yield _XERIAL_HEAD
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(bytes(data[start : start + _XERIAL_BLOCK_BYTES])))
        yield _BLOCK_LENGTH.pack(len(block))
        yield block


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
    """Each block with its size before compression, which it starts with: no memory is allocated for it before."""
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


def _check_xerial_version(data: memoryview) -> None:
    if data[:_XERIAL_MAGIC_BYTES] == _XERIAL_HEAD[:_XERIAL_MAGIC_BYTES]:
        (version,) = _BLOCK_LENGTH.unpack_from(data, _XERIAL_MAGIC_BYTES)
        if version < 1:
            raise CorruptCompression(f"snappy: version {version} of the framing is read by no client")


def _gunzip_into(data: memoryview, target: memoryview) -> int | None:
    written = 0
    try:
        for out in _gunzip_pieces(data):
            end = written + len(out)
            if end > len(target):
                return None
            target[written:end] = out
            written = end
    except zlib.error as error:
        raise CorruptCompression(f"gzip: {error}") from None
    return written


def _gunzip_pieces(data: memoryview) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
    for position in range(0, len(data), _GZIP_INPUT_BYTES):
        piece: Buffer = data[position : position + _GZIP_INPUT_BYTES]
        while piece:
            if unpacker.eof:
                raise CorruptCompression("gzip: bytes follow the stream")
            yield unpacker.decompress(piece, _GZIP_PIECE_BYTES)
            piece = unpacker.unused_data or unpacker.unconsumed_tail
    # What zlib took in and has not returned: each call is bounded.
    while not unpacker.eof and (out := unpacker.decompress(b"", _GZIP_PIECE_BYTES)):
        yield out
    if not unpacker.eof:
        raise CorruptCompression("gzip: the stream is cut off")


def _lz4_frame_end(data: memoryview) -> int:
    """The position after the frame that `data` starts with; the library has decompressed it."""
    if bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptCompression("lz4: the data does not begin with a frame")
    flags = data[4]
    if not flags & 0x20 or flags & 0x01:
        raise CorruptCompression(
            "lz4: blocks that depend on each other, or on a dictionary, are not read by all clients"
        )
    at = 7 + (8 if flags & 0x08 else 0)
    try:
        while True:
            (length,) = _LZ4_LENGTH.unpack_from(data, at)
            at += _LZ4_LENGTH.size
            if not length:
                return at + (4 if flags & 0x04 else 0)
            at += (length & ~_LZ4_RAW) + (4 if flags & 0x10 else 0)
    except struct.error:
        raise CorruptCompression("lz4: the frame is cut off") from None


def _zstd_frame_end(data: memoryview) -> int:
    """The position after the frame that `data` starts with; the library has decompressed it."""
    if bytes(data[:4]) != _ZSTD_MAGIC:
        raise CorruptCompression("zstd: the data does not begin with a frame")
    descriptor = data[4]
    is_single_segment = bool(descriptor & 0x20)
    if descriptor & 0x03:
        raise CorruptCompression("zstd: the frame needs a dictionary, which clients do not have")
    size_bytes = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    at = 5 + (0 if is_single_segment else 1) + size_bytes
    try:
        while True:
            header = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            # The content of a run-length block is one byte.
            at += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
            if header & 1:
                return at + (4 if descriptor & 0x04 else 0)
    except IndexError:
        raise CorruptCompression("zstd: the frame is cut off") from None
