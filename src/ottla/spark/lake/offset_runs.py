"""Sets of offsets, as runs without gaps: what a part of a table has of a log.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.lake.rows import TOPIC_ID

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
# A topic's id as text, and a partition.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class OffsetRuns:
    """Offsets `[firsts[i], ends[i])`; ascending, and no two runs touch.  16 bytes for each run."""

    firsts: Numbers
    ends: Numbers

    @staticmethod
    def of(offsets: Numbers) -> OffsetRuns:
        """In any order, at least one."""
        each = np.unique(offsets)
        return OffsetRuns._merged(each, each + 1)

    @staticmethod
    def joined(parts: Sequence[OffsetRuns]) -> OffsetRuns:
        firsts = np.concatenate([part.firsts for part in parts])
        ends = np.concatenate([part.ends for part in parts])
        order = np.argsort(firsts, kind="stable")
        return OffsetRuns._merged(firsts[order], np.maximum.accumulate(ends[order]))

    @staticmethod
    def _merged(firsts: Numbers, ends: Numbers, gap_min: int = 1) -> OffsetRuns:
        """Both ascending.  Runs with less than `gap_min` offsets between them become one."""
        is_apart = firsts[1:] - ends[:-1] >= gap_min
        return OffsetRuns(firsts[np.append(True, is_apart)], ends[np.append(is_apart, True)])

    def has(self, offsets: Numbers) -> Mask:
        index = np.searchsorted(self.firsts, offsets, side="right") - 1
        found: Mask = (index >= 0) & (offsets < self.ends[index])
        return found

    def stretches(self, gap_min: int) -> Iterator[tuple[int, int]]:
        """`(first, end)` of stretches that have all these offsets, with gaps of less than `gap_min`."""
        coarse = OffsetRuns._merged(self.firsts, self.ends, gap_min)
        yield from zip(coarse.firsts.tolist(), coarse.ends.tolist(), strict=True)


OffsetsByPartition: TypeAlias = Mapping[Place, OffsetRuns]


def is_among(rows: pa.RecordBatch, offsets: OffsetsByPartition) -> Mask:
    """Which rows are of these offsets, by the columns topic_id, partition and offset."""
    numbers = rows.column("offset").to_numpy()
    found = np.zeros(rows.num_rows, np.bool_)
    for (topic_id, partition), runs in offsets.items():
        mine = is_of_place(rows, topic_id, partition)
        if mine.any():
            found |= mine & runs.has(numbers)
    return found


def is_of_place(rows: pa.RecordBatch, topic_id: str, partition: int) -> Mask:
    mine: Mask = rows.column("partition").to_numpy() == partition
    if mine.any():
        mine &= pc.equal(rows.column(TOPIC_ID).cast(pa.string()), topic_id).to_numpy(zero_copy_only=False)
    return mine
