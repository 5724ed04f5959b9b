"""A segment: the batches from one base offset on, in one file, with its two sparse indexes and the transactions that
are aborted in it.

The active segment's indexes live in memory only and are written when it stops being active: they are rebuilt
after an unclean stop, so a write for each entry would buy nothing.  A closed segment's indexes come from their
files when a reader needs them.

No checksum covers an index or a batch's base offset: a wrong index entry is detected when it is used, and then the
indexes are rebuilt from the log; a base offset that does not follow from the batch before is damage.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.observe.events import fields
from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER, LOG_OVERHEAD_BYTES
from ottla.runtime.disk import Disk, File, write_fully
from ottla.runtime.offload import INLINE, Offload, run_inline
from ottla.storage.errors import CorruptLog
from ottla.storage.log_config import FOREVER, LogConfig
from ottla.storage.log_files import LOG_SUFFIX, SEGMENT_SUFFIXES
from ottla.storage.producers.aborted_transactions import AbortedIndex, read_aborted_index, write_aborted
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.indexes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexCache,
    OffsetIndex,
    TimeIndex,
    indexes_in,
    read_index_files,
    remove_index_files,
    write_index_files,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger(__name__)

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
# How far after its last entry a time index is checked against the log when it is read.
_CHECKED_AFTER_LAST_ENTRY_BYTES: Final = 64 * 1024

# A walk through batches lets others run after so many bytes of them, and after each larger batch.
STEP_BYTES: Final = 16 * 1024

_NO_HEAD: Final[BatchTuple] = (0,) * 13
_BAD_INDEX: Final = (-1, _NO_HEAD)
_NOTHING: Final = (-2, _NO_HEAD)


class SegmentMark(NamedTuple):
    """How far an active segment is accounted for: what `Segment.take_back` returns to."""

    size_bytes: int
    bytes_since_index: int
    max_timestamp_ms: int | None
    max_timestamp_offset: int
    first_timestamp_ms: int | None
    roll_at_bytes: int
    offset_entries_count: int
    time_entries_count: int


class Segment:
    """Base offset, file, size and indexes.  `roll_at_*` are the limits that the next batch must not pass."""

    __slots__ = (
        "_aborted",
        "_bytes_since_index",
        "_cache",
        "_disk",
        "_has_aborted",
        "_index_interval_bytes",
        "_indexes",
        "_is_active",
        "_is_retired",
        "_offset_entries_max",
        "_segment_ms",
        "_time_entries_max",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp_ms",
        "last_offset_max",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "may_have_gaps",
        "path",
        "roll_at_bytes",
        "roll_at_now_ms",
        "roll_at_timestamp_ms",
        "size_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        cache: IndexCache,
        created_ms: int,
        size_bytes: int = 0,
    ) -> None:
        """A closed segment whose `.log` file holds `size_bytes`, or is made by `open`."""
        self._disk = disk
        self._cache = cache
        self.path = f"{directory}/{base_offset:020d}"
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.file: File | None = None
        self.size_bytes = size_bytes
        self.last_offset_max = base_offset + RELATIVE_OFFSET_MAX
        self._indexes: tuple[OffsetIndex, TimeIndex] | None = None
        # None: not read yet from the file, which a segment without them does not have.
        self._aborted: AbortedIndex | None = None
        self._is_active = False
        self._is_retired = False
        self._bytes_since_index = 0
        # None: not known yet (a closed segment whose time index was not read); -1: no record has a timestamp.
        self.max_timestamp_ms: int | None = None
        self.max_timestamp_offset = base_offset
        self.first_timestamp_ms: int | None = None
        self.roll_at_timestamp_ms = self.roll_at_now_ms = FOREVER
        self.configure(config)

    @property
    def log_path(self) -> str:
        return self.path + LOG_SUFFIX

    def existing_paths(self) -> list[str]:
        """Its files that are there: the log first, so that a crash among removals leaves no index without a log."""
        paths = [self.path + suffix for suffix in SEGMENT_SUFFIXES]
        return [path for path in paths if self._disk.exists(path)]

    def configure(self, config: LogConfig) -> None:
        """Apply new settings; they hold from the next batch on."""
        self._index_interval_bytes = config.index_interval_bytes
        self.may_have_gaps = config.may_have_gaps
        self._offset_entries_max = max(1, config.segment_index_bytes // OFFSET_ENTRY_BYTES)
        # One entry is kept free for the greatest timestamp, which is added when the segment is closed.
        self._time_entries_max = max(1, config.segment_index_bytes // TIME_ENTRY_BYTES - 1)
        self._segment_ms = max(0, config.roll_ms - self._jitter_ms(config.segment_jitter_ms))
        self.roll_at_bytes = config.segment_bytes
        self._set_roll_times()
        self._check_index_room()

    def _jitter_ms(self, jitter_ms_max: int) -> int:
        # Spread by name and offset instead of by chance: the same segment rolls at the same time after a restart.
        return hash_of(self.path) % jitter_ms_max if jitter_ms_max > 0 else 0

    def open(self, *, create: bool = False) -> File:
        """The segment's file, opened on first use and kept open until the segment leaves its log."""
        file = self.file
        if file is None:
            if self._is_retired:
                # A file that has this name now is another segment's.
                raise OSError(errno.EBADF, "this segment was closed", self.log_path)
            file = self.file = self._disk.open(self.log_path, create=create)
            self.size_bytes = file.size_bytes()
            if create:
                self.start_aborted()
        return file

    def become_active(self, offset_index: OffsetIndex, time_index: TimeIndex) -> int:
        """Append batches from now on, after the last index entry; returns its position.

        The caller accounts for the batches from there to the file's end; with empty indexes that is all of them.
        """
        self._cache.forget(self)
        self._is_active = True
        self._indexes = (offset_index, time_index)
        self._bytes_since_index = 0
        self.size_bytes = offset_index.position(-1) if len(offset_index) else 0
        self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
        if len(time_index):
            self.max_timestamp_ms = time_index.timestamp_ms(-1)
            self.max_timestamp_offset = self.base_offset + time_index.relative_offset(-1)
        self.first_timestamp_ms = None
        if self.size_bytes:
            self._read_first_timestamp()
        self._set_roll_times()
        self._check_index_room()
        return self.size_bytes

    def write_indexes(self) -> None:
        """Write the index files as they are now, without a sync."""
        offset_index, time_index = self.indexes()
        if self.size_bytes and self.max_timestamp_ms is not None:
            time_index.append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
        write_index_files(self._disk, self.path, offset_index, time_index)
        if self._aborted is not None:
            self.write_aborted()

    def become_closed(self) -> None:
        """Append no more batches; the indexes were written and stay in memory as long as the cache has room."""
        self._is_active = False
        self._keep_indexes(self.indexes())

    def release(self) -> None:
        """The segment left its log: its file is closed when the last read, response or flush in progress drops it."""
        self._is_retired = True
        self._cache.forget(self)
        self.file = None

    def close(self) -> None:
        """Close the file at once: nothing is read or flushed any more."""
        file = self.file
        self.release()
        if file is not None:
            file.close()

    def append(self, batch: Buffer, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Write one batch after the others.  After an `OSError` call `undo`."""
        file = self.file
        assert file is not None
        position = self.size_bytes
        written = file.write_at(position, batch)
        if written != size_bytes:
            _write_rest(file, position, batch, written)
        self.account(size_bytes, last_offset, max_timestamp_ms)

    def write(self, position: int, batches: memoryview) -> None:
        """Write batches that were accounted for since the segment ended at `position`; see `mark`, `take_back`."""
        file = self.file
        assert file is not None
        written = file.write_at(position, batches)
        if written != len(batches):
            _write_rest(file, position, batches, written)

    def mark(self) -> SegmentMark:
        """Where the active segment ends now: many batches are accounted for before one write takes them all."""
        offset_index, time_index = self.indexes()
        return SegmentMark(
            self.size_bytes,
            self._bytes_since_index,
            self.max_timestamp_ms,
            self.max_timestamp_offset,
            self.first_timestamp_ms,
            self.roll_at_bytes,
            len(offset_index),
            len(time_index),
        )

    def take_back(self, mark: SegmentMark) -> None:
        """Forget the batches that were accounted for since `mark`; then call `undo`, for what was written of them."""
        offset_index, time_index = self.indexes()
        offset_index.keep(mark.offset_entries_count)
        time_index.keep(mark.time_entries_count)
        self.size_bytes = mark.size_bytes
        self._bytes_since_index = mark.bytes_since_index
        self.max_timestamp_ms = mark.max_timestamp_ms
        self.max_timestamp_offset = mark.max_timestamp_offset
        self.first_timestamp_ms = mark.first_timestamp_ms
        self.roll_at_bytes = mark.roll_at_bytes
        self._set_roll_times()

    def undo(self) -> None:
        """Cut the file back to its last whole batch, after a failed or short write."""
        assert self.file is not None
        self.file.truncate(self.size_bytes)

    def account(self, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Count a batch that is at the end: size, greatest timestamp, index entries (live and recovery alike)."""
        position = self.size_bytes
        if position == 0:
            self.first_timestamp_ms = max_timestamp_ms
            self._set_roll_times()
        assert self.max_timestamp_ms is not None
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        since_bytes = self._bytes_since_index
        if since_bytes > self._index_interval_bytes:
            self._add_index_entries(last_offset, position)
            since_bytes = 0
        self._bytes_since_index = since_bytes + size_bytes
        self.size_bytes = position + size_bytes

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        assert self._indexes is not None
        assert self.max_timestamp_ms is not None
        offset_index, time_index = self._indexes
        offset_index.append(last_offset - self.base_offset, position)
        time_index.append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
        self._check_index_room()

    def _check_index_room(self) -> None:
        if self._indexes is not None and (
            len(self._indexes[0]) >= self._offset_entries_max or len(self._indexes[1]) >= self._time_entries_max
        ):
            self.roll_at_bytes = -1

    def _set_roll_times(self) -> None:
        # Kafka's rule: by the first batch's timestamp if it has one, else by the age of the segment; never while empty.
        self.roll_at_timestamp_ms = self.roll_at_now_ms = FOREVER
        if self.first_timestamp_ms is not None:
            if self.first_timestamp_ms >= 0:
                self.roll_at_timestamp_ms = self.first_timestamp_ms + self._segment_ms
            else:
                self.roll_at_now_ms = self.created_ms + self._segment_ms

    def _read_first_timestamp(self) -> None:
        head = self.open().read_at(0, BATCH_OVERHEAD_BYTES)
        if len(head) == BATCH_OVERHEAD_BYTES:
            self.first_timestamp_ms = HEADER.unpack_from(head)[8]

    def first_batch_timestamp(self) -> int:
        """The greatest timestamp of the first batch, in ms; -1 when there is none."""
        if self.first_timestamp_ms is None:
            self._read_first_timestamp()
        return -1 if self.first_timestamp_ms is None else self.first_timestamp_ms

    def truncate_to(self, offset: int) -> int:
        """Make this the active segment again, ending with the last batch that is wholly below `offset`.

        Returns its new end offset.
        """
        assert offset >= self.base_offset
        file = self.open()
        if offset == self.base_offset:
            # Nothing that the file holds is needed, be it damaged.
            file.truncate(0)
            self.start_aborted()
            self.write_aborted()
            self.become_active(OffsetIndex(), TimeIndex())
            return offset
        found = self.find(offset)
        indexes = self.indexes()
        if not self._is_active and not self._are_true_below(offset, *indexes):
            indexes = run_inline(self.rebuild_indexes(INLINE))
        offset_index, time_index = indexes
        end_position = self.size_bytes if found is None else found[0]
        end_offset = self.base_offset
        offset_index.truncate_to(offset - self.base_offset)
        time_index.truncate_to(offset - self.base_offset)
        file.truncate(end_position)
        self.aborted().truncate_to(offset)
        self.write_aborted()
        position = self.become_active(offset_index, time_index)
        scan = BatchScan(file, position, end_position, HEAD_CHUNK_BYTES)
        for _, head in scan.heads():
            end_offset = head[0] + head[6] + 1
            self.account(LOG_OVERHEAD_BYTES + head[1], end_offset - 1, head[8])
        if scan.problem is not None:
            raise CorruptLog(self.log_path, scan.position, end_offset, scan.problem)
        return end_offset

    def _are_true_below(self, offset: int, offset_index: OffsetIndex, time_index: TimeIndex) -> bool:
        """Whether the last entries below an offset are true: the segment is accounted for from there on."""
        slot = offset_index.slot_below(offset - self.base_offset)
        if slot >= 0:
            found = self._find_from_index(offset_index, self.base_offset + offset_index.relative_offset(slot))
            if found is _BAD_INDEX:
                return False
        slot = time_index.slot_below(offset - self.base_offset)
        return slot < 0 or self._is_true_entry(offset_index, time_index, slot)

    def hide_from(self, position: int) -> None:
        """The file could not be cut at `position`: readers must not see what is after it."""
        self.size_bytes = min(self.size_bytes, position)

    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes, from memory, their files, or the log itself.  Raises `CorruptLog` or `OSError`."""
        indexes = self._indexes
        if indexes is None:
            return run_inline(self.load_indexes(INLINE))
        if not self._is_active:
            self._cache.touch(self)
        return indexes

    async def load_indexes(self, offload: Offload) -> tuple[OffsetIndex, TimeIndex]:
        """`indexes` in steps: the files are read by `offload`."""
        if self._indexes is None:
            contents = await offload(partial(read_index_files, self._disk, self.path))
            if self._indexes is None:
                indexes = self._checked_indexes(contents)
                if indexes is None:
                    return await self.rebuild_indexes(offload)
                self._keep_indexes(indexes)
        return self.indexes()

    def _keep_indexes(self, indexes: tuple[OffsetIndex, TimeIndex]) -> None:
        self._indexes = indexes
        self._add_to_cache()

    def _add_to_cache(self) -> None:
        kept = (*(self._indexes or ()), *(() if self._aborted is None else (self._aborted,)))
        self._cache.add(self, sum(index.size_bytes for index in kept))

    def read_index_files(self) -> tuple[OffsetIndex, TimeIndex] | None:
        """The indexes as their files have them, None when a file is missing or cannot be an index of this log."""
        return self._checked_indexes(read_index_files(self._disk, self.path))

    def _checked_indexes(self, contents: tuple[bytes, bytes] | None) -> tuple[OffsetIndex, TimeIndex] | None:
        self.open()
        indexes = None if contents is None else indexes_in(contents, self.size_bytes)
        return indexes if indexes is not None and self._ends_right(*indexes) else None

    def _ends_right(self, offset_index: OffsetIndex, time_index: TimeIndex) -> bool:
        """Whether the time index's last entry is true: retention deletes by it."""
        if self.size_bytes == 0:
            return not len(time_index)
        if len(time_index):
            return self._is_true_entry(offset_index, time_index, len(time_index) - 1)
        head = self.open().read_at(0, BATCH_OVERHEAD_BYTES)
        return len(head) == BATCH_OVERHEAD_BYTES and HEADER.unpack_from(head)[8] < 0

    async def rebuild_indexes(self, offload: Offload) -> tuple[OffsetIndex, TimeIndex]:
        """Make the indexes again from the heads of the batches, in memory and, of a closed segment, on disk.

        Raises `CorruptLog` or `OSError`: the segment is as it was.
        """
        file = self.open()
        # Built by another segment object of the same file, so that no reader sees half of it.
        counted = copy(self)
        size_bytes = self.size_bytes if self._is_active else file.size_bytes()
        counted.become_active(OffsetIndex(), TimeIndex())
        scan = BatchScan(file, 0, size_bytes, HEAD_CHUNK_BYTES)
        problem = None
        next_offset, pause_at = self.base_offset, 0
        for position, head in scan.heads():
            last_offset = head[0] + head[6]
            if head[0] < next_offset or last_offset > self.last_offset_max:
                problem = f"a batch with base offset {head[0]} after offset {next_offset - 1}"
                break
            counted.account(LOG_OVERHEAD_BYTES + head[1], last_offset, head[8])
            next_offset = last_offset + 1
            if position >= pause_at and not self._is_active:
                await offload.pause()
                pause_at = position + STEP_BYTES
        problem = scan.problem if problem is None else problem
        if problem is not None:
            raise CorruptLog(self.log_path, scan.position, next_offset, problem)
        if not self._is_active:
            counted.try_to_write_indexes()
        return self._take_over(counted)

    def try_to_write_indexes(self) -> None:
        """Readers need the indexes in memory only: without their files they are rebuilt once they are dropped."""
        try:
            self.write_indexes()
        except OSError as error:
            _log.warning("index.not_written", extra=fields(path=self.path, error=str(error)))
            with suppress(OSError):
                remove_index_files(self._disk, self.path)

    def _take_over(self, counted: Segment) -> tuple[OffsetIndex, TimeIndex]:
        indexes = counted.indexes()
        self.size_bytes = counted.size_bytes
        self._bytes_since_index = counted._bytes_since_index
        self.max_timestamp_ms, self.max_timestamp_offset = counted.max_timestamp_ms, counted.max_timestamp_offset
        self.first_timestamp_ms = counted.first_timestamp_ms
        if self._is_active:
            self._indexes = indexes
            self.roll_at_bytes = counted.roll_at_bytes
            self._set_roll_times()
        else:
            self._keep_indexes(indexes)
        return indexes

    def drop_indexes(self) -> None:
        assert not self._is_active
        self._indexes = self._aborted = None

    def greatest_timestamp(self) -> tuple[int, int]:
        """(greatest timestamp in ms or -1, last offset of the first batch that has it)."""
        if self.max_timestamp_ms is None:
            time_index = self.indexes()[1]
            if self.max_timestamp_ms is None:
                self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
                if len(time_index):
                    self.max_timestamp_ms = time_index.timestamp_ms(-1)
                    self.max_timestamp_offset = self.base_offset + time_index.relative_offset(-1)
        return self.max_timestamp_ms, self.max_timestamp_offset

    def aborted(self) -> AbortedIndex:
        """Those that end in this segment, from memory or their file.  Raises `CorruptLog` or `OSError`."""
        aborted = self._aborted
        if aborted is None:
            aborted = self._aborted = read_aborted_index(self._disk, self.path)
            if not self._is_active:
                self._add_to_cache()
        return aborted

    def start_aborted(self) -> None:
        """None are known: the segment is empty, or all of its batches follow."""
        self._aborted = AbortedIndex()

    def replace_aborted(self, aborted: AbortedIndex) -> None:
        """They were found in the log: the file was damaged."""
        self._aborted = aborted
        self.write_aborted()
        if not self._is_active:
            self._add_to_cache()

    def write_aborted(self) -> None:
        """Write their file as they are now, without a sync.

        Beside a roll and a clean stop, where the other indexes are written, this is after each cut: a file that has
        transactions above the log's end must not be found by the next start.
        """
        write_aborted(self._disk, self.path, self.aborted())

    def end_offset_near(self, position: int) -> int | None:
        """An offset that no batch before `position` reaches, near it; None after the last index entry."""
        offset_index = self.indexes()[0]
        slot = offset_index.slot_at(position - 1) + 1
        if slot >= len(offset_index):
            return None
        head = self.open().read_at(offset_index.position(slot), BATCH_OVERHEAD_BYTES)
        if len(head) < BATCH_OVERHEAD_BYTES:
            return None
        fields_of_head = HEADER.unpack_from(head)
        last_offset: int = fields_of_head[0] + fields_of_head[6]
        # An entry that is wrong limits nothing.
        return fields_of_head[0] if last_offset == self.base_offset + offset_index.relative_offset(slot) else None

    def find(self, offset: int) -> tuple[int, BatchTuple] | None:
        """(position, head) of the first batch that ends at or above `offset`; None when all end below it."""
        found = self._find_from_index(self.indexes()[0], offset)
        if found is _BAD_INDEX:
            found = self._find_from_index(run_inline(self.rebuild_indexes(INLINE))[0], offset)
            assert found is not _BAD_INDEX
        return None if found == _NOTHING else found

    async def find_in_steps(self, offset: int, offload: Offload) -> tuple[int, BatchTuple] | None:
        """`find` with pauses where indexes are loaded."""
        found = self._find_from_index((await self.load_indexes(offload))[0], offset)
        if found is _BAD_INDEX:
            found = self._find_from_index((await self.rebuild_indexes(offload))[0], offset)
            assert found is not _BAD_INDEX
        return None if found == _NOTHING else found

    def _find_from_index(self, offset_index: OffsetIndex, offset: int) -> tuple[int, BatchTuple]:
        file = self.open()
        end_position, indexed_last = self.size_bytes, -1
        relative_offset, position, next_position = offset_index.around(offset - self.base_offset)
        if relative_offset is not None:
            if not 0 <= position < end_position or relative_offset < 0:
                return _BAD_INDEX
            indexed_last = self.base_offset + relative_offset
        if next_position < 0:
            next_position = end_position
        scan = BatchScan(file, position, end_position, HEAD_CHUNK_BYTES)
        next_offset = self.base_offset
        for at, head in scan.heads():
            last_offset = head[0] + head[6]
            if indexed_last >= 0:
                if last_offset != indexed_last:
                    return _BAD_INDEX
                indexed_last = -1
            elif head[0] != next_offset and (head[0] < next_offset or not self.may_have_gaps):
                # Each batch follows from the one before.
                raise CorruptLog(self.log_path, at, next_offset, f"base offset {head[0]} instead of {next_offset}")
            if last_offset >= offset:
                return at, head
            if at >= next_position:
                # The next entry says that a batch which ends above `offset` starts there.
                return _BAD_INDEX
            next_offset = last_offset + 1
        if scan.problem is not None:
            if indexed_last >= 0:
                return _BAD_INDEX
            raise CorruptLog(self.log_path, scan.position, offset, scan.problem)
        return _NOTHING

    def end_below(self, offset: int) -> int:
        """Where the last batch ends (exclusive) that is wholly below `offset`; the base offset when there is none."""
        offset_index = self.indexes()[0]
        slot = offset_index.slot_for(offset - 1 - self.base_offset)
        position = offset_index.position(slot) if slot >= 0 else 0
        end_offset = self._end_below(offset, max(position, 0))
        if slot >= 0 and end_offset <= self.base_offset + offset_index.relative_offset(slot):
            # The entry was wrong: it names a batch below `offset`.
            return self._end_below(offset, 0)
        return end_offset

    def _end_below(self, offset: int, position: int) -> int:
        end_offset = self.base_offset
        for _, head in BatchScan(self.open(), position, self.size_bytes, HEAD_CHUNK_BYTES).heads():
            if head[0] + head[6] >= offset:
                break
            end_offset = head[0] + head[6] + 1
        return end_offset

    async def offset_after_older(self, timestamp_ms: int, offload: Offload) -> int:
        """An offset below which every record is older than `timestamp_ms`: the greatest that the time index knows."""
        offset_index, time_index = await self.load_indexes(offload)
        slot = time_index.slot_for(timestamp_ms)
        if slot >= 0 and not self._is_true_entry(offset_index, time_index, slot):
            time_index = (await self.rebuild_indexes(offload))[1]
            slot = time_index.slot_for(timestamp_ms)
        return self.base_offset + time_index.relative_offset(slot) + 1 if slot >= 0 else self.base_offset

    def _is_true_entry(self, offset_index: OffsetIndex, time_index: TimeIndex, slot: int) -> bool:
        """Whether an entry of the time index names a batch of its timestamp.

        After the last entry of a closed segment no greater timestamp may follow soon.
        """
        offset = self.base_offset + time_index.relative_offset(slot)
        timestamp_ms = time_index.timestamp_ms(slot)
        position, head = self._find_from_index(offset_index, offset)
        if position < 0 or head[0] + head[6] != offset or head[8] != timestamp_ms:
            return False
        if slot + 1 == len(time_index) and not self._is_active:
            for at, following in BatchScan(self.open(), position, self.size_bytes, HEAD_CHUNK_BYTES).heads():
                if following[8] > timestamp_ms:
                    return False
                if at - position > _CHECKED_AFTER_LAST_ENTRY_BYTES:
                    break
        return True


def _write_rest(file: File, position: int, data: Buffer, written: int) -> None:
    # Mostly a disk that fills up: the second write raises the error that says why.
    write_fully(file, position + written, bytes(memoryview(data)[written:]))


def hash_of(text: str) -> int:
    """A hash that is the same in every process (FNV-1a, 32 bits)."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
