"""The segments of a log in offset order, found by bisection over their base offsets (the paper's section 3.1).

Also those that were removed, below the log start, until that is checkpointed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from ottla.storage.segment.segment import Segment


class SegmentList:
    """Never empty; the last one is the active segment."""

    __slots__ = ("_base_offsets", "_removed", "_segments", "active", "departures_count")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self._removed: list[Segment] = []
        # How often segments, or a part of one, have left the list.
        self.departures_count = 0
        self.check_invariants()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, slot: int) -> Segment:
        return self._segments[slot]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        """All `.log` files of the log."""
        return sum(segment.size_bytes for segment in self._segments)

    def slot_for(self, offset: int) -> int:
        """The slot of the segment that would hold `offset` (the first one when all start above it)."""
        return max(0, bisect_right(self._base_offsets, offset) - 1)

    def slot_of_closed(self, base_offsets: Sequence[int]) -> int | None:
        """The slot of the first of these when they are closed segments that follow each other, else None."""
        slot = self.slot_for(base_offsets[0])
        end_slot = slot + len(base_offsets)
        is_here = end_slot < len(self._segments) and self._base_offsets[slot:end_slot] == list(base_offsets)
        return slot if is_here else None

    def from_slot(self, slot: int) -> Iterator[Segment]:
        """The segments from this slot on; no others may come or go meanwhile."""
        return islice(self._segments, slot, None)

    def has(self, segment: Segment) -> bool:
        return self._segments[self.slot_for(segment.base_offset)] is segment

    def after(self, segment: Segment) -> Segment | None:
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def append(self, segment: Segment) -> None:
        assert segment.base_offset > self.active.base_offset
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def remove_first(self, count: int) -> None:
        """Remove the oldest ones, which are kept until `release_removed`; the active segment stays."""
        assert count < len(self._segments)
        self.departures_count += 1
        self._removed += self._segments[:count]
        del self._segments[:count]
        del self._base_offsets[:count]

    def with_removed(self) -> list[Segment]:
        """All whose files are there, oldest first."""
        return [*self._removed, *self._segments]

    def release_removed(self, retire: Callable[[Segment], None]) -> None:
        """Call `retire` with each removed segment, oldest first; after an `OSError` it and the later ones are kept."""
        while self._removed:
            retire(self._removed[0])
            self._removed.pop(0).release()

    def truncate_removed(self) -> Iterator[Segment]:
        """The removed segments, newest first: the caller removes their files at once, they are truncated ones now."""
        while self._removed:
            segment = self._removed.pop()
            segment.release()
            yield segment

    def remove_after(self, segment: Segment) -> list[Segment]:
        """Truncate the segments after this one, which is cut, and the active one then; returns them, oldest first."""
        slot = self.slot_for(segment.base_offset) + 1
        self.departures_count += 1
        removed = self._segments[slot:]
        del self._segments[slot:]
        del self._base_offsets[slot:]
        for each in removed:
            each.release()
        self.active = segment
        self.check_invariants()
        return removed

    def begin_anew(self, segment: Segment) -> None:
        """Only this one is left: the others were empty."""
        self.departures_count += 1
        for other in self._segments:
            if other is not segment:
                other.release()
        self._segments[:] = [segment]
        self._base_offsets[:] = [segment.base_offset]
        self.active = segment

    def replace(self, slot: int, count: int, segments: list[Segment]) -> list[Segment]:
        """Replace `count` closed segments from `slot` on by others; returns the replaced ones."""
        assert slot >= 0
        assert slot + count < len(self._segments)
        self.departures_count += 1
        replaced = self._segments[slot : slot + count]
        self._segments[slot : slot + count] = segments
        self._base_offsets[slot : slot + count] = [segment.base_offset for segment in segments]
        self.check_invariants()
        for segment in replaced:
            segment.release()
        return replaced

    def release(self) -> None:
        """The log is deleted: all of them leave it."""
        self.departures_count += 1
        for segment in self.with_removed():
            segment.release()

    def close(self) -> None:
        """Close the files of all of them, removed ones included."""
        self.departures_count += 1
        for segment in self.with_removed():
            segment.close()

    def check_invariants(self) -> None:
        assert all(a < b for a, b in zip(self._base_offsets, self._base_offsets[1:], strict=False))
        assert self.active is self._segments[-1]
