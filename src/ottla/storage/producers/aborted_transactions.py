"""The aborted transactions of a log, by which read_committed consumers leave out their records.

A `.txnindex` beside a segment has those that end in it: entries of int16 version (0), int64 producer id, first offset,
last offset (the marker's), last stable offset after it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.runtime.disk import Disk, read_file, write_fully
from ottla.storage.errors import CorruptLog
from ottla.storage.log_files import TRANSACTION_INDEX_SUFFIX

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """Offsets are inclusive; `last_offset` is the marker's."""

    first_offset: int
    last_offset: int
    producer_id: int
    last_stable_offset: int


class AbortedIndex:
    """Those that end in one segment, in the order of their markers: the content of its `.txnindex`."""

    __slots__ = ("_content",)

    def __init__(self, content: bytes = b"") -> None:
        # As it is on disk: a broker may have a million of them.
        self._content = bytearray(content)

    def __len__(self) -> int:
        return len(self._content) // _ENTRY.size

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self.ended_from(0)

    def ended_from(self, start_offset: int) -> Iterator[AbortedTransaction]:
        """Those whose marker is at `start_offset` or above."""
        for at in range(self._slot_from(start_offset) * _ENTRY.size, len(self._content), _ENTRY.size):
            _, producer_id, first_offset, last_offset, last_stable_offset = _ENTRY.unpack_from(self._content, at)
            yield AbortedTransaction(first_offset, last_offset, producer_id, last_stable_offset)

    def add(self, transaction: AbortedTransaction) -> None:
        self._content += format_aborted((transaction,))

    def truncate_to(self, end_offset: int) -> None:
        """The log ends at `end_offset`: forget those whose marker was cut."""
        del self._content[self._slot_from(end_offset) * _ENTRY.size :]

    def _slot_from(self, offset: int) -> int:
        return bisect_left(range(len(self)), offset, key=self._last_offset)

    def _last_offset(self, slot: int) -> int:
        last_offset: int = _ENTRY.unpack_from(self._content, slot * _ENTRY.size)[3]
        return last_offset

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    def to_bytes(self) -> bytes:
        return bytes(self._content)

    @classmethod
    def from_bytes(cls, content: bytes) -> AbortedIndex | None:
        """The index in a file's content, None where that is none."""
        if len(content) % _ENTRY.size:
            return None
        last_end = -1
        for version, _, first_offset, last_offset, _ in _ENTRY.iter_unpack(content):
            if version != _VERSION or not 0 <= first_offset <= last_offset or last_offset <= last_end:
                return None
            last_end = last_offset
        return cls(content)


def read_aborted_index(disk: Disk, stem: str) -> AbortedIndex:
    """The index of a segment, empty where it has no file.  Raises `CorruptLog`."""
    path = stem + TRANSACTION_INDEX_SUFFIX
    if not disk.exists(path):
        return AbortedIndex()
    index = AbortedIndex.from_bytes(content := read_file(disk, path))
    if index is None:
        raise CorruptLog(path, len(content), -1, "not an index of aborted transactions")
    return index


def write_aborted(disk: Disk, stem: str, index: AbortedIndex) -> None:
    """Write the file as the index is now, without a sync; a segment without aborted transactions has none."""
    path = stem + TRANSACTION_INDEX_SUFFIX
    if not len(index):
        if disk.exists(path):
            disk.remove(path)
        return
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        write_fully(file, 0, index.to_bytes())
    finally:
        file.close()


def format_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    """The content of a `.txnindex`."""
    return b"".join(
        _ENTRY.pack(_VERSION, each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
        for each in transactions
    )


def aborted_between(
    ended: Iterable[AbortedTransaction], start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Those with a record in [start_offset, end_offset), by their first offset.

    `ended` are in the order of their markers, from the segment of `start_offset` on; no more are taken than may matter:
    after a marker with a last stable offset from `end_offset` on no transaction ends that started below.
    """
    found = []
    for each in ended:
        if each.last_offset >= start_offset and each.first_offset < end_offset:
            found.append(each)
        if each.last_stable_offset >= end_offset:
            break
    return sorted(found)
