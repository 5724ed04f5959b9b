from __future__ import annotations

import itertools
import random

import numpy as np

from ottla.spark.lake.offset_runs import OffsetRuns


def runs(offsets: list[int]) -> OffsetRuns:
    return OffsetRuns.of(np.array(offsets, np.int64))


def test_runs_have_exactly_their_offsets() -> None:
    chance = random.Random(5)
    for _ in range(200):
        parts = [chance.sample(range(60), chance.randrange(1, 40)) for _ in range(chance.randrange(1, 4))]
        joined = OffsetRuns.joined([runs(part) for part in parts])
        expected = sorted({offset for part in parts for offset in part})
        assert np.flatnonzero(joined.has(np.arange(60))).tolist() == expected
        for gap_min in (1, 3, 10):
            stretches = list(joined.stretches(gap_min))
            assert [
                offset for first, end in stretches for offset in range(first, end) if offset in expected
            ] == expected
            assert all(later[0] - earlier[1] >= gap_min for earlier, later in itertools.pairwise(stretches))


def test_neighbours_are_one_run() -> None:
    assert list(runs([3, 1, 2, 7]).stretches(1)) == [(1, 4), (7, 8)]
    assert list(runs([3, 1, 2, 7]).stretches(4)) == [(1, 8)]
