"""The partition of a key, by the algorithm of Java's default partitioner, so that all clients agree."""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_UINT32: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF


def partition_of_key(key: bytes, partitions_count: int) -> int:
    """The partition of `key` among `partitions_count`."""
    return (murmur2(key) & _INT32_MAX) % partitions_count


def murmur2(data: bytes) -> int:
    """MurmurHash2 (Austin Appleby), 32 bits, with the seed that Kafka's clients use; unsigned."""
    length = len(data)
    state = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MIX & _UINT32
        word = (word ^ word >> 24) * _MIX & _UINT32
        state = state * _MIX & _UINT32 ^ word
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MIX & _UINT32
    state = (state ^ state >> 13) * _MIX & _UINT32
    return state ^ state >> 15
