"""The newest offset of each key, in memory that is bounded to the byte.

Open addressing over one anonymous mapping, whose pages are allocated when they are touched.  An entry is 24 bytes, as
in Apache Kafka: 16 that name the key and its offset as int64.  At most three quarters of the slots are filled, so a key
costs 32 bytes: the default of 128 MiB holds 4,194,303 keys.

A key of up to 15 bytes identifies itself, so it is never mistaken for another.  A longer one is identified by 120 bits
of BLAKE2b with a salt of this map: no client can make two keys that collide.
"""

from __future__ import annotations

import mmap
import os
import struct
from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 24
_NAME_BYTES: Final = 16
_SHORT_KEY_BYTES_MAX: Final = 15
# A short key is followed by zeros and its length + 1; no entry is all zeros, and 0xFF marks a digest.
_PADS: Final = tuple(bytes(_SHORT_KEY_BYTES_MAX - length) + bytes([length + 1]) for length in range(16))
_DIGEST_MARK: Final = b"\xff"
_EMPTY: Final = bytes(_NAME_BYTES)
_OFFSET: Final = struct.Struct(">q")
_SLOTS_MIN: Final = 8


class OffsetMap:
    """`put` until it returns False, for want of room; `newest` afterwards."""

    __slots__ = ("_end", "_entries_max", "_salt", "_slots_count", "_table", "entries_count")

    def __init__(self, size_bytes: int, salt: bytes | None = None) -> None:
        self._slots_count = max(_SLOTS_MIN, size_bytes // ENTRY_BYTES)
        self._entries_max = self._slots_count * 3 // 4
        self._end = self._slots_count * ENTRY_BYTES
        self._table = mmap.mmap(-1, self._end)
        self._salt = os.urandom(16) if salt is None else salt
        self.entries_count = 0

    def put(self, key: bytes, offset: int) -> bool:
        """Record that `offset` is the newest of `key`; False, without a change, when there is no room for a new key."""
        name = self._name_of(key)
        table = self._table
        at = hash(name) % self._slots_count * ENTRY_BYTES
        while (found := table[at : at + _NAME_BYTES]) != name:
            if found == _EMPTY:
                if self.entries_count >= self._entries_max:
                    return False
                self.entries_count += 1
                table[at : at + _NAME_BYTES] = name
                break
            at += ENTRY_BYTES
            if at == self._end:
                at = 0
        _OFFSET.pack_into(table, at + _NAME_BYTES, offset)
        return True

    def newest(self, key: bytes) -> int:
        """The newest offset of `key`, -1 when it was never put."""
        name = self._name_of(key)
        table = self._table
        at = hash(name) % self._slots_count * ENTRY_BYTES
        while (found := table[at : at + _NAME_BYTES]) != name:
            if found == _EMPTY:
                return -1
            at += ENTRY_BYTES
            if at == self._end:
                at = 0
        offset: int = _OFFSET.unpack_from(table, at + _NAME_BYTES)[0]
        return offset

    def _name_of(self, key: bytes) -> bytes:
        length = len(key)
        if length <= _SHORT_KEY_BYTES_MAX:
            return key + _PADS[length]
        return blake2b(key, digest_size=_SHORT_KEY_BYTES_MAX, salt=self._salt).digest() + _DIGEST_MARK

    def close(self) -> None:
        """Release the memory."""
        self._table.close()
