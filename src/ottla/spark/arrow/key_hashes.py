"""murmur2 of a column of keys, which Kafka's producers choose the partition by, with numpy."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ottla.spark.arrow.varint_columns import Ints, Octets

NO_KEY: Final = -1
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_SHIFT: Final = np.uint32(24)
# Keys longer than this are hashed one by one: the column advances word by word, up to its longest key.
LONG_KEY_BYTES: Final = 512


def hash_column(keys: pa.Array) -> Ints:
    """murmur2 of every key of a `binary` column; `NO_KEY` for a null."""
    data, first, lengths = _parts(keys)
    hashes = np.zeros(len(first), np.int64)
    short = np.flatnonzero(lengths <= LONG_KEY_BYTES)
    hashes[short] = _murmur2_together(data, first[short], lengths[short])
    for row in np.flatnonzero(lengths > LONG_KEY_BYTES).tolist():
        hashes[row] = _murmur2_one(data[first[row] : first[row] + lengths[row]].tobytes())
    if keys.null_count:
        hashes[np.asarray(keys.is_null())] = NO_KEY
    return hashes


def _parts(keys: pa.Array) -> tuple[Octets, Ints, Ints]:
    """The bytes of all keys, the start of each, and its length (0 for a null)."""
    _, offsets_buffer, data_buffer = keys.buffers()
    count = len(keys)
    if count == 0 or offsets_buffer is None:
        return np.zeros(1, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64)
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    )
    lengths = np.diff(offsets)
    if keys.null_count:
        lengths[np.asarray(keys.is_null())] = 0
    return data, offsets[:-1], lengths


def _word(data: Octets, at: Ints, bytes_count: int = 4) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    word = np.zeros(len(at), np.uint32)
    for index in range(bytes_count):
        word |= data.take(at + index, mode="clip").astype(np.uint32) << np.uint32(8 * index)
    return word


def _murmur2_together(data: Octets, first: Ints, lengths: Ints) -> Ints:
    """All keys advance a word at a time; multiplication must wrap at 32 bits."""
    hashes = (np.uint32(_SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    words = lengths >> 2
    for step in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > step)
        word = _word(data, first[rows] + 4 * step) * _MULTIPLIER
        word ^= word >> _SHIFT
        hashes[rows] = (hashes[rows] * _MULTIPLIER) ^ (word * _MULTIPLIER)
    rest = lengths & 3
    for count in (1, 2, 3):
        rows = np.flatnonzero(rest == count)
        hashes[rows] = (hashes[rows] ^ _word(data, first[rows] + 4 * words[rows], count)) * _MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    return hashes.astype(np.int64)


def _murmur2_one(key: bytes) -> int:
    mask, multiplier = 0xFFFFFFFF, int(_MULTIPLIER)
    value = _SEED ^ len(key)
    whole = len(key) & ~3
    for word in np.frombuffer(key[:whole], "<u4").tolist():
        word = word * multiplier & mask
        word ^= word >> 24
        value = (value * multiplier & mask) ^ (word * multiplier & mask)
    if len(key) > whole:
        value = (value ^ int.from_bytes(key[whole:], "little")) * multiplier & mask
    value ^= value >> 13
    value = value * multiplier & mask
    return value ^ (value >> 15)
