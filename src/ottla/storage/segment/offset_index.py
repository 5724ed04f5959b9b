"""The sparse offset index of a segment: (last offset of a batch, position of that batch).

On disk (Apache Kafka's `.index`): entries of int32 relative offset, int32 position, big-endian, both strictly
increasing.  In memory two arrays of int32: 8 bytes for each `index.interval.bytes` of log.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import lt
from typing import Final

ENTRY_BYTES: Final = 8

assert array("i").itemsize == 4


class OffsetIndex:
    """Offsets are relative to the segment's base offset; `slot_for` finds the greatest entry not above a target."""

    __slots__ = ("positions", "relative_offsets")

    def __init__(self) -> None:
        self.relative_offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, relative_offset: int, position: int) -> None:
        assert not self.positions or (position > self.positions[-1] and relative_offset > self.relative_offsets[-1])
        self.relative_offsets.append(relative_offset)
        self.positions.append(position)

    def slot_for(self, relative_offset: int) -> int:
        """The greatest slot whose offset is not above the target, -1 when all are above."""
        return bisect_right(self.relative_offsets, relative_offset) - 1

    def truncate_to(self, relative_offset: int) -> None:
        """Drop the entries whose batch ends at or above the offset."""
        self.keep(bisect_left(self.relative_offsets, relative_offset))

    def keep(self, entries_count: int) -> None:
        """Drop the entries after the first `entries_count`."""
        del self.relative_offsets[entries_count:]
        del self.positions[entries_count:]

    @property
    def size_bytes(self) -> int:
        return len(self.positions) * ENTRY_BYTES

    def to_bytes(self) -> bytes:
        entries = array("i", bytes(len(self.positions) * ENTRY_BYTES))
        entries[0::2] = self.relative_offsets
        entries[1::2] = self.positions
        if sys.byteorder == "little":
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def from_bytes(cls, content: bytes, log_size_bytes: int) -> OffsetIndex | None:
        """The index in a file's content, or None when it cannot be one of a segment of that size."""
        if len(content) % ENTRY_BYTES:
            return None
        entries = array("i", content)
        if sys.byteorder == "little":
            entries.byteswap()
        index = cls()
        index.relative_offsets = entries[0::2]
        index.positions = entries[1::2]
        if not is_increasing(index.relative_offsets) or not is_increasing(index.positions):
            return None
        if index.positions and (index.positions[0] < 0 or index.positions[-1] >= log_size_bytes):
            return None
        if index.relative_offsets and index.relative_offsets[0] < 0:
            return None
        return index


def is_increasing(values: array[int]) -> bool:
    """Each value is above the one before.  A full index has 262,144, and the event loop waits for them."""
    listed = values.tolist()
    return all(map(lt, listed, islice(listed, 1, None)))
