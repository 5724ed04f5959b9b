"""Opening one log: what its files hold, and after an unclean stop, what of that is trusted.

Unclean: every segment that reaches the recorded flushed end is read whole (checksums, offsets without a gap, epochs
that never fall).  After the last whole batch the tail is cut if it is above the recorded flushed end: it was
never acknowledged.  Damage below it is no torn tail: the log is refused and its files stay as they are.  So is a log
that holds records when its flushed end is unknown: a torn tail and lost records look the same then.
Segments wholly below the recorded flushed end were synced together with their indexes before it was recorded: of them,
and of all closed segments after a clean stop, only the end is held against the next one's base offset.
Indexes, snapshots and the epochs' checkpoint are caches: rebuilt from the batches wherever they were not synced.

Everything here may be interrupted by a crash and started again: a cut only removes what the next opening would cut.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ottla.model.identifiers import NO_OFFSET
from ottla.observe.events import fields
from ottla.records.header import LOG_OVERHEAD_BYTES, BatchHeader
from ottla.runtime.disk import Disk, File
from ottla.storage.checkpoints import LEADER_EPOCH_FILE, EpochStart
from ottla.storage.compaction.compacted_mark import read_compacted_end
from ottla.storage.compaction.swap import SWAP_FILE, complete_swap
from ottla.storage.errors import CorruptLog, FlushedEndUnknown, StorageError
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log.log import LogParts
from ottla.storage.log_config import LogConfig
from ottla.storage.log_files import (
    COMPACTED_FILE,
    DISTRUSTED_FILE,
    FLUSHED_ENDS_FILE,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    base_offsets_in,
    leftovers_in,
    lost_base_offsets_in,
    segment_file_name,
)
from ottla.storage.producers.log_transactions import LogTransactions
from ottla.storage.producers.producer_snapshot import snapshot_file_name, snapshot_offsets_in, write_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.replay import ensure_snapshot, epoch_starts, heads, marker_at, producers_at
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.indexes import OFFSET_ENTRY_BYTES, IndexCache, OffsetIndex, TimeIndex
from ottla.storage.segment.segment import Segment

# Where a closed segment ends, by its last batch: found from the offset index's last entry on, so that a start can read
# every segment of a thousand logs.
#
# Nothing else shows that a file has lost its end: the next segment's name says only where that end should have been.

_ENTRY: Final = struct.Struct(">ii")
_WRONG_ENTRY: Final = None


class ClosedEnd(NamedTuple):
    """The end of the last whole batch: offset (exclusive) and position; `problem`: why the file is longer."""

    end_offset: int
    position: int
    problem: str | None


def closed_end(
    disk: Disk, stem: str, base_offset: int, size_bytes: int, *, has_index: bool, may_have_gaps: bool
) -> ClosedEnd:
    """Read the heads at the end of a `.log` file of `size_bytes`, all of them where the index is of no use.

    Files are closed again: a start does not hold a descriptor for each segment.  Raises `OSError`.
    """
    if not size_bytes:
        return ClosedEnd(base_offset, 0, None)
    entry = _last_entry(disk, stem) if has_index else None
    file = disk.open(stem + LOG_SUFFIX, read_only=True)
    try:
        if entry is not None and 0 < entry[1] < size_bytes:
            last_offset, position = base_offset + entry[0], entry[1]
            found = _walk(file, base_offset, position, last_offset, size_bytes, may_have_gaps=may_have_gaps)
            if found is not _WRONG_ENTRY:
                return found
        found = _walk(file, base_offset, 0, None, size_bytes, may_have_gaps=may_have_gaps)
        assert found is not None
        return found
    finally:
        file.close()


def _last_entry(disk: Disk, stem: str) -> tuple[int, int] | None:
    """(relative last offset, position) of the last batch that the index names."""
    file = disk.open(stem + INDEX_SUFFIX, read_only=True)
    try:
        index_bytes = file.size_bytes()
        if index_bytes < OFFSET_ENTRY_BYTES or index_bytes % OFFSET_ENTRY_BYTES:
            return None
        entry = file.read_at(index_bytes - OFFSET_ENTRY_BYTES, OFFSET_ENTRY_BYTES)
    finally:
        file.close()
    if len(entry) < OFFSET_ENTRY_BYTES:
        return None
    relative_offset, position = _ENTRY.unpack(entry)
    return relative_offset, position


def _walk(
    file: File, base_offset: int, position: int, indexed_offset: int | None, size_bytes: int, *, may_have_gaps: bool
) -> ClosedEnd | None:
    """The end, from the batch at `position` on; None when that is not the one that ends with `indexed_offset`."""
    scan = BatchScan(file, position, size_bytes, HEAD_CHUNK_BYTES)
    end_offset = base_offset
    for at, head in scan.heads():
        if indexed_offset is not None:
            if head[0] + head[6] != indexed_offset:
                return _WRONG_ENTRY
            indexed_offset = None
        elif head[0] < end_offset or (head[0] > end_offset and not may_have_gaps):
            return ClosedEnd(end_offset, at, f"a batch with base offset {head[0]} instead of {end_offset}")
        end_offset = head[0] + head[6] + 1
    if indexed_offset is not None:
        return _WRONG_ENTRY
    return ClosedEnd(end_offset, scan.position, scan.problem)


_log = logging.getLogger(__name__)


class Recorded(NamedTuple):
    """The directory's checkpoints of one log."""

    # None: unknown, the record is lost.
    flushed_end: int | None
    # None: unknown, then the log starts with its first segment.
    log_start_offset: int | None
    was_clean: bool


def holds_records(disk: Disk, path: str) -> bool:
    """Whether a partition's directory has more than empty segments.  Raises `OSError`."""
    names = disk.list_directory(path)
    # Amid a swap a segment may have neither its old name nor its new one.
    return SWAP_FILE in names or any(
        disk.file_size_bytes(f"{path}/{name}") for name in names if name.endswith(LOG_SUFFIX)
    )


class LogRecovery:
    """The opening of one log; `run` once."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        names: Sequence[str],
        config: LogConfig,
        cache: IndexCache,
        recorded: Recorded,
        now_ms: int,
    ) -> None:
        """`names` are those in the directory at `path`: a thousand logs are listed once each."""
        self._disk = disk
        self._path = path
        self._names = names
        self._config = config
        self._cache = cache
        self._recorded = recorded
        self._now_ms = now_ms
        self._segments: list[Segment] = []
        self._producers = ProducerStates(config.producer_id_expiration_ms)
        self._transactions = LogTransactions(self._producers)
        self._log_end_offset = 0
        self._flushed_end = 0
        self._last_epoch = -1
        # Where epochs start among the batches that were scanned.
        self._epoch_starts: list[EpochStart] = []
        # Whether no record is left.
        self._is_anew = False
        # Whether files were changed or read that no sync is known to cover: then the caller syncs before it serves.
        self.needs_sync = False

    def run(self) -> LogParts:
        """Raises `CorruptLog` for damage below the recorded flushed end, `FlushedEndUnknown`, and `OSError`."""
        try:
            return self._run()
        except (StorageError, OSError):
            for segment in self._segments:
                segment.close()
            raise

    def _run(self) -> LogParts:
        if (
            self._recorded.flushed_end is None
            and not self._recorded.was_clean
            and holds_records(self._disk, self._path)
        ):
            raise FlushedEndUnknown(self._path, f"{self._path.rpartition('/')[0]}/{FLUSHED_ENDS_FILE}")
        if SWAP_FILE in self._names:
            complete_swap(self._disk, self._path)
            self._names = self._disk.list_directory(self._path)
        names = self._names
        compacted_end = None
        if COMPACTED_FILE in names:
            compacted_end = read_compacted_end(self._disk, self._path)
            self._config = replace(self._config, was_compacted=True)
        # No clean reaches above the flushed end, whose record may be older than the truth.
        self._flushed_end = max(compacted_end or 0, self._recorded.flushed_end or 0)
        self._refuse_lost_segments(names)
        for name in leftovers_in(names):
            self._disk.remove(f"{self._path}/{name}")
        base_offsets = self._present_base_offsets(base_offsets_in(names))
        self._segments = [self._segment(base_offset) for base_offset in base_offsets]
        first_scanned = len(self._segments)
        is_trusted = DISTRUSTED_FILE not in self._names
        if not (is_trusted and self._recorded.was_clean and self._open_clean()):
            self.needs_sync = True
            first_scanned = self._first_slot_to_scan()
            if not is_trusted:
                first_scanned = 0
            self._check_closed_ends(first_scanned)
            self._load_producers(self._segments[first_scanned].base_offset)
            self._scan_from(first_scanned)
        else:
            self._check_closed_ends(first_scanned - 1)
            self._load_producers(self._log_end_offset)
        self._refuse_if_flushed(self._segments[-1], "the file ends here")
        if not is_trusted:
            # All of it was read, and is whole.
            self._disk.remove(f"{self._path}/{DISTRUSTED_FILE}")
        self._start_anew_if_all_is_below_the_start()
        self._remove_stray_snapshots(base_offsets)
        first_base_offset = self._segments[0].base_offset
        recorded_start = self._recorded.log_start_offset or 0
        log_start_offset = min(max(recorded_start, first_base_offset), self._log_end_offset)
        epochs = self._load_epochs(first_scanned)
        self._transactions.flushed(self._log_end_offset)
        return LogParts(
            segments=self._segments,
            log_start_offset=log_start_offset,
            log_end_offset=self._log_end_offset,
            flushed_end=self._log_end_offset,
            producers=self._producers,
            transactions=self._transactions,
            epochs=epochs,
            caches_end=NO_OFFSET if first_scanned < len(self._segments) else self._log_end_offset,
            config=self._config,
        )

    def _segment(self, base_offset: int) -> Segment:
        size_bytes = self._disk.file_size_bytes(f"{self._path}/{segment_file_name(base_offset)}")
        return Segment(self._disk, self._path, base_offset, self._config, self._cache, self._now_ms, size_bytes)

    def _refuse_lost_segments(self, names: Sequence[str]) -> None:
        """Below the flushed end a log file is removed only after the log start has passed it, its indexes with it."""
        start = self._recorded.log_start_offset
        if start is None:
            start = next(iter(base_offsets_in(names)), 0)
        for base_offset in lost_base_offsets_in(names):
            if start <= base_offset < self._flushed_end:
                path = f"{self._path}/{segment_file_name(base_offset)}"
                raise CorruptLog(path, -1, base_offset, "the file is missing, its indexes are there")

    def _present_base_offsets(self, base_offsets: list[int]) -> list[int]:
        start = self._recorded.log_start_offset
        if start is None:
            start = base_offsets[0] if base_offsets else 0
        # Wholly below the log start: retention had them, and a crash came before their files went.
        below_count = bisect_right(base_offsets, start) - 1
        if below_count > 0:
            self._remove_below_start(base_offsets[:below_count], base_offsets[below_count])
            base_offsets = base_offsets[below_count:]
        if base_offsets and base_offsets[0] <= start:
            return base_offsets
        if start < self._flushed_end:
            first_present = f"the first one present starts at {base_offsets[0]}" if base_offsets else "none is present"
            path = f"{self._path}/{segment_file_name(start)}"
            raise CorruptLog(path, -1, start, f"no file holds offsets from {start} on, {first_present}")
        if not base_offsets:
            self._disk.open(f"{self._path}/{segment_file_name(start)}", create=True).close()
            self.needs_sync = True
            return [start]
        return base_offsets

    def _remove_below_start(self, base_offsets: list[int], kept_base_offset: int) -> None:
        segments = [self._segment(base_offset) for base_offset in base_offsets]
        expiration_ms = self._producers.expiration_ms
        ensure_snapshot(self._disk, self._path, segments, kept_base_offset, self._now_ms, expiration_ms)
        for segment in segments:
            segment.close()
            for path in segment.existing_paths():
                self._disk.remove(path)
        self._names = self._disk.list_directory(self._path)

    def _open_clean(self) -> bool:
        """Use the indexes that a clean shutdown wrote; False when they do not fit the log after all."""
        active = self._segments[-1]
        file = active.open()
        size_bytes = active.size_bytes
        indexes = active.read_index_files() if size_bytes else (OffsetIndex(), TimeIndex())
        if indexes is None:
            return False
        try:
            active.aborted()
        except CorruptLog:
            return False
        position = active.become_active(*indexes)
        scan = BatchScan(file, position, size_bytes, HEAD_CHUNK_BYTES)
        expected = active.base_offset + indexes[0].relative_offset(-1) if position else active.base_offset
        self._log_end_offset = active.base_offset
        for at, head in scan.heads():
            # The index names the last offset of the batch at its position.
            found = head[0] + head[6] if at == position and position else head[0]
            if self._is_gap_in_file(found, expected):
                return False
            self._account(active, head)
            expected = self._log_end_offset
        return scan.problem is None and self._log_end_offset >= self._flushed_end

    def _check_closed_ends(self, count: int) -> None:
        """Hold the ends of the first segments, which are not scanned, against the names of those that follow them.

        They were flushed, even where no record says so: a follower that lost such an end would continue after the hole,
        and could be elected with it.
        """
        if not count:
            return
        names = set(self._names)
        may_have_gaps = self._config.may_have_gaps
        for segment, following in zip(self._segments[:count], self._segments[1 : count + 1], strict=True):
            base_offset, next_offset = segment.base_offset, following.base_offset
            has_index = f"{base_offset:020d}{INDEX_SUFFIX}" in names
            end = closed_end(
                self._disk,
                segment.path,
                base_offset,
                segment.size_bytes,
                has_index=has_index,
                may_have_gaps=may_have_gaps,
            )
            problem = end.problem
            if problem is None and self._is_gap_before_file(next_offset, end.end_offset):
                problem = f"the file ends here, and the next segment starts at offset {next_offset}"
            if problem is not None:
                raise CorruptLog(segment.log_path, end.position, end.end_offset, problem)

    def _account(self, segment: Segment, head: BatchTuple) -> None:
        last_offset = head[0] + head[6]
        segment.account(LOG_OVERHEAD_BYTES + head[1], last_offset, head[8])
        self._log_end_offset = last_offset + 1

    def _scan_from(self, slot: int) -> None:
        """Read the segments from `slot` on to the first place that is not whole, and cut there."""
        while True:
            segment = self._segments[slot]
            problem = self._scan(segment)
            following = self._segments[slot + 1] if slot + 1 < len(self._segments) else None
            if (
                problem is None
                and following is not None
                and self._is_gap_before_file(following.base_offset, self._log_end_offset)
            ):
                problem = f"the next segment starts at offset {following.base_offset}"
            if problem is not None:
                self._cut_behind(slot, problem)
                return
            if following is None:
                # The file may have what a power loss undid.
                segment.write_aborted()
                return
            self._close_scanned(segment, following.base_offset)
            slot += 1

    def _is_gap_in_file(self, found_offset: int, expected_offset: int) -> bool:
        """Offsets are dense, but where compaction took records out, here or in the leader that this log followed.

        Batches are contiguous, so between two whole ones none can be lost.
        """
        if found_offset > expected_offset:
            return not self._config.may_have_gaps
        return found_offset < expected_offset

    def _is_gap_before_file(self, found_offset: int, expected_offset: int) -> bool:
        """Between files only a clean makes gaps: above its end the former file has lost batches."""
        is_wider = found_offset > expected_offset and found_offset > self._flushed_end
        return is_wider or self._is_gap_in_file(found_offset, expected_offset)

    def _first_slot_to_scan(self) -> int:
        # A segment that ends right at the flushed end counts: its indexes are in the flush after its roll.
        for slot in range(len(self._segments) - 1):
            if self._segments[slot + 1].base_offset >= self._flushed_end:
                return slot
        return len(self._segments) - 1

    def _scan(self, segment: Segment) -> str | None:
        """Account for every whole batch of a segment; returns the problem after them, if any."""
        size_bytes = segment.open().size_bytes()
        segment.become_active(OffsetIndex(), TimeIndex())
        segment.start_aborted()
        self._log_end_offset = expected = segment.base_offset
        scan = BatchScan(segment.open(), 0, size_bytes)
        for head in scan.checked_heads():
            if self._is_gap_in_file(head[0], expected):
                return f"a batch with base offset {head[0]} instead of {expected}"
            if head[2] < self._last_epoch:
                return f"a batch of leader epoch {head[2]} after one of epoch {self._last_epoch}"
            if head[0] + head[6] > segment.last_offset_max:
                return f"offset {head[0] + head[6]} is too far from the segment's base offset"
            if head[2] > self._last_epoch:
                self._last_epoch = head[2]
                self._epoch_starts.append(EpochStart(head[2], head[0]))
            self._account(segment, head)
            if head[9] >= 0:
                marker = marker_at(segment.open(), scan.position, head)
                aborted = self._transactions.replay(BatchHeader._make(head), marker, self._now_ms)
                if aborted is not None:
                    segment.aborted().add(aborted)
            expected = self._log_end_offset
        return scan.problem

    def _close_scanned(self, segment: Segment, end_offset: int) -> None:
        """What a roll writes: indexes, and the producers as they were at the segment's end."""
        segment.write_indexes()
        write_snapshot(self._disk, self._path, end_offset, self._producers)
        segment.become_closed()

    def _cut_behind(self, slot: int, problem: str) -> None:
        """Make the segment at `slot` end with its last whole batch, and drop what follows if it was never flushed."""
        segment = self._segments[slot]
        self._refuse_if_flushed(segment, problem)
        if self._recorded.flushed_end is None:
            problem = f"{problem}; the stop was clean, so the log was whole"
            raise CorruptLog(segment.log_path, segment.size_bytes, self._log_end_offset, problem)
        tail_bytes = segment.open().size_bytes() - segment.size_bytes
        _log.warning(
            "log.tail_cut",
            extra=fields(
                path=segment.log_path,
                position=segment.size_bytes,
                offset=self._log_end_offset,
                tail_bytes=tail_bytes,
                segments_dropped=len(self._segments) - slot - 1,
                reason=problem,
            ),
        )
        # Newest first: a crash among these leaves a log that is cut at the same place again.
        for dropped in reversed(self._segments[slot + 1 :]):
            dropped.close()
            for path in dropped.existing_paths():
                self._disk.remove(path)
        del self._segments[slot + 1 :]
        if tail_bytes:
            segment.open().truncate(segment.size_bytes)
        segment.write_aborted()

    def _refuse_if_flushed(self, segment: Segment, problem: str) -> None:
        if self._log_end_offset < self._flushed_end:
            raise CorruptLog(
                segment.log_path,
                segment.size_bytes,
                self._log_end_offset,
                f"{problem}; the log was flushed up to offset {self._flushed_end}",
            )

    def _start_anew_if_all_is_below_the_start(self) -> None:
        """DeleteRecords went further than what a power loss left (policy `os`): its offsets are not given again."""
        start = self._recorded.log_start_offset
        if start is None or start <= self._log_end_offset:
            return
        self.needs_sync = True
        segment = Segment(self._disk, self._path, start, self._config, self._cache, self._now_ms)
        segment.open(create=True)
        segment.become_active(OffsetIndex(), TimeIndex())
        # The new one first: a crash in between leaves one that starts at the start, and the others wholly below it.
        for dropped in self._segments:
            dropped.close()
            for path in dropped.existing_paths():
                self._disk.remove(path)
        self._segments = [segment]
        self._producers = ProducerStates(self._producers.expiration_ms)
        self._transactions = LogTransactions(self._producers)
        self._is_anew = True
        self._log_end_offset = start

    def _load_producers(self, end_offset: int) -> None:
        # Later ones describe batches that were lost, or that are not believed before they are read.
        offsets = snapshot_offsets_in(self._names)
        self._remove_snapshots(offset for offset in offsets if offset > end_offset)
        self._producers = producers_at(
            self._disk, self._path, self._segments, end_offset, self._now_ms, self._producers.expiration_ms, offsets
        )
        self._transactions = LogTransactions(self._producers, end_offset)

    def _remove_stray_snapshots(self, base_offsets: Sequence[int]) -> None:
        """Keep those at the segments' base offsets and at the log's end; clean shutdowns leave others."""
        kept = {*base_offsets, self._log_end_offset}
        self._remove_snapshots(offset for offset in snapshot_offsets_in(self._names) if offset not in kept)

    def _remove_snapshots(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            path = f"{self._path}/{snapshot_file_name(offset)}"
            # It may have been removed since its name was listed.
            if self._disk.exists(path):
                self._disk.remove(path)

    def _load_epochs(self, first_scanned: int) -> LeaderEpochs:
        """The epochs' checkpoint up to where the scan started, and from there on from the batches' heads.

        After that place the checkpoint may be ahead of the log, or name batches that a power loss undid.
        """
        epochs = LeaderEpochs.load(self._disk, self._path) if LEADER_EPOCH_FILE in self._names else None
        if epochs is None:
            epochs = LeaderEpochs.empty(self._disk, self._path)
        if self._is_anew:
            epochs.replace_from(0, ())
            return epochs
        scanned_from = self._log_end_offset
        if first_scanned < len(self._segments):
            scanned_from = self._segments[first_scanned].base_offset
        starts = self._epoch_starts
        if not any(entry.start_offset < scanned_from for entry in epochs.entries):
            # The checkpoint was lost, if the log has batches there: then they are read too.
            starts = [*epoch_starts(heads(self._segments, 0, scanned_from), -1), *starts]
            scanned_from = 0
        epochs.replace_from(scanned_from, starts)
        return epochs
