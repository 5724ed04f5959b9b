"""The segments of a log in offset order, found by bisection over their base offsets (the paper's section 3.1)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ottla.storage.segment.segment import Segment


class SegmentList:
    """Never empty; the last one is the active segment."""

    __slots__ = ("_base_offsets", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]
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

    def slot_for(self, offset: int) -> int:
        """The slot of the segment that would hold `offset` (the first one when all begin above it)."""
        return max(0, bisect_right(self._base_offsets, offset) - 1)

    def after(self, segment: Segment) -> Segment | None:
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def append(self, segment: Segment) -> None:
        assert segment.base_offset > self.active.base_offset
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def remove_first(self, count: int) -> list[Segment]:
        """Remove the oldest ones; the active segment stays."""
        assert count < len(self._segments)
        removed = self._segments[:count]
        del self._segments[:count]
        del self._base_offsets[:count]
        return removed

    def remove_after(self, segment: Segment) -> list[Segment]:
        """Remove the segments after this one, which is the active one then."""
        slot = self.slot_for(segment.base_offset) + 1
        removed = self._segments[slot:]
        del self._segments[slot:]
        del self._base_offsets[slot:]
        self.active = segment
        self.check_invariants()
        return removed

    def begin_anew(self, segment: Segment) -> None:
        """Only this one is left, wherever it begins: the others were empty."""
        self._segments[:] = [segment]
        self._base_offsets[:] = [segment.base_offset]
        self.active = segment

    def replace(self, slot: int, count: int, segments: list[Segment]) -> list[Segment]:
        """Replace `count` closed segments from `slot` on by others; returns the replaced ones."""
        assert slot >= 0
        assert slot + count < len(self._segments)
        replaced = self._segments[slot : slot + count]
        self._segments[slot : slot + count] = segments
        self._base_offsets[slot : slot + count] = [segment.base_offset for segment in segments]
        self.check_invariants()
        return replaced

    def check_invariants(self) -> None:
        assert all(a < b for a, b in zip(self._base_offsets, self._base_offsets[1:], strict=False))
        assert self.active is self._segments[-1]
