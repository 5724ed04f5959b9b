"""The aborted transactions of a log, by which read_committed consumers leave out their records.

A `.txnindex` beside a segment has those that end in it: entries of int16 version (0), int64 producer id, first offset,
last offset (the marker's), last stable offset after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.runtime.disk import Disk, read_file
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


def read_aborted(disk: Disk, directory: str) -> list[AbortedTransaction]:
    """Those of all segments of a partition, in the order of their first offsets.  Raises `CorruptLog`."""
    found: list[AbortedTransaction] = []
    for name in disk.list_directory(directory):
        if name.endswith(TRANSACTION_INDEX_SUFFIX):
            path = f"{directory}/{name}"
            found += _parse(read_file(disk, path), path)
    return sorted(found)


def _parse(content: bytes, path: str) -> list[AbortedTransaction]:
    if len(content) % _ENTRY.size:
        raise CorruptLog(path, len(content), -1, f"{len(content)} bytes are no whole entries of {_ENTRY.size}")
    found = []
    for version, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(content):
        if version != _VERSION or not 0 <= first_offset <= last_offset:
            raise CorruptLog(path, 0, first_offset, "an entry that cannot be an aborted transaction")
        found.append(AbortedTransaction(first_offset, last_offset, producer_id, last_stable_offset))
    return found


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
