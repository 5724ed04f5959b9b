from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.spark.lake.plans import Commit, CommitLimits

LIMITS = CommitLimits(rows_max=10_000, bytes_max=1_000_000, files_max=100)


def test_the_first_commit_is_small_and_never_larger_than_any_may_be() -> None:
    assert LIMITS.offsets_max(None, 50) == 50
    assert LIMITS.offsets_max(None, 50_000) == 100
    assert replace(LIMITS, rows_max=7).offsets_max(None, 50_000) == 7


@pytest.mark.parametrize(
    ("seen", "offsets_max"),
    [
        (Commit(500, 500 * 10, 2), 10_000),
        (Commit(500, 500 * 1000, 2), 1000),
        (Commit(500, 500 * 1000, 400), 125),
        (Commit(500, 0, 1), 10_000),
        (Commit(1, 5_000_000, 1), 1),
    ],
    ids=["small records", "large records", "a file for almost every row", "without bytes", "one larger than a commit"],
)
def test_the_next_one_is_as_large_as_its_rows_its_bytes_and_its_files_allow(seen: Commit, offsets_max: int) -> None:
    assert LIMITS.offsets_max(seen, 500) == offsets_max


def test_commits_with_rows_of_ever_new_hours_come_near_the_files_that_they_may_have_and_stay_below() -> None:
    hours, offsets = 500, 20
    found = []
    for _ in range(30):
        # As many hours as so many rows of random ones have, on average.
        files = round(hours * (1 - (1 - 1 / hours) ** offsets))
        found.append(files)
        offsets = LIMITS.offsets_max(Commit(offsets, offsets, files), 20)
    assert max(found) <= LIMITS.files_max
    assert found[-1] >= LIMITS.files_max - 2
