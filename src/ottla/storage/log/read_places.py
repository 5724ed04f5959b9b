"""Where readers at a log's tail begin and end: remembered, so that they need no look-up in an index."""

from __future__ import annotations

from typing import Final

from ottla.storage.segment.segment import Segment

# A consumer that waits reads from where the stable end stood when it last read.
PASSED_STABLE_ENDS_MAX: Final = 16

Place = tuple[Segment, int]


class ReadPlaces:
    """Places are (segment, position) of batches' beginnings, or of the end of what was written."""

    __slots__ = ("_passed", "appended_offset", "appended_position", "stable_position", "stable_segment")

    def __init__(self, stable_segment: Segment, stable_position: int) -> None:
        # The last batch, which lies in the active segment; -1: not known.
        self.appended_offset = -1
        self.appended_position = 0
        self.stable_segment = stable_segment
        self.stable_position = stable_position
        self._passed: dict[int, Place] = {}

    def move_stable(self, from_offset: int, segment: Segment, position: int) -> None:
        """The stable end left `from_offset` and stands at this place now."""
        passed = self._passed
        if len(passed) >= PASSED_STABLE_ENDS_MAX:
            del passed[next(iter(passed))]
        passed[from_offset] = (self.stable_segment, self.stable_position)
        self.stable_segment, self.stable_position = segment, position

    def set_stable(self, segment: Segment, position: int) -> None:
        self.stable_segment, self.stable_position = segment, position

    def find(self, offset: int) -> Place | None:
        return self._passed.get(offset)

    def forget(self) -> None:
        """Segments went or changed: nothing but the stable end's place is kept, and that is for the caller to set."""
        self.appended_offset = -1
        self._passed.clear()
