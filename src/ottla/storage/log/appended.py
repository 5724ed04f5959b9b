"""How much was appended to a log since it was opened, without a step for each append."""

from __future__ import annotations

from typing import NamedTuple


class Appended(NamedTuple):
    """What was appended to a log since it was opened, removed records included."""

    records_count: int
    size_bytes: int


class AppendedCount:
    """The sums up to an earlier end of the log; growth since then is added when the sums are read."""

    __slots__ = ("_before", "_from_offset", "_from_position")

    def __init__(self, end_offset: int, position: int) -> None:
        """The log ends at `end_offset`, and its active segment at `position`."""
        self._before = Appended(0, 0)
        self._from_offset = end_offset
        self._from_position = position

    def at(self, end_offset: int, position: int) -> Appended:
        """The sums for this end of the log, in the segment that it continued in last."""
        return Appended(
            self._before.records_count + end_offset - self._from_offset,
            self._before.size_bytes + position - self._from_position,
        )

    def go_on(self, before: Appended, end_offset: int, position: int) -> None:
        """The log continues at another end, in any segment; `before` are the sums up to its former end."""
        self._before = before
        self._from_offset = end_offset
        self._from_position = position
