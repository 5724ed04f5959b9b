"""Which offset of the target each offset of the source became.  Pure.

A copy keeps the order, so it is a list of runs: so many records at consecutive offsets on both sides.  Where nothing is
missing it is one run; compaction, markers of transactions and foreign records on the target begin new ones.

Only the newest runs are kept: of older ones each chunk becomes one landmark, and landmarks that are too many become
half as many.  A reader between two landmarks continues at the first of them: it misses nothing, and reads some records
again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

# Runs are stored so many to a record of the progress topic.
CHUNK_RUNS: Final = 500
EXACT_RUNS_MAX: Final = 10 * CHUNK_RUNS
LANDMARKS_MAX: Final = 2 * CHUNK_RUNS


class Run(NamedTuple):
    """Source offsets [source_first, source_first + length) are target offsets [target_first, target_first + length).

    A landmark has no length: the copy of `source_first` is at `target_first`, and what comes after it, up to the next
    run, is not known.
    """

    source_first: int
    target_first: int
    length: int

    @property
    def source_end(self) -> int:
        return self.source_first + self.length

    @property
    def target_end(self) -> int:
        return self.target_first + self.length

    @property
    def is_landmark(self) -> bool:
        return not self.length


class OffsetTranslation:
    """Everything below `source_end` is copied, and is below `target_end`; both are exclusive."""

    def __init__(self, source_end: int, target_end: int, runs: Iterable[Run] = ()) -> None:
        self.source_end = source_end
        self.target_end = target_end
        self._runs: list[Run] = []
        for run in sorted(runs):
            if self._runs and self._runs[-1].is_landmark and self._runs[-1].source_first == run.source_first:
                self._runs.pop()  # the journal was cut while its chunk was folded
            self._runs.append(run)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def runs(self) -> list[Run]:
        return list(self._runs)

    def extend(self, run: Run) -> None:
        """The next records were copied.  `skip_to` marks those that were not."""
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
        """Nothing up to this offset is copied: markers, aborted records, what compaction removed."""
        self.source_end = max(self.source_end, source_end)

    def skip_target_to(self, target_end: int) -> None:
        """What the target has up to this offset is no copy."""
        self.target_end = max(self.target_end, target_end)

    def translate(self, source_offset: int) -> int:
        """The target offset for a reader whose next offset is this one: the first copied record at or after it; the end
        when that is not copied yet; after a landmark the landmark."""
        if source_offset >= self.source_end:
            return self.target_end
        at = self._at(source_offset)
        if at >= 0:
            run = self._runs[at]
            if source_offset < run.source_end:
                return run.target_first + source_offset - run.source_first
            if run.is_landmark:
                return run.target_first
        return self._runs[at + 1].target_first if at + 1 < len(self._runs) else self.target_end

    def truncate(self, target_end: int) -> None:
        """The target has lost everything from this offset on: it must be copied again.

        After a landmark the map ends at the landmark: the target's records after it must be compared.
        """
        lost_from = self.target_end
        while self._runs and self._runs[-1].target_first >= target_end:
            run = self._runs.pop()
            self.source_end, lost_from = run.source_first, run.target_first
        if self._runs:
            last = self._runs[-1]
            if last.is_landmark and target_end < lost_from:
                self.source_end, target_end = last.source_first, last.target_first
            left = min(last.length, target_end - last.target_first)
            if left < last.length:
                self._runs[-1] = last._replace(length=left)
                self.source_end = last.source_first + left
        self.target_end = min(self.target_end, target_end)

    def truncate_source(self, source_end: int) -> None:
        """The source has lost everything from this offset on, and assigns the offsets again: copied records stay."""
        while self._runs and self._runs[-1].source_first >= source_end:
            self._runs.pop()
        if self._runs:
            last = self._runs[-1]
            self._runs[-1] = last._replace(length=min(last.length, source_end - last.source_first))
        self.source_end = min(self.source_end, source_end)

    def prune(self, source_start: int) -> None:
        """Forget runs that end at or below the source's log start: no reader starts there.  The last run stays."""
        gone = 0
        while gone < len(self._runs) - 1 and self._runs[gone + 1].source_first <= source_start:
            gone += 1
        # Whole chunks only: their keys are their first offsets, and the others must not move.
        begin = self._exact_begin()
        del self._runs[: gone if gone <= begin else gone - (gone - begin) % CHUNK_RUNS]

    def fold(self) -> None:
        """Keep the newest runs, and landmarks of the others."""
        begin = self._exact_begin()
        too_many = len(self._runs) - begin - EXACT_RUNS_MAX
        if too_many <= 0:
            return
        end = begin + -(-too_many // CHUNK_RUNS) * CHUNK_RUNS
        landmarks = self._runs[:begin] + [run._replace(length=0) for run in self._runs[begin:end:CHUNK_RUNS]]
        while len(landmarks) > LANDMARKS_MAX:
            landmarks = landmarks[::2]
        self._runs[:end] = landmarks

    def chunks(self) -> list[tuple[Run, ...]]:
        """The runs as they are stored: a chunk of exact ones does not change any more once the next one has begun."""
        begin = self._exact_begin()
        pieces = [(0, begin), (begin, len(self._runs))]
        return [
            tuple(self._runs[at : min(at + CHUNK_RUNS, end)])
            for first, end in pieces
            for at in range(first, end, CHUNK_RUNS)
        ]

    def ends_of_agreement(self, stored: Iterable[tuple[Run, ...]]) -> tuple[int, int] | None:
        """Where source and target ended when the stored chunks were right for the last time; None: they still are.

        The last run may have grown since, and the first ones may be forgotten.
        """
        known = {chunk[0].source_first: chunk for chunk in self.chunks()}
        agreed: Run | None = None
        chunks = list(stored)
        for chunk in chunks:
            if known.get(chunk[0].source_first) == chunk:
                agreed = chunk[-1]
                continue
            for run in chunk:
                if self._says(run, may_have_grown=run is chunks[-1][-1]):
                    agreed = run
                elif not self._has_forgotten(run):
                    return self._ends_in(run) or self._ends_of(agreed)
        return None

    def _has_forgotten(self, run: Run) -> bool:
        return (
            bool(self._runs)
            and run.source_end <= self._runs[0].source_first
            and run.target_end <= self._runs[0].target_first
        )

    def _says(self, stored: Run, *, may_have_grown: bool) -> bool:
        """A reader that translates by the stored run skips nothing."""
        at = self._at(stored.source_first)
        if at < 0 or stored.source_first >= self.source_end:
            return False
        run = self._runs[at]
        is_same = stored.source_first - run.source_first == stored.target_first - run.target_first
        if run.is_landmark:
            after = self._runs[at + 1].target_first if at + 1 < len(self._runs) else self.target_end
            is_behind = run.source_first < stored.source_first and run.target_first <= stored.target_first
            return (is_same or is_behind) and stored.target_end <= after
        if stored.is_landmark or not is_same or stored.source_first >= run.source_end:
            return False  # after a landmark runs come one chunk after the other, and each would seem to be the last
        return stored.source_end == run.source_end or (may_have_grown and stored.source_end < run.source_end)

    def _ends_in(self, stored: Run) -> tuple[int, int] | None:
        """Where the stored run and the one here part, which begin alike; None: they do not."""
        at = self._at(stored.source_first)
        if at < 0 or self._runs[at][:2] != stored[:2] or self._runs[at].is_landmark or stored.is_landmark:
            return None
        length = min(stored.length, self._runs[at].length)
        return stored.source_first + length, stored.target_first + length

    def _ends_of(self, agreed: Run | None) -> tuple[int, int]:
        if agreed is not None:
            return agreed.source_end, agreed.target_end
        if self._runs:
            return self._runs[0].source_first, self._runs[0].target_first
        return self.source_end, self.target_end

    def _at(self, source_offset: int) -> int:
        """The number of the last run that starts at or below it; -1: none does."""
        return bisect_right(self._runs, source_offset, key=lambda run: run.source_first) - 1

    def _exact_begin(self) -> int:
        """The number of landmarks that come first; one after exact runs is where a cut or a mixed journal left it."""
        return next((at for at, run in enumerate(self._runs) if not run.is_landmark), len(self._runs))
