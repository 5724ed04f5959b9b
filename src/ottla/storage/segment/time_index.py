"""The sparse time index of a segment: (greatest timestamp so far, last offset of the batch that has it).

On disk (Apache Kafka's `.timeindex`): entries of int64 timestamp in ms, int32 relative offset, big-endian.
Timestamps and offsets rise strictly.  A closed segment's last entry is its greatest timestamp.  In memory the bytes are
the same; `offset_index` says why they are not checked when they are loaded.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.storage.segment.offset_index import is_increasing

ENTRY_BYTES: Final = 12

_ENTRY: Final = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class TimeIndex:
    """Offsets are relative to the segment's base offset."""

    __slots__ = ("_content", "_last_ms", "_last_offset")

    def __init__(self) -> None:
        # As it is on disk.
        self._content = bytearray()
        self._last_ms = self._last_offset = -1

    def __len__(self) -> int:
        return len(self._content) // ENTRY_BYTES

    @property
    def relative_offsets(self) -> Sequence[int]:
        """A copy."""
        return [offset for _, offset in _ENTRY.iter_unpack(self._content)]

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """A copy."""
        return [timestamp_ms for timestamp_ms, _ in _ENTRY.iter_unpack(self._content)]

    def timestamp_ms(self, slot: int) -> int:
        timestamp_ms: int = _ENTRY.unpack_from(self._content, slot * ENTRY_BYTES)[0]
        return timestamp_ms

    def relative_offset(self, slot: int) -> int:
        relative_offset: int = _ENTRY.unpack_from(self._content, slot * ENTRY_BYTES)[1]
        return relative_offset

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry unless the last one has that timestamp already (or the segment has none yet: -1)."""
        if timestamp_ms <= self._last_ms:
            return
        assert relative_offset > self._last_offset
        self._content += _ENTRY.pack(timestamp_ms, relative_offset)
        self._last_ms, self._last_offset = timestamp_ms, relative_offset

    def slot_for(self, timestamp_ms: int) -> int:
        """The greatest slot whose timestamp is below the target, -1 when none is.

        Every record up to that slot's offset is older than the target, so a search starts after it.
        """
        return bisect_left(range(len(self)), timestamp_ms, key=self.timestamp_ms) - 1

    def slot_below(self, relative_offset: int) -> int:
        """The greatest slot whose offset is below the target, -1 when none is."""
        return bisect_left(range(len(self)), relative_offset, key=self.relative_offset) - 1

    def truncate_to(self, relative_offset: int) -> None:
        self.keep(self.slot_below(relative_offset) + 1)

    def keep(self, entries_count: int) -> None:
        """Drop the entries after the first `entries_count`."""
        del self._content[entries_count * ENTRY_BYTES :]
        self._see_last()

    def _see_last(self) -> None:
        self._last_ms, self._last_offset = -1, -1
        if self._content:
            self._last_ms, self._last_offset = _ENTRY.unpack_from(self._content, len(self._content) - ENTRY_BYTES)

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    def to_bytes(self) -> bytes:
        return bytes(self._content)

    @classmethod
    def from_bytes(cls, content: bytes) -> TimeIndex | None:
        """The index in a file's content, or None when its ends show that it cannot be a time index."""
        if len(content) % ENTRY_BYTES:
            return None
        index = cls()
        index._content += content
        index._see_last()
        if content and (index.timestamp_ms(0) < 0 or index.relative_offset(0) < 0):
            return None
        if len(index) > 1 and (
            index._last_ms <= index.timestamp_ms(0) or index._last_offset <= index.relative_offset(0)
        ):
            return None
        return index

    def is_increasing(self) -> bool:
        """Whether each entry is above the one before, as in every index that is whole; for tools, it takes long."""
        return is_increasing(self.timestamps_ms) and is_increasing(self.relative_offsets)
