"""One clean of one log: find the newest offset of each key in the dirty part, then rewrite the segments.

Nothing here changes the log: cleaned files are beside the old ones until `swap` replaces those.  Memory is
the map, a chunk of a file and one opened batch.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Final

from ottla.model.errors import WireError
from ottla.records.header import CONTROL_BIT, TRANSACTIONAL_BIT
from ottla.runtime.disk import Disk
from ottla.storage.compaction.batch_filter import BatchFilter, FilterRules, WalkedRecord, open_batch, walk_records
from ottla.storage.compaction.cleaned_segment import CleanedFiles, CleanedSegment
from ottla.storage.compaction.compacted_mark import raise_compacted_end
from ottla.storage.compaction.plan import CleanedGroup, CleanJob, CleanSummary, SourceSegment
from ottla.storage.compaction.transactions import Transactions
from ottla.storage.errors import CorruptLog
from ottla.storage.log_files import segment_file_name
from ottla.storage.producers.aborted_transactions import read_aborted_index
from ottla.storage.segment.batch_scan import BatchScan, BatchTuple
from ottla.storage.segment.indexes import OFFSET_ENTRY_BYTES
from ottla.storage.segment.segment import RELATIVE_OFFSET_MAX

# The newest offset of each key, in memory that is bounded to the byte.
#
# Open addressing over one anonymous mapping, whose pages are allocated when they are touched.  An entry is 24 bytes, as
# in Apache Kafka: 16 that name the key and its offset as int64.  At most three quarters of the slots are filled, so a
# key costs 32 bytes: the default of 128 MiB holds 4,194,303 keys.
#
# A key of up to 15 bytes identifies itself, so it is never mistaken for another.  A longer one is identified by 120
# bits of BLAKE2b with a salt of this map: no client can make two keys that collide.

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


# No two index entries are closer than a batch's head.
_INTERVAL_BYTES_MIN: Final = 61
# A batch of more records is walked twice instead of being kept as a list.
_MANY_RECORDS: Final = 65_536

# Called with the bytes that were read or written; may wait, may raise to end the clean.
Pace = Callable[[int], None]


def clean(disk: Disk, job: CleanJob, pace: Pace) -> Iterator[CleanedGroup | CleanSummary]:
    """Each group of segments as soon as its cleaned files are durable, then the summary.

    Groups come in offset order and must be swapped in that order.  Raises `CorruptLog`, `OSError`.
    """
    offsets = OffsetMap(job.map_bytes)
    try:
        indexes = (read_aborted_index(disk, f"{job.path}/{each.base_offset:020d}") for each in job.segments)
        aborted = [*job.aborted_later, *chain.from_iterable(indexes)]
        mapped_end = _MapBuilder(disk, job, pace, offsets, Transactions(aborted, job.first_dirty_offset)).build()
        rules = FilterRules(
            offsets.newest,
            mapped_end,
            job.limit_offset,
            frozenset(job.kept_last_offsets),
            job.now_ms,
            job.delete_retention_ms,
        )
        transactions = Transactions(aborted, job.segments[0].base_offset)
        batch_filter = BatchFilter(rules, transactions)
        segments = [segment for segment in job.segments if segment.base_offset < mapped_end]
        bytes_before = bytes_after = 0
        for group in group_segments(segments, job):
            writer = _GroupWriter(disk, job, pace, batch_filter, transactions)
            cleaned = writer.write(group)
            bytes_before += sum(segment.size_bytes for segment in group)
            bytes_after += writer.size_bytes
            if cleaned is not None:
                yield CleanedGroup(tuple(segment.base_offset for segment in group), cleaned)
        counts = batch_filter.counts
        yield CleanSummary(
            cleaned_end=mapped_end,
            bytes_before=bytes_before,
            bytes_after=bytes_after,
            records_read_count=counts.records_read_count,
            records_kept_count=counts.records_kept_count,
            keyless_count=counts.keyless_count,
            unreadable_batches_count=counts.unreadable_batches_count,
            keys_count=offsets.entries_count,
            is_map_full=mapped_end < job.limit_offset,
        )
    finally:
        offsets.close()


def group_segments(segments: Sequence[SourceSegment], job: CleanJob) -> list[list[SourceSegment]]:
    """Adjacent segments that fit into one together even if nothing is removed: by size, index and offsets."""
    interval_bytes = max(job.index_interval_bytes, _INTERVAL_BYTES_MIN)
    size_bytes_max = min(job.segment_bytes, job.segment_index_bytes // OFFSET_ENTRY_BYTES * interval_bytes)
    groups: list[list[SourceSegment]] = []
    room_bytes = -1
    for segment in segments:
        fits = segment.size_bytes <= room_bytes
        if fits and segment.end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX:
            groups[-1].append(segment)
            room_bytes -= segment.size_bytes
        else:
            groups.append([segment])
            room_bytes = size_bytes_max - segment.size_bytes
    return groups


def _batches(disk: Disk, path: str, segment: SourceSegment, pace: Pace) -> Iterator[tuple[BatchTuple, memoryview]]:
    """The whole batches of a segment, their checksums right.  Raises `CorruptLog`."""
    log_path = f"{path}/{segment_file_name(segment.base_offset)}"
    file = disk.open(log_path, read_only=True)
    try:
        scan = BatchScan(file, 0, segment.size_bytes)
        next_offset = segment.base_offset
        for head, batch in scan.checked_batches():
            pace(len(batch))
            if not next_offset <= head[0] <= head[0] + head[6] < segment.end_offset:
                raise CorruptLog(log_path, scan.position, next_offset, f"a batch with base offset {head[0]}")
            next_offset = head[0] + head[6] + 1
            yield head, batch
        if scan.problem is not None:
            raise CorruptLog(log_path, scan.position, next_offset, scan.problem)
    finally:
        file.close()


class _MapBuilder:
    """Puts the keys of the dirty part into the map, up to the limit or until it is full."""

    def __init__(self, disk: Disk, job: CleanJob, pace: Pace, offsets: OffsetMap, transactions: Transactions) -> None:
        self._disk = disk
        self._job = job
        self._pace = pace
        self._offsets = offsets
        self._transactions = transactions

    def build(self) -> int:
        """Up to where (exclusive) the newest offset of every key is known."""
        for segment in self._job.segments:
            if segment.end_offset <= self._job.first_dirty_offset:
                continue
            for head, batch in _batches(self._disk, self._job.path, segment, self._pace):
                if head[0] + head[6] < self._job.first_dirty_offset:
                    continue
                full_at = self._add(head, batch)
                if full_at is not None:
                    return full_at
        return self._job.limit_offset

    def _add(self, head: BatchTuple, batch: memoryview) -> int | None:
        """None, or the offset of the first record that did not fit."""
        last_offset = head[0] + head[6]
        is_control = head[5] & CONTROL_BIT
        is_data = head[5] & TRANSACTIONAL_BIT and not is_control
        if is_data and self._transactions.is_aborted(head[9], last_offset):
            return None
        try:
            data = open_batch(batch, head)
            # A batch counts as a whole or not at all: the filter keeps one that is damaged, so none of its keys may
            # remove older records.
            records: Iterable[WalkedRecord] = list(walk_records(data, head)) if head[12] < _MANY_RECORDS else ()
            for _ in () if records else walk_records(data, head):
                pass
        except WireError:
            return None
        records = records or walk_records(data, head)
        if is_control:
            keys = [key for *_, key, _ in records]
            self._transactions.is_marker_empty(head[9], last_offset, keys[0] if keys else None)
            return None
        put, first_dirty_offset = self._offsets.put, self._job.first_dirty_offset
        for _, _, _, offset_delta, key, _ in records:
            offset = head[0] + offset_delta
            if key is not None and offset >= first_dirty_offset and not put(key, offset):
                return offset
        return None


class _GroupWriter:
    """Writes the records of a group's segments that are kept, into as many new ones as are needed (mostly one)."""

    def __init__(
        self, disk: Disk, job: CleanJob, pace: Pace, batch_filter: BatchFilter, transactions: Transactions
    ) -> None:
        self._disk = disk
        self._job = job
        self._pace = pace
        self._filter = batch_filter
        self._transactions = transactions
        self._finished: list[CleanedFiles] = []
        self._has_changed = False
        self._output: CleanedSegment
        self.size_bytes = 0

    def write(self, group: Sequence[SourceSegment]) -> tuple[CleanedFiles, ...] | None:
        """The cleaned files, durable; None when the segments are clean as they are."""
        self._has_changed = len(group) > 1
        self._output = self._new_output(group[0].base_offset)
        try:
            for segment in group:
                for head, batch in _batches(self._disk, self._job.path, segment, self._pace):
                    self._append(head, batch)
            self._finish_output()
        finally:
            self._output.close()
        if not self._has_changed:
            self._output.discard()
            return None
        raise_compacted_end(self._disk, self._job.path, self._job.limit_offset)
        self._disk.sync_directory(self._job.path)
        return tuple(self._finished)

    def _append(self, head: BatchTuple, batch: memoryview) -> None:
        kept = self._filter.filtered(batch, head)
        if kept is not batch:
            self._has_changed = True
        if kept is None:
            return
        output = self._output
        # Only new timestamps make a batch longer than it was, and only foreign logs have offsets so far apart.
        is_too_large = output.size_bytes > 0 and output.size_bytes + len(kept) > self._job.segment_bytes
        if is_too_large or head[0] + head[6] - output.base_offset > RELATIVE_OFFSET_MAX:
            self._has_changed = True
            self._finish_output()
            self._output = self._new_output(head[0])
        self._output.append(kept)
        self._pace(len(kept))

    def _new_output(self, base_offset: int) -> CleanedSegment:
        return CleanedSegment(self._disk, self._job.path, base_offset, self._job.index_interval_bytes)

    def _finish_output(self) -> None:
        self._finished.append(self._output.finish(self._transactions.drain_kept_aborted()))
        self.size_bytes += self._output.size_bytes
