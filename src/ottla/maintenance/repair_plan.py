"""What `ottla log repair` would do to one damaged log: the batches kept, the offsets lost, the files changed.

Offsets never change and are never assigned twice: where records are lost, an empty batch takes their place, as Apache
Kafka's compaction leaves them, so that the log stays dense and ends where it ended.  Consumers skip it.
Planning only reads; `repair` executes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from ottla.maintenance.salvage import Bounds, Whole, heaviest_rising, whole_batches
from ottla.model.identifiers import NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ottla.records.checksum import crc32c
from ottla.records.header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CRC,
    CRC_AT,
    HEADER,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
)
from ottla.runtime.disk import Disk, File, read_file
from ottla.storage.log_files import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    base_offsets_in,
    lost_base_offsets_in,
    segment_file_name,
)
from ottla.storage.segment.batch_scan import BatchScan
from ottla.storage.segment.indexes import OffsetIndex
from ottla.storage.segment.segment import RELATIVE_OFFSET_MAX

_DELTA_MAX: Final = 2**31 - 2


class Recorded(NamedTuple):
    """The records about a log besides its files; None: unknown.

    While the flushed end is unknown, whole batches are kept, also after damaged bytes: they may have been acknowledged.
    """

    flushed_end: int | None
    log_start_offset: int | None
    may_have_gaps: bool = False


class Loss(NamedTuple):
    """Records that cannot be recovered: offsets [first_offset, end_offset), `size_bytes` damaged bytes."""

    path: str
    position: int
    first_offset: int
    end_offset: int
    size_bytes: int
    reason: str


class Copied(NamedTuple):
    """Whole batches of the old file."""

    position: int
    size_bytes: int


class NewSegment(NamedTuple):
    """What a segment's file becomes: runs of its old file and new bytes, one after the other."""

    base_offset: int
    parts: tuple[Copied | bytes, ...]

    @property
    def size_bytes(self) -> int:
        return sum(len(part) if isinstance(part, bytes) else part.size_bytes for part in self.parts)


@dataclass(slots=True)
class RepairPlan:
    """`kept_records` counts offsets.  No file has to change when `is_needed` is False."""

    directory: str
    losses: list[Loss] = field(default_factory=list)
    segments: list[NewSegment] = field(default_factory=list)
    lost_side_files: list[str] = field(default_factory=list)
    epochs_corrected: int = 0
    kept_records: int = 0
    # Where the repaired log ends, exclusive.
    end_offset: int = 0
    # Cut off at the end of a log whose flushed end is unknown: the count of their records is unknown.
    tail_bytes: int = 0

    @property
    def is_needed(self) -> bool:
        return bool(self.segments or self.lost_side_files)

    @property
    def lost_offsets_count(self) -> int:
        return sum(loss.end_offset - loss.first_offset for loss in self.losses)

    @property
    def lost_bytes(self) -> int:
        return sum(loss.size_bytes for loss in self.losses)


def plan_repair(disk: Disk, directory: str, recorded: Recorded) -> RepairPlan:
    """Read all of a partition's log and plan its repair.  Raises `OSError` for what cannot be read."""
    return _Planner(disk, directory, recorded).plan()


class _Found(NamedTuple):
    """A segment as it is: its runs of batches, the damage after them, and how its file would change."""

    base_offset: int
    size_bytes: int
    end_offset: int
    # (leader epoch, number of batches), in order.
    epochs: tuple[tuple[int, int], ...]
    problem: str | None
    # Only of damaged segments.
    kept: tuple[Whole, ...] = ()

    @property
    def is_damaged(self) -> bool:
        return self.problem is not None


class _Planner:
    def __init__(self, disk: Disk, directory: str, recorded: Recorded) -> None:
        self._disk = disk
        self._directory = directory
        self._recorded = recorded
        self._flushed_end = recorded.flushed_end or 0
        self._plan = RepairPlan(directory)
        self._epoch = NO_LEADER_EPOCH

    def plan(self) -> RepairPlan:
        names = self._disk.list_directory(self._directory)
        bases = base_offsets_in(names)
        start = self._recorded.log_start_offset
        start = (bases[0] if bases else 0) if start is None else start
        # Segments wholly below the log's start are removed at the next opening anyway.
        bases = bases[max(0, len([base for base in bases if base <= start]) - 1) :]
        self._plan_lost_side_files(names, start)
        ends: list[int | None] = [*bases[1:], None][: len(bases)]
        found = [self._look(base, end) for base, end in zip(bases, ends, strict=True)]
        found = self._with_true_epochs(found)
        self._plan.end_offset = max(start, self._flushed_end, *(segment.end_offset for segment in found))
        if (not found or found[0].base_offset > start) and start < self._flushed_end:
            end = found[0].base_offset if found else self._flushed_end
            self._lose_files(start, end)
        for slot, segment in enumerate(found):
            self._plan_segment(segment, found[slot + 1] if slot + 1 < len(found) else None)
        return self._plan

    def _plan_lost_side_files(self, names: Sequence[str], start: int) -> None:
        for base in lost_base_offsets_in(names):
            if start <= base < self._flushed_end:
                sides = [segment_file_name(base, suffix) for suffix in SEGMENT_SUFFIXES]
                self._plan.lost_side_files += [name for name in sides if name in names]

    def _path(self, base_offset: int) -> str:
        return f"{self._directory}/{segment_file_name(base_offset)}"

    def _look(self, base_offset: int, end_offset: int | None) -> _Found:
        file = self._disk.open(self._path(base_offset), read_only=True)
        try:
            found = self._walk(file, base_offset)
            if found.problem is None and (end_offset is None or found.end_offset <= end_offset):
                return found
            is_acknowledged = self._recorded.flushed_end is None or found.end_offset < self._flushed_end
            if end_offset is None and not is_acknowledged:
                return found._replace(problem=None)  # a torn tail, never acknowledged: recovery cuts it
            bounds = Bounds(base_offset, end_offset)
            kept = whole_batches(file, bounds, self._indexed_positions(base_offset, file.size_bytes()))
        finally:
            file.close()
        fitting = tuple(self._without_doubtful(kept, bounds))
        end = fitting[-1].end_offset if fitting else base_offset
        epochs = tuple((epoch, len(list(run))) for epoch, run in groupby(each.leader_epoch for each in fitting))
        problem = found.problem or f"its batches continue to offset {found.end_offset}, into the next segment"
        return _Found(base_offset, found.size_bytes, end, epochs, problem, fitting)

    def _walk(self, file: File, base_offset: int) -> _Found:
        """One pass without keeping batches: most segments are whole."""
        size_bytes = file.size_bytes()
        scan = BatchScan(file, 0, size_bytes)
        expected = base_offset
        epochs: list[tuple[int, int]] = []
        problem = None
        for head in scan.checked_heads():
            if head[0] < expected or (head[0] > expected and not self._recorded.may_have_gaps):
                problem = f"a batch with base offset {head[0]} instead of {expected}"
                break
            if head[0] + head[6] - base_offset > RELATIVE_OFFSET_MAX:
                problem = f"offset {head[0] + head[6]} is too far from the segment's base offset"
                break
            expected = head[0] + head[6] + 1
            if epochs and epochs[-1][0] == head[2]:
                epochs[-1] = (head[2], epochs[-1][1] + 1)
            else:
                epochs.append((head[2], 1))
        return _Found(base_offset, size_bytes, expected, tuple(epochs), problem or scan.problem)

    def _indexed_positions(self, base_offset: int, log_size_bytes: int) -> frozenset[int]:
        path = f"{self._directory}/{segment_file_name(base_offset, INDEX_SUFFIX)}"
        if not self._disk.exists(path):
            return frozenset()
        index = OffsetIndex.from_bytes(read_file(self._disk, path), log_size_bytes)
        return frozenset() if index is None or not index.is_increasing() else frozenset(index.positions)

    def _without_doubtful(self, kept: Sequence[Whole], bounds: Bounds) -> Iterator[Whole]:
        """Base offsets are under no checksum.  A wrong one shows by what follows it; only after the last segment's
        last batches nothing follows: there a gap neither leads beyond what was flushed, nor does a batch after a gap
        without damaged bytes in it.  While the flushed end is unknown only the latter is doubtful.
        """
        expected, position = bounds.base_offset, 0
        for each in kept:
            if bounds.end_offset is None and each.base_offset > expected:
                is_seamless = each.position == position and not self._recorded.may_have_gaps
                is_beyond = self._recorded.flushed_end is not None and each.base_offset > self._flushed_end
                if is_beyond or (is_seamless and each.end_offset > self._flushed_end):
                    continue
            yield each
            expected, position = each.end_offset, each.end_position

    def _with_true_epochs(self, found: Sequence[_Found]) -> list[_Found]:
        """Epochs never fall; where they do, the few are wrong, and get the epoch of those before (no checksum covers
        epochs).  A segment that has such batches counts as damaged although it loses none.
        """
        runs = [run for segment in found for run in segment.epochs]
        chosen = set(heaviest_rising([(run[0], run[0]) for run in runs], [run[1] for run in runs]))
        if len(chosen) == len(runs):
            return list(found)
        true_epochs: list[int] = []
        for slot, (epoch, count) in enumerate(runs):
            if slot in chosen:
                true_epochs.append(epoch)
            else:
                following = next((runs[later][0] for later in range(slot, len(runs)) if later in chosen), epoch)
                true_epochs.append(true_epochs[-1] if true_epochs else following)
                self._plan.epochs_corrected += count
        corrected: list[_Found] = []
        at = 0
        for segment in found:
            runs_count = len(segment.epochs)
            corrected.append(self._with_epochs(segment, true_epochs[at : at + runs_count]))
            at += runs_count
        return corrected

    def _with_epochs(self, segment: _Found, true_epochs: Sequence[int]) -> _Found:
        if [epoch for epoch, _ in segment.epochs] == list(true_epochs):
            return segment
        kept = segment.kept
        if not segment.is_damaged:
            file = self._disk.open(self._path(segment.base_offset), read_only=True)
            try:
                # After a torn tail nothing was counted, and nothing is kept.
                found = whole_batches(file, Bounds(segment.base_offset, None), frozenset())
                kept = tuple(found[: sum(count for _, count in segment.epochs)])
            finally:
                file.close()
        epochs = [epoch for epoch, (_, count) in zip(true_epochs, segment.epochs, strict=True) for _ in range(count)]
        restamped = tuple(each._replace(leader_epoch=epoch) for each, epoch in zip(kept, epochs, strict=True))
        problem = segment.problem or "leader epochs fall"
        return segment._replace(problem=problem, kept=restamped)

    def _plan_segment(self, segment: _Found, following: _Found | None) -> None:
        end = segment.end_offset if following is None else following.base_offset
        if following is None:
            end = max(end, self._flushed_end)
        if segment.is_damaged:
            self._plan_damaged(segment, end, is_last=following is None)
        else:
            self._plan.kept_records += segment.end_offset - segment.base_offset
            if segment.epochs:
                self._epoch = segment.epochs[-1][0]
            if segment.end_offset < end and (following is None or not self._recorded.may_have_gaps):
                self._lose_files(segment.end_offset, end)

    def _plan_damaged(self, segment: _Found, end: int, *, is_last: bool) -> None:
        assert segment.problem is not None
        path = self._path(segment.base_offset)
        parts: list[Copied | bytes] = []
        expected, position = segment.base_offset, 0
        for each in segment.kept:
            if each.base_offset > expected and (each.position > position or not self._recorded.may_have_gaps):
                size_bytes = each.position - position
                self._lose(Loss(path, position, expected, each.base_offset, size_bytes, segment.problem))
                parts += self._fillers(segment.base_offset, expected, each.base_offset)
            self._epoch = each.leader_epoch
            self._add_copied(path, each, parts)
            self._plan.kept_records += each.end_offset - each.base_offset
            expected, position = each.end_offset, each.end_position
        spilled = expected
        if is_last and self._recorded.flushed_end is None:
            self._plan.tail_bytes = segment.size_bytes - position
        if expected < end and (is_last or position < segment.size_bytes or not self._recorded.may_have_gaps):
            self._lose(Loss(path, position, expected, end, segment.size_bytes - position, segment.problem))
            spilled = min(end, segment.base_offset + RELATIVE_OFFSET_MAX + 1)
            parts += self._fillers(segment.base_offset, expected, spilled)
        else:
            spilled = end
        self._plan.segments.append(NewSegment(segment.base_offset, tuple(parts)))
        self._fill_files(spilled, end)

    def _add_copied(self, path: str, whole: Whole, parts: list[Copied | bytes]) -> None:
        """The batch unchanged, or with its true epoch; adjacent batches become one run."""
        if whole.stored_epoch != whole.leader_epoch:
            file = self._disk.open(path, read_only=True)
            try:
                head = bytearray(file.read_at(whole.position, BATCH_OVERHEAD_BYTES))
            finally:
                file.close()
            LEADER_EPOCH.pack_into(head, LEADER_EPOCH_AT, whole.leader_epoch)
            parts.append(bytes(head))
            parts.append(Copied(whole.position + BATCH_OVERHEAD_BYTES, whole.size_bytes - BATCH_OVERHEAD_BYTES))
            return
        former = parts[-1] if parts else None
        if isinstance(former, Copied) and former.position + former.size_bytes == whole.position:
            parts[-1] = Copied(former.position, former.size_bytes + whole.size_bytes)
        else:
            parts.append(Copied(whole.position, whole.size_bytes))

    def _lose(self, loss: Loss) -> None:
        """Below the log's start nothing can be lost."""
        first = max(loss.first_offset, self._recorded.log_start_offset or 0)
        if first < loss.end_offset:
            self._plan.losses.append(loss._replace(first_offset=first))

    def _lose_files(self, first_offset: int, end_offset: int) -> None:
        self._lose(Loss(self._path(first_offset), -1, first_offset, end_offset, 0, "the file ends here or is missing"))
        self._fill_files(first_offset, end_offset)

    def _fill_files(self, first_offset: int, end_offset: int) -> None:
        """New segments of nothing but empty batches, as long as one segment may be."""
        while first_offset < end_offset:
            end = min(end_offset, first_offset + RELATIVE_OFFSET_MAX + 1)
            self._plan.segments.append(NewSegment(first_offset, tuple(self._fillers(first_offset, first_offset, end))))
            first_offset = end

    def _fillers(self, segment_base_offset: int, first_offset: int, end_offset: int) -> list[bytes]:
        assert end_offset - 1 - segment_base_offset <= RELATIVE_OFFSET_MAX
        found = []
        while first_offset < end_offset:
            end = min(end_offset, first_offset + _DELTA_MAX + 1)
            found.append(empty_batch(first_offset, end, self._epoch))
            first_offset = end
        return found


def empty_batch(base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """A batch without records that covers [base_offset, end_offset)."""
    delta = end_offset - base_offset - 1
    assert 0 <= delta <= _DELTA_MAX
    batch = bytearray(BATCH_OVERHEAD_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        0,
        delta,
        NO_TIMESTAMP,
        NO_TIMESTAMP,
        NO_PRODUCER_ID,
        -1,
        -1,
        0,
    )
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)
