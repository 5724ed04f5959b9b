"""The sparse time index of a segment: (greatest timestamp so far, last offset of the batch that has it).

On disk (Apache Kafka's `.timeindex`): entries of int64 timestamp in ms, int32 relative offset, big-endian.
Timestamps rise strictly, offsets never fall.  A closed segment's last entry is its greatest timestamp.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

ENTRY_BYTES: Final = 12
ENTRY: Final = struct.Struct(">qi")

assert ENTRY.size == ENTRY_BYTES
assert array("q").itemsize == 8


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class TimeIndex:
    """Offsets are relative to the segment's base offset."""

    __slots__ = ("relative_offsets", "timestamps_ms")

    def __init__(self) -> None:
        self.timestamps_ms = array("q")
        self.relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry unless the last one has that timestamp already (or the segment has none yet: -1)."""
        last_ms = self.timestamps_ms[-1] if self.timestamps_ms else -1
        if timestamp_ms <= last_ms:
            return
        assert not self.relative_offsets or relative_offset > self.relative_offsets[-1]
        self.timestamps_ms.append(timestamp_ms)
        self.relative_offsets.append(relative_offset)

    def slot_for(self, timestamp_ms: int) -> int:
        """The greatest slot whose timestamp is below the target, -1 when none is.

        Every record up to that slot's offset is older than the target, so a search begins after it.
        """
        return bisect_left(self.timestamps_ms, timestamp_ms) - 1

    def truncate_to(self, relative_offset: int) -> None:
        self.keep(bisect_left(self.relative_offsets, relative_offset))

    def keep(self, entries_count: int) -> None:
        """Drop the entries after the first `entries_count`."""
        del self.relative_offsets[entries_count:]
        del self.timestamps_ms[entries_count:]

    @property
    def size_bytes(self) -> int:
        return len(self.timestamps_ms) * ENTRY_BYTES

    def to_bytes(self) -> bytes:
        content = bytearray(self.size_bytes)
        for slot, (timestamp_ms, offset) in enumerate(zip(self.timestamps_ms, self.relative_offsets, strict=True)):
            ENTRY.pack_into(content, slot * ENTRY_BYTES, timestamp_ms, offset)
        return bytes(content)

    @classmethod
    def from_bytes(cls, content: bytes) -> TimeIndex | None:
        """The index in a file's content, or None when it cannot be a time index."""
        if len(content) % ENTRY_BYTES:
            return None
        index = cls()
        last_ms = last_offset = -1
        for timestamp_ms, offset in ENTRY.iter_unpack(content):
            if timestamp_ms <= last_ms or offset <= last_offset:
                return None
            index.timestamps_ms.append(timestamp_ms)
            index.relative_offsets.append(offset)
            last_ms, last_offset = timestamp_ms, offset
        return index
