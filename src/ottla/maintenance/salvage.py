"""Finds the batches of a damaged segment file that are provably whole.  Pure but for reading.

A batch is whole when its head can be one and its checksum is right.  Base offset and leader epoch are outside of the
checksum, so batches must also fit together: offsets rise in the order of positions, within the segment's bounds.
Where they contradict each other the heaviest set that fits is kept (a run of bytes that was copied over another one
loses against what follows), and none is ever given another offset than it claims.

After a damaged batch the walk continues where the lengths in the heads lead, if a whole batch is there.  Else the
bytes are searched; a batch found so counts only when the lengths from it on lead to the file's end or to an entry of
the offset index: a value that contains a batch is not mistaken for one of the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from typing import Final, NamedTuple

from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT
from ottla.runtime.disk import File
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.segment import RELATIVE_OFFSET_MAX

_SEARCH_CHUNK_BYTES: Final = 1024 * 1024


class Whole(NamedTuple):
    """A whole batch: its position in the file and its offsets (`end_offset` exclusive)."""

    position: int
    size_bytes: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    # As the file has it; `leader_epoch` is another one when that cannot be true.
    stored_epoch: int

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


class Bounds(NamedTuple):
    """The range of a segment's offsets: [base_offset, end_offset); `end_offset` None: the last segment."""

    base_offset: int
    end_offset: int | None

    def allows(self, head: BatchTuple) -> bool:
        end_offset = head[0] + head[6] + 1
        limit = self.base_offset + RELATIVE_OFFSET_MAX + 1
        if self.end_offset is not None:
            limit = min(limit, self.end_offset)
        return self.base_offset <= head[0] < end_offset <= limit


def whole_batches(file: File, bounds: Bounds, indexed_positions: Set[int]) -> list[Whole]:
    """The whole batches of a segment file that fit together, in order."""
    found = list(_candidates(file, bounds, indexed_positions))
    chosen = heaviest_rising([(each.base_offset, each.end_offset) for each in found])
    return [found[slot] for slot in chosen]


def heaviest_rising(ranges: Sequence[tuple[int, int]], weights: Sequence[int] | None = None) -> list[int]:
    """Slots of the heaviest choice of [start, end) ranges, in their order, where each starts at or after the end of
    the one before.  A range weighs its length unless `weights` says otherwise.  O(n log n).
    """
    # Ends and the best weight of a choice with that end: both rising, everything dominated is dropped.
    ends: list[int] = []
    best: list[int] = []
    last_slots: list[int] = []
    before: list[int] = []
    for slot, (start, end) in enumerate(ranges):
        at = bisect_right(ends, start) - 1
        before.append(last_slots[at] if at >= 0 else -1)
        weight = (best[at] if at >= 0 else 0) + (end - start if weights is None else weights[slot])
        left = bisect_left(ends, end)
        if (left < len(ends) and ends[left] == end and best[left] >= weight) or (left > 0 and best[left - 1] >= weight):
            continue
        right = left
        while right < len(ends) and best[right] <= weight:
            right += 1
        ends[left:right], best[left:right], last_slots[left:right] = [end], [weight], [slot]
    chosen: list[int] = []
    slot = last_slots[-1] if last_slots else -1
    while slot >= 0:
        chosen.append(slot)
        slot = before[slot]
    return chosen[::-1]


def whole_batch_after(file: File, position: int, bounds: Bounds) -> int | None:
    """Where the first whole batch after the damage at `position` is.  It may be inside a value: this is for
    callers that would rather refuse a file than cut it.
    """
    size_bytes = file.size_bytes()
    plausible = _plausible_positions(file, position + 1, size_bytes, bounds)
    return next((found for found in plausible if _is_whole(file, found, size_bytes, bounds)), None)


def _candidates(file: File, bounds: Bounds, indexed_positions: Set[int]) -> Iterator[Whole]:
    size_bytes = file.size_bytes()
    position = 0
    while position < size_bytes:
        for whole in _walk(file, position, size_bytes):
            if bounds.allows(whole[1]):
                yield _whole(*whole)
            position = whole[0] + LOG_OVERHEAD_BYTES + whole[1][1]
        if position < size_bytes:
            position = _next_position(file, position, size_bytes, bounds, indexed_positions)


def _walk(file: File, position: int, size_bytes: int) -> Iterator[tuple[int, BatchTuple]]:
    """(position, head) of the whole batches from `position` on, up to the first position without one."""
    scan = BatchScan(file, position, size_bytes)
    for head in scan.checked_heads():
        yield position, head
        position += LOG_OVERHEAD_BYTES + head[1]


def _whole(position: int, head: BatchTuple) -> Whole:
    return Whole(position, LOG_OVERHEAD_BYTES + head[1], head[0], head[0] + head[6] + 1, head[2], head[2])


def _next_position(file: File, position: int, size_bytes: int, bounds: Bounds, indexed_positions: Set[int]) -> int:
    """Where whole batches continue after the damage at `position`; the file's size when they do not."""
    # Head by head: damaged records leave the lengths right, and their neighbours may be damaged too.
    for following, _ in BatchScan(file, position, size_bytes, HEAD_CHUNK_BYTES).heads():
        if following > position and _is_whole(file, following, size_bytes, bounds):
            return following
    for candidate in _plausible_positions(file, position + 1, size_bytes, bounds):
        if _is_whole(file, candidate, size_bytes, bounds) and _is_proven(
            file, candidate, size_bytes, indexed_positions
        ):
            return candidate
    return size_bytes


def _is_whole(file: File, position: int, size_bytes: int, bounds: Bounds) -> bool:
    first = next(_walk(file, position, size_bytes), None)
    return first is not None and bounds.allows(first[1])


def _is_proven(file: File, position: int, size_bytes: int, indexed_positions: Set[int]) -> bool:
    """Whether the heads from `position` on, whole or not, lead to a known start or end of a batch."""
    scan = BatchScan(file, position, size_bytes, HEAD_CHUNK_BYTES)
    return any(at in indexed_positions for at, _ in scan.heads()) or scan.problem is None


def _plausible_positions(file: File, position: int, size_bytes: int, bounds: Bounds) -> Iterator[int]:
    """Positions that could be a batch's head, by a cheap test: length, magic and offsets fit."""
    while position + BATCH_OVERHEAD_BYTES <= size_bytes:
        chunk = file.read_at(position, _SEARCH_CHUNK_BYTES + BATCH_OVERHEAD_BYTES)
        at = -1
        while (magic_at := chunk.find(MAGIC, at + 1 + MAGIC_AT)) >= 0:
            at = magic_at - MAGIC_AT
            if at + BATCH_OVERHEAD_BYTES > len(chunk):
                break
            head = HEADER.unpack_from(chunk, at)
            fits = BATCH_OVERHEAD_BYTES <= LOG_OVERHEAD_BYTES + head[1] <= size_bytes - position - at
            if fits and head[6] >= 0 and bounds.allows(head):
                yield position + at
        if len(chunk) <= BATCH_OVERHEAD_BYTES:
            return
        position += max(1, len(chunk) - BATCH_OVERHEAD_BYTES)
