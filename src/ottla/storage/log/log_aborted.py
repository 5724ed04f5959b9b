"""The aborted transactions of one log, in the indexes of its segments: what readers of committed records leave out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, Protocol

from ottla.observe.events import fields
from ottla.runtime.disk import Disk, FileRun
from ottla.storage.errors import CorruptLog
from ottla.storage.producers.aborted_transactions import AbortedIndex, AbortedTransaction, aborted_between
from ottla.storage.producers.replay import aborted_at
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)


class LogExtent(Protocol):
    """The log, as far as a search needs it."""

    @property
    def path(self) -> str: ...

    @property
    def log_end_offset(self) -> int: ...


class WallClock(Protocol):
    def now_ms(self) -> int: ...


class LogAborted:
    """Most logs have none: after one search of all segments a read of such a log looks at none of them."""

    __slots__ = ("_clock", "_disk", "_has_any", "_log", "_segments")

    def __init__(self, log: LogExtent, segments: SegmentList, disk: Disk, clock: WallClock) -> None:
        self._log: Final = log
        self._segments: Final = segments
        self._disk: Final = disk
        self._clock: Final = clock
        # None: not known before all segments were searched.
        self._has_any: bool | None = None

    def add(self, aborted: AbortedTransaction) -> None:
        """Its marker is in the active segment."""
        self._segments.active.aborted().add(aborted)
        self._has_any = True

    def load(self, segment: Segment) -> AbortedIndex:
        """The index of a segment: that on disk, or where it is damaged one that is made of the segment's batches."""
        try:
            return segment.aborted()
        except CorruptLog as damage:
            _log.warning("txnindex.damaged", extra=fields(path=damage.path, reason=str(damage)))
        log, segments = self._log, self._segments
        following = segments.after(segment)
        end_offset = log.log_end_offset if following is None else following.base_offset
        found = aborted_at(self._disk, log.path, segments.with_removed(), segment, end_offset, self._clock.now_ms())
        segment.replace_aborted(found)
        return found

    def in_run(self, run: FileRun, start_offset: int, limit_offset: int) -> list[AbortedTransaction]:
        """Those with records in a run that `Log.read` returned for these offsets, by first offset.

        Transactions that have none, but start near its end, may be among them.  Raises `CorruptLog` or `OSError`.
        """
        if not self._has_some():
            return []
        segments = self._segments
        slot = segments.slot_for(start_offset)
        segment = next((each for each in segments.from_slot(slot) if each.file is run.file), segments.active)
        end_offset = segment.end_offset_near(run.position + run.length_bytes)
        if end_offset is None:
            following = segments.after(segment)
            end_offset = limit_offset if following is None else following.base_offset
        return aborted_between(self._ended_from(start_offset), start_offset, min(end_offset, limit_offset))

    def across(self, offset: int) -> list[AbortedTransaction]:
        """Those that start below `offset` and end there or above."""
        return aborted_between(self._ended_from(offset), offset, offset) if self._has_some() else []

    def _ended_from(self, offset: int) -> Iterator[AbortedTransaction]:
        for segment in self._segments.from_slot(self._segments.slot_for(offset)):
            aborted = self.load(segment)
            if len(aborted):
                yield from aborted.ended_from(offset)

    def _has_some(self) -> bool:
        if self._has_any is None:
            self._has_any = any(len(self.load(segment)) for segment in self._segments)
        return self._has_any
