"""The sparse offset index of a segment: (last offset of a batch, position of that batch).

On disk (Apache Kafka's `.index`): entries of int32 relative offset, int32 position, big-endian, both strictly
increasing.  In memory the same words in this machine's byte order: 8 bytes for each `index.interval.bytes` of log.

The event loop waits for an index to be loaded, and a full one has 262,144 entries.  So they are not looked at one by
one: `from_bytes` checks what can be seen at the ends, and the reader of an entry compares it with the log.  A search
ends in any case at a slot whose own offset is not above the target, while the next slot's is: each of these two was
compared.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import lt
from typing import Final

ENTRY_BYTES: Final = 8

assert array("i").itemsize == 4


class OffsetIndex:
    """Offsets are relative to the segment's base offset; `slot_for` finds the greatest entry not above a target."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        # Relative offset, position, and so on.
        self._words = array("i")

    def __len__(self) -> int:
        return len(self._words) >> 1

    @property
    def relative_offsets(self) -> Sequence[int]:
        """A copy."""
        return self._words[0::2]

    @property
    def positions(self) -> Sequence[int]:
        """A copy."""
        return self._words[1::2]

    def relative_offset(self, slot: int) -> int:
        return self._words[2 * slot]

    def position(self, slot: int) -> int:
        return self._words[2 * slot + 1]

    def append(self, relative_offset: int, position: int) -> None:
        words = self._words
        assert not words or (position > words[-1] and relative_offset > words[-2])
        words.append(relative_offset)
        words.append(position)

    def around(self, relative_offset: int) -> tuple[int | None, int, int]:
        """(offset, position, next position) of the greatest entry not above a target.

        None and 0 when all are above; the next position is -1 after the last entry.
        """
        words = self._words
        next_at = 2 * bisect_right(memoryview(words)[0::2], relative_offset)
        next_position = words[next_at + 1] if next_at < len(words) else -1
        return (words[next_at - 2], words[next_at - 1], next_position) if next_at else (None, 0, next_position)

    def slot_for(self, relative_offset: int) -> int:
        """The greatest slot whose offset is not above the target, -1 when all are above."""
        return bisect_right(memoryview(self._words)[0::2], relative_offset) - 1

    def slot_at(self, position: int) -> int:
        """The greatest slot whose position is not above the target, -1 when all are above."""
        return bisect_right(memoryview(self._words)[1::2], position) - 1

    def slot_below(self, relative_offset: int) -> int:
        """The greatest slot whose offset is below the target, -1 when none is."""
        return bisect_left(memoryview(self._words)[0::2], relative_offset) - 1

    def truncate_to(self, relative_offset: int) -> None:
        """Drop the entries whose batch ends at or above the offset."""
        self.keep(self.slot_below(relative_offset) + 1)

    def keep(self, entries_count: int) -> None:
        """Drop the entries after the first `entries_count`."""
        del self._words[2 * entries_count :]

    @property
    def size_bytes(self) -> int:
        return len(self) * ENTRY_BYTES

    def to_bytes(self) -> bytes:
        return _swapped(self._words[:]).tobytes()

    @classmethod
    def from_bytes(cls, content: bytes, log_size_bytes: int) -> OffsetIndex | None:
        """The index in a file's content, or None when its ends show that it is none of a segment of that size."""
        if len(content) % ENTRY_BYTES:
            return None
        index = cls()
        index._words = words = _swapped(array("i", content))
        if not words:
            return index
        first_offset, first_position, last_offset, last_position = *words[:2], *words[-2:]
        if first_offset < 0 or first_position < 0 or last_position >= log_size_bytes:
            return None
        if len(index) > 1 and (last_offset <= first_offset or last_position <= first_position):
            return None
        return index

    def is_increasing(self) -> bool:
        """Whether each entry is above the one before, as in every index that is whole; for tools, it takes long."""
        return is_increasing(self._words[0::2].tolist()) and is_increasing(self._words[1::2].tolist())


def is_increasing(values: Sequence[int]) -> bool:
    """Each value is above the one before."""
    return all(map(lt, values, islice(values, 1, None)))


def _swapped(words: array[int]) -> array[int]:
    """These words, now in the other byte order, which is that of the file or of this machine."""
    if sys.byteorder == "little":
        words.byteswap()
    return words
