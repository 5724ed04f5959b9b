"""The sparse time index of a segment: (greatest timestamp so far, last offset of the batch that has it).

On disk (Apache Kafka's `.timeindex`): entries of int64 timestamp in ms, int32 relative offset, big-endian.
Timestamps rise strictly, offsets never fall.  A closed segment's last entry is its greatest timestamp.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from ottla.storage.segment.offset_index import is_increasing

ENTRY_BYTES: Final = 12

assert array("i").itemsize == 4
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
        # As words of four bytes: the high and the low one of the timestamp, the offset.
        words = array("i", bytes(self.size_bytes))
        timestamps = array("i", _swapped(self.timestamps_ms).tobytes())
        words[0::3], words[1::3] = timestamps[0::2], timestamps[1::2]
        words[2::3] = _swapped(self.relative_offsets)
        return words.tobytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> TimeIndex | None:
        """The index in a file's content, or None when it cannot be a time index."""
        if len(content) % ENTRY_BYTES:
            return None
        index = cls()
        words = array("i", content)
        timestamps = array("i", bytes(len(content) // ENTRY_BYTES * 8))
        timestamps[0::2], timestamps[1::2] = words[0::3], words[1::3]
        index.timestamps_ms = _swapped(array("q", timestamps.tobytes()))
        index.relative_offsets = _swapped(words[2::3])
        if content and (index.timestamps_ms[0] < 0 or index.relative_offsets[0] < 0):
            return None
        if not is_increasing(index.timestamps_ms) or not is_increasing(index.relative_offsets):
            return None
        return index


def _swapped(values: array[int]) -> array[int]:
    """A copy in the other byte order, which is that of the file or of this machine."""
    swapped = values[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped
