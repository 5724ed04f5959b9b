"""Finding and reading in a log's segments by offset (the paper's section 3.1); `time_search` finds by time.

The functions keep no state: the log passes its segments and the ends that bound a reader.  `ReadPlaces` caches where
readers at the log's tail start and end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER, LOG_OVERHEAD_BYTES
from ottla.runtime.disk import FileRun
from ottla.storage.errors import CorruptLog
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_list import SegmentList

# A waiting reader continues at the end, of the log or of its readable part, that its last read reached.
PASSED_ENDS_MAX: Final = 32

Place = tuple[Segment, int]


class ReadPlaces:
    """Places are (segment, position) of batches' starts, or of the written end."""

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


def run_between(
    segments: SegmentList,
    segment: Segment,
    position: int,
    limit_segment: Segment,
    limit_position: int,
    start_offset: int,
    size_bytes_max: int,
    whole_first_batch: bool,
) -> FileRun | None:
    """The run from a batch's place, which holds `start_offset`, to the limit's place or the end of its segment.

    A segment that ends at the start is passed over.  See `Log.read` for the sizes.
    """
    end_position = limit_position if segment is limit_segment else segment.size_bytes
    while position >= end_position and segment is not limit_segment:
        following = segments.after(segment)
        if following is None:
            return None
        segment, position = following, 0
        segment.open()
        end_position = limit_position if segment is limit_segment else segment.size_bytes
    if position >= end_position:
        return None
    file = segment.open()
    length_bytes = end_position - position
    if length_bytes > size_bytes_max:
        first_bytes = _batch_size_bytes(segment, position, start_offset)
        if first_bytes <= size_bytes_max:
            length_bytes = size_bytes_max
        elif whole_first_batch:
            length_bytes = first_bytes
        else:
            return None
    return FileRun(file, position, length_bytes)


def run_before(
    segments: SegmentList,
    segment: Segment,
    position: int,
    damage: CorruptLog,
    start_offset: int,
    size_bytes_max: int,
    whole_first_batch: bool,
) -> FileRun | None:
    """`run_between` up to a damaged place.  Raises `damage` where nothing is before it."""
    damaged = next((each for each in segments if each.log_path == damage.path), None)
    if damaged is None or (damaged.base_offset, damage.position) <= (segment.base_offset, position):
        raise damage
    return run_between(
        segments, segment, position, damaged, damage.position, start_offset, size_bytes_max, whole_first_batch
    )


def place_of(segments: SegmentList, offset: int, log_end_offset: int, may_have_gaps: bool) -> tuple[Segment, int]:
    """The segment and position of the batch that holds `offset`, or of the next one after a gap.

    At the log end it is the active segment's end.  Raises `CorruptLog` when no batch holds it and none may be missing.
    """
    if offset >= log_end_offset:
        return segments.active, segments.active.size_bytes
    segment = segments[segments.slot_for(offset)]
    found = segment.find(offset)
    if (found is None or found[1][0] > offset) and not may_have_gaps:
        # Heads are not covered by the batch's checksum, and files can be lost: no reader may skip it silently.
        position = segment.size_bytes if found is None else found[0]
        raise CorruptLog(segment.log_path, position, offset, "no batch holds this offset")
    return (segment, segment.size_bytes) if found is None else (segment, found[0])


def _batch_size_bytes(segment: Segment, position: int, offset: int) -> int:
    head = segment.open().read_at(position, BATCH_OVERHEAD_BYTES)
    if len(head) < BATCH_OVERHEAD_BYTES:
        raise CorruptLog(segment.log_path, position, offset, "the file ends inside the head of a batch")
    length_bytes: int = HEADER.unpack_from(head)[1]
    return LOG_OVERHEAD_BYTES + length_bytes
