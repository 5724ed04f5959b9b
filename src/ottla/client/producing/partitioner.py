"""The partition of a key, by the algorithm of Java's default partitioner, so that all clients agree.

The hash of a key is kept, since keys recur, and many new keys are hashed together: a product of two 32-bit numbers fits
into 64 bits, so one long integer holds a lane of 64 bits for every key, and each step of the algorithm is one operation
of Python for all of them.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_UINT32: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF

# Longer keys are hashed each time; at most 3 MB are kept.
_KEPT_KEY_BYTES_MAX: Final = 128
_KEPT_KEYS_MAX: Final = 8192
# Fewer keys of one length are hashed one by one.
_LANES_MIN: Final = 8
_LANES_MAX: Final = 512
_LANE_BYTES: Final = 8


def partition_of_key(key: bytes, partitions_count: int) -> int:
    """The partition of `key` among `partitions_count`."""
    return (_HASHES[key] & _INT32_MAX) % partitions_count


def partitions_of_keys(keys: Sequence[bytes], partitions_count: int) -> list[int]:
    """The partition of each key of a set of messages."""
    partitions: list[int] = []
    for start in range(0, len(keys), _KEPT_KEYS_MAX):
        some = keys[start : start + _KEPT_KEYS_MAX]
        _HASHES.learn(some)
        partitions += [(_HASHES[key] & _INT32_MAX) % partitions_count for key in some]
    return partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2 (Austin Appleby), 32 bits, with the seed that Kafka's clients use; unsigned."""
    length = len(data)
    state = _SEED ^ length
    for word in struct.unpack_from(f"<{length >> 2}I", data):
        mixed = word * _MIX & _UINT32
        state = (state * _MIX ^ (mixed ^ mixed >> 24) * _MIX) & _UINT32
    rest = length & 3
    if rest:
        state = (state ^ int.from_bytes(data[-rest:], "little")) * _MIX & _UINT32
    state = (state ^ state >> 13) * _MIX & _UINT32
    return state ^ state >> 15


def murmur2_of_many(keys: Sequence[bytes]) -> list[int]:
    """`murmur2` of each of up to `_LANES_MAX` keys, which have one length."""
    count, length = len(keys), len(keys[0])
    ones = int.from_bytes((b"\x01" + bytes(_LANE_BYTES - 1)) * count, "little")
    low_halves = ones * _UINT32
    joined = b"".join(keys)
    assert len(joined) == count * length, "keys of one length"
    state = ones * (_SEED ^ length)
    rest = length & 3
    for at in range(0, length - rest, 4):
        mixed = _lanes(joined, at, 4, length) * _MIX & low_halves
        # A shift moves bits of the next lane into this one, above those that are kept.
        mixed = (mixed ^ mixed >> 24 & ones * 0xFF) * _MIX & low_halves
        state = state * _MIX & low_halves ^ mixed
    if rest:
        state = (state ^ _lanes(joined, length - rest, rest, length)) * _MIX & low_halves
    state = (state ^ state >> 13 & ones * (_UINT32 >> 13)) * _MIX & low_halves
    state ^= state >> 15 & ones * (_UINT32 >> 15)
    return list(struct.unpack(f"<{count}Q", state.to_bytes(count * _LANE_BYTES, "little")))


def _lanes(joined: bytes, at: int, bytes_count: int, stride: int) -> int:
    """The little-endian word at `at` of each key, in its lane."""
    lanes = bytearray(len(joined) // stride * _LANE_BYTES)
    for index in range(bytes_count):
        lanes[index::_LANE_BYTES] = joined[at + index :: stride]
    return int.from_bytes(lanes, "little")


class _Hashes(dict[bytes, int]):
    """`murmur2` by key.  Several threads may use it: an entry that is lost is computed again."""

    def __missing__(self, key: bytes) -> int:
        hashed = murmur2(key)
        if len(key) <= _KEPT_KEY_BYTES_MAX:
            if len(self) >= _KEPT_KEYS_MAX:
                self.clear()
            self[key] = hashed
        return hashed

    def learn(self, keys: Sequence[bytes]) -> None:
        """Hash the new ones among these keys, at most `_KEPT_KEYS_MAX`, together."""
        new = {key for key in keys if key not in self}
        if len(new) < _LANES_MIN:
            return
        if len(self) + len(new) > _KEPT_KEYS_MAX:
            self.clear()
            new = set(keys)
        by_length: defaultdict[int, list[bytes]] = defaultdict(list)
        for key in new:
            by_length[len(key)].append(key)
        for length, alike in by_length.items():
            if 0 < length <= _KEPT_KEY_BYTES_MAX:
                rest = iter(alike)
                while len(some := list(islice(rest, _LANES_MAX))) >= _LANES_MIN:
                    self.update(zip(some, murmur2_of_many(some), strict=True))


_HASHES: Final = _Hashes()
