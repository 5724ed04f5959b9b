"""The two sparse indexes of a segment, their files, and the bounded cache of indexes in memory.

Neither file has a checksum, so the segment checks what was read against its log before it uses it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from operator import lt
from typing import Final, NamedTuple, Protocol

from ottla.runtime.disk import Disk, read_file, write_fully
from ottla.storage.log_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX

TIME_ENTRY_BYTES: Final = 12

_TIME_ENTRY: Final = struct.Struct(">qi")
OFFSET_ENTRY_BYTES: Final = 8

assert array("i").itemsize == 4


class OffsetIndex:
    """(last offset of a batch, position of that batch): `slot_for` finds the greatest entry not above a target.

    Offsets are relative to the segment's base offset.  On disk (Apache Kafka's `.index`): entries of int32 relative
    offset, int32 position, big-endian, both strictly increasing.  In memory the same words in this machine's byte
    order: 8 bytes for each `index.interval.bytes` of log.

    The event loop waits for an index to be loaded, and a full one has 262,144 entries.  So they are not looked at one
    by one: `from_bytes` checks what can be seen at the ends, and the reader of an entry compares it with the log.  A
    search ends in any case at a slot whose own offset is not above the target, while the next slot's is: each of these
    two was compared.
    """

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
        return len(self) * OFFSET_ENTRY_BYTES

    def to_bytes(self) -> bytes:
        return _swapped(self._words[:]).tobytes()

    @classmethod
    def from_bytes(cls, content: bytes, log_size_bytes: int) -> OffsetIndex | None:
        """The index in a file's content, or None when its ends show that it is none of a segment of that size."""
        if len(content) % OFFSET_ENTRY_BYTES:
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
        return len(self._content) // TIME_ENTRY_BYTES

    @property
    def relative_offsets(self) -> Sequence[int]:
        """A copy."""
        return [offset for _, offset in _TIME_ENTRY.iter_unpack(self._content)]

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """A copy."""
        return [timestamp_ms for timestamp_ms, _ in _TIME_ENTRY.iter_unpack(self._content)]

    def timestamp_ms(self, slot: int) -> int:
        timestamp_ms: int = _TIME_ENTRY.unpack_from(self._content, slot * TIME_ENTRY_BYTES)[0]
        return timestamp_ms

    def relative_offset(self, slot: int) -> int:
        relative_offset: int = _TIME_ENTRY.unpack_from(self._content, slot * TIME_ENTRY_BYTES)[1]
        return relative_offset

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry unless the last one has that timestamp already (or the segment has none yet: -1)."""
        if timestamp_ms <= self._last_ms:
            return
        assert relative_offset > self._last_offset
        self._content += _TIME_ENTRY.pack(timestamp_ms, relative_offset)
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
        del self._content[entries_count * TIME_ENTRY_BYTES :]
        self._see_last()

    def _see_last(self) -> None:
        self._last_ms, self._last_offset = -1, -1
        if self._content:
            self._last_ms, self._last_offset = _TIME_ENTRY.unpack_from(
                self._content, len(self._content) - TIME_ENTRY_BYTES
            )

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    def to_bytes(self) -> bytes:
        return bytes(self._content)

    @classmethod
    def from_bytes(cls, content: bytes) -> TimeIndex | None:
        """The index in a file's content, or None when its ends show that it cannot be a time index."""
        if len(content) % TIME_ENTRY_BYTES:
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


def write_index_files(disk: Disk, stem: str, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
    """Write both files as the indexes are now, without a sync."""
    for suffix, content in ((INDEX_SUFFIX, offset_index.to_bytes()), (TIME_INDEX_SUFFIX, time_index.to_bytes())):
        file = disk.open(stem + suffix, create=True)
        try:
            file.truncate(0)
            write_fully(file, 0, content)
        finally:
            file.close()


def remove_index_files(disk: Disk, stem: str) -> None:
    """Remove those that are there."""
    for path in (stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX):
        if disk.exists(path):
            disk.remove(path)


def read_index_files(disk: Disk, stem: str) -> tuple[bytes, bytes] | None:
    """The content of both files, None when one is missing.  May be called in any thread."""
    index_path, time_index_path = stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX
    if not disk.exists(index_path) or not disk.exists(time_index_path):
        return None
    return read_file(disk, index_path), read_file(disk, time_index_path)


def indexes_in(contents: tuple[bytes, bytes], log_bytes: int) -> tuple[OffsetIndex, TimeIndex] | None:
    """Both indexes from the files' content; None when they cannot be those of a `.log` file of `log_bytes`."""
    offset_index = OffsetIndex.from_bytes(contents[0], log_bytes)
    time_index = TimeIndex.from_bytes(contents[1])
    return None if offset_index is None or time_index is None else (offset_index, time_index)


# A full segment of small batches has 5 MB of them: room for some 25 readers that lag in different ones.
INDEX_CACHE_BYTES: Final = 128 * 1024 * 1024


class HasIndexes(Protocol):
    """A segment as the cache uses it: its indexes can be read again from their files."""

    def drop_indexes(self) -> None: ...


class IndexCache:
    """Shared by the logs of a directory.  The active segments' indexes are never in it."""

    __slots__ = ("_bytes_max", "_entries", "size_bytes")

    def __init__(self, bytes_max: int = INDEX_CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[HasIndexes, int] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, segment: HasIndexes, size_bytes: int) -> None:
        """Keep a segment's indexes, dropping others when the bound is passed (never the one just added)."""
        self.forget(segment)
        self._entries[segment] = size_bytes
        self.size_bytes += size_bytes
        while self.size_bytes > self._bytes_max and len(self._entries) > 1:
            oldest, oldest_bytes = self._entries.popitem(last=False)
            self.size_bytes -= oldest_bytes
            oldest.drop_indexes()

    def touch(self, segment: HasIndexes) -> None:
        if segment in self._entries:
            self._entries.move_to_end(segment)

    def forget(self, segment: HasIndexes) -> None:
        self.size_bytes -= self._entries.pop(segment, 0)
