"""How much was appended to a log since it was opened, without a step for each append."""

from __future__ import annotations

from typing import NamedTuple


class Appended(NamedTuple):
    """What was appended to a log since it was opened, whatever was removed since."""

    records_count: int
    size_bytes: int


class AppendedCount:
    """What was counted up to some end of the log; what it has grown by since is counted when somebody asks."""

    __slots__ = ("_before", "_from_offset", "_from_position")

    def __init__(self, end_offset: int, position: int) -> None:
        """The log ends at `end_offset`, and its active segment at `position`."""
        self._before = Appended(0, 0)
        self._from_offset = end_offset
        self._from_position = position

    def at(self, end_offset: int, position: int) -> Appended:
        """The sums, now that the log ends here, in the segment that it went on in last."""
        return Appended(
            self._before.records_count + end_offset - self._from_offset,
            self._before.size_bytes + position - self._from_position,
        )

    def go_on(self, before: Appended, end_offset: int, position: int) -> None:
        """The log goes on at another end, in whatever segment; `before` was counted up to its former end."""
        self._before = before
        self._from_offset = end_offset
        self._from_position = position
