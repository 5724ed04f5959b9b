"""Indexes of closed segments that are in memory, up to a bound: the least recently used one is dropped first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

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
