"""Where readers at a log's tail begin and end: remembered, so that they need no search in an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.storage.segment.segment import Segment

# A reader that waits continues where the log, or what it may read of it, ended when it last read.
PASSED_ENDS_MAX: Final = 32

Place = tuple[Segment, int]


class ReadPlaces:
    """Places are (segment, position) of batches' beginnings, or of the end of what was written."""

    __slots__ = ("_passed", "stable_position", "stable_segment")

    def __init__(self, stable_segment: Segment, stable_position: int) -> None:
        self.stable_segment = stable_segment
        self.stable_position = stable_position
        self._passed: dict[int, Place] = {}

    def move_stable(self, from_offset: int, segment: Segment, position: int) -> None:
        """The stable end moved from `from_offset` to this place."""
        self.remember(from_offset, self.stable_segment, self.stable_position)
        self.stable_segment, self.stable_position = segment, position

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """A reader has got everything below `offset`, and this is the place of `offset`."""
        passed = self._passed
        if offset in passed:
            return
        if len(passed) >= PASSED_ENDS_MAX:
            del passed[next(iter(passed))]
        passed[offset] = (segment, position)

    def set_stable(self, segment: Segment, position: int) -> None:
        self.stable_segment, self.stable_position = segment, position

    def find(self, offset: int) -> Place | None:
        return self._passed.get(offset)

    def forget(self) -> None:
        """Segments were removed or changed: only the stable end's place is kept, and that is the caller's to set."""
        self._passed.clear()

    def check_invariants(self, segments: Sequence[Segment], log_end_offset: int) -> None:
        """No place is above the log's end or in a segment that the log does not have."""
        present = set(segments)
        assert self.stable_segment in present
        assert self.stable_position <= self.stable_segment.size_bytes
        for offset, (segment, position) in self._passed.items():
            assert offset <= log_end_offset
            assert segment in present
            assert position <= segment.size_bytes
