"""Which offset of the target each offset of the source became.  Pure.

A copy keeps the order, so it is a list of runs: so many records at consecutive offsets on both sides.  Where nothing is
missing it is one run; compaction, markers of transactions and foreign records on the target begin new ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

# Runs are stored so many to a record of the progress topic.
CHUNK_RUNS: Final = 500


class Run(NamedTuple):
    """Source offsets [source_first, source_first + length) are target offsets [target_first, target_first + length)."""

    source_first: int
    target_first: int
    length: int


class OffsetMap:
    """Everything below `source_end` is copied, and is below `target_end`; both are exclusive."""

    def __init__(self, source_end: int, target_end: int, runs: Iterable[Run] = ()) -> None:
        self.source_end = source_end
        self.target_end = target_end
        self._runs: list[Run] = sorted(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def runs(self) -> list[Run]:
        return list(self._runs)

    def extend(self, run: Run) -> None:
        """The next records were copied.  `skip_to` says what was not."""
        assert run.source_first >= self.source_end, "the source is copied in order"
        assert run.target_first >= self.target_end, "the target is written in order"
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and last.source_first + last.length == run.source_first
            and last.target_first + last.length == run.target_first
        ):
            self._runs[-1] = last._replace(length=last.length + run.length)
        else:
            self._runs.append(run)
        self.source_end = run.source_first + run.length
        self.target_end = run.target_first + run.length

    def skip_to(self, source_end: int) -> None:
        """Nothing is to be copied up to this offset: markers, aborted records, what compaction removed."""
        self.source_end = max(self.source_end, source_end)

    def translate(self, source_offset: int) -> int:
        """The target offset where a reader goes on whose next offset is this one: at the first copied record at or
        after it; at the end when that is not copied yet."""
        if source_offset >= self.source_end:
            return self.target_end
        at = bisect_right(self._runs, source_offset, key=lambda run: run.source_first) - 1
        if at >= 0:
            run = self._runs[at]
            if source_offset < run.source_first + run.length:
                return run.target_first + source_offset - run.source_first
        return self._runs[at + 1].target_first if at + 1 < len(self._runs) else self.target_end

    def truncate(self, target_end: int) -> None:
        """The target has lost everything from this offset on: it is to be copied again."""
        while self._runs and self._runs[-1].target_first >= target_end:
            self.source_end = self._runs.pop().source_first
        if self._runs:
            last = self._runs[-1]
            left = min(last.length, target_end - last.target_first)
            if left < last.length:
                self._runs[-1] = last._replace(length=left)
                self.source_end = last.source_first + left
        self.target_end = min(self.target_end, target_end)

    def truncate_source(self, source_end: int) -> None:
        """The source has lost everything from this offset on, and gives the offsets again: what was copied stays."""
        while self._runs and self._runs[-1].source_first >= source_end:
            self._runs.pop()
        if self._runs:
            last = self._runs[-1]
            self._runs[-1] = last._replace(length=min(last.length, source_end - last.source_first))
        self.source_end = min(self.source_end, source_end)

    def prune(self, source_start: int) -> None:
        """Forget runs that end at or below the source's log start: nobody reads there.  The last run stays."""
        gone = 0
        while gone < len(self._runs) - 1 and self._runs[gone].source_first + self._runs[gone].length <= source_start:
            gone += 1
        # Whole chunks only: their keys are their first offsets, and the others must not move.
        del self._runs[: gone - gone % CHUNK_RUNS]

    def chunks(self) -> list[tuple[Run, ...]]:
        """The runs as they are stored: a chunk does not change any more once the next one has begun."""
        return [tuple(self._runs[at : at + CHUNK_RUNS]) for at in range(0, len(self._runs), CHUNK_RUNS)]
